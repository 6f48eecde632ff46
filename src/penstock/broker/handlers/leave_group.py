"""LeaveGroup, versions 0 to 5 (KIP-345: several members at once, static ones by their instance id, from 3).

Below version 3 there is one member and one error. The reason that a client gives from version 5 on is read and dropped.
"""

from typing import TYPE_CHECKING, Any

from penstock.broker.askers import Asker
from penstock.broker.calls import Call
from penstock.errors import ErrorCode
from penstock.groups.commands import LeaveGroup, Leaving
from penstock.groups.replies import LeaveReply
from penstock.wire import schemas

if TYPE_CHECKING:
    from penstock.broker.node import Node

_MANY_FROM = 3


def leave_group(node: "Node", call: Call) -> None:
    request = schemas.read_request(call.api_key, call.version, call.frame, call.body_at)
    if call.version >= _MANY_FROM:
        leaving = tuple(Leaving(member.member_id, member.group_instance_id) for member in request.members)
    else:
        leaving = (Leaving(request.member_id),)

    def order(asker: Asker) -> LeaveGroup:
        return LeaveGroup(token=asker, group=request.group_id, members=leaving)

    node.groups.put(call, request.group_id, order, write=_written, refuse=LeaveReply)


def _written(version: int, reply: LeaveReply) -> dict[str, Any]:
    code = reply.error
    if version < _MANY_FROM and code is ErrorCode.NONE and reply.members:
        code = reply.members[0].error
    return {
        "error_code": code,
        "members": [
            {"member_id": left.member_id, "group_instance_id": left.instance_id, "error_code": left.error} for left in reply.members
        ],
    }
