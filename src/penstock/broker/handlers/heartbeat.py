"""Heartbeat, versions 0 to 4 (KIP-345 static members from 3).

While the coordinator is loading every heartbeat is fine, as at Kafka: nobody's session runs then, and a member has no need to know.
"""

from typing import TYPE_CHECKING, Any

from penstock.broker.askers import Asker
from penstock.broker.calls import Call
from penstock.errors import ErrorCode
from penstock.groups.commands import Heartbeat
from penstock.groups.replies import HeartbeatReply
from penstock.wire import schemas

if TYPE_CHECKING:
    from penstock.broker.node import Node


def heartbeat(node: "Node", call: Call) -> None:
    request = schemas.read_request(call.api_key, call.version, call.frame, call.body_at)

    def order(asker: Asker) -> Heartbeat:
        return Heartbeat(
            token=asker,
            group=request.group_id,
            generation=request.generation_id,
            member_id=request.member_id,
            instance_id=getattr(request, "group_instance_id", None),
        )

    node.groups.put(call, request.group_id, order, write=_written, refuse=_refused)


def _refused(code: ErrorCode) -> HeartbeatReply:
    return HeartbeatReply(ErrorCode.NONE if code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS else code)


def _written(_: int, reply: HeartbeatReply) -> dict[str, Any]:
    return {"error_code": reply.error}
