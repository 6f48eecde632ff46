"""JoinGroup, versions 0 to 9 (KIP-394 known member ids from 4, KIP-345 static members from 5, KIP-559 from 7, KIP-814 from 9).

Parked until everybody has joined or the time to join is over. Version 0 has no rebalance time-out; its session time-out serves as one.
The reason that a client gives from version 8 on is read and dropped.
Later requests of the connection are not held up: at Kafka they would wait for the join, so nobody relies on that.
"""

from typing import TYPE_CHECKING, Any

from penstock.broker.askers import Asker
from penstock.broker.calls import Call
from penstock.errors import ErrorCode
from penstock.groups.commands import JoinGroup
from penstock.groups.replies import JoinReply
from penstock.wire import schemas

if TYPE_CHECKING:
    from penstock.broker.node import Node

_KNOWN_ID_FROM = 4
_PROTOCOL_NULLABLE_FROM = 7
_SKIPS_FROM = 9


def join_group(node: "Node", call: Call) -> None:
    request = schemas.read_request(call.api_key, call.version, call.frame, call.body_at)
    instance_id = getattr(request, "group_instance_id", None)
    session_timeout_ms = schemas.milliseconds(request.session_timeout)

    def order(asker: Asker) -> JoinGroup:
        return JoinGroup(
            token=asker,
            group=request.group_id,
            member_id=request.member_id,
            fresh_member_id=node.groups.new_member_id(call.client_id, instance_id),
            instance_id=instance_id,
            client_id=call.client_id or "",
            client_host=f"/{call.connection.client_host}",  # With Java's slash: tools show it.
            session_timeout_ms=session_timeout_ms,
            rebalance_timeout_ms=schemas.milliseconds(request.rebalance_timeout) if call.version else session_timeout_ms,
            protocol_type=request.protocol_type,
            protocols=tuple((protocol.name, protocol.metadata) for protocol in request.protocols),
            needs_known_member_id=call.version >= _KNOWN_ID_FROM,
            can_skip_assignment=call.version >= _SKIPS_FROM,
        )

    def refuse(code: ErrorCode) -> JoinReply:
        return JoinReply(error=code, member_id=request.member_id)

    node.groups.put(call, request.group_id, order, write=_written, refuse=refuse, may_begin=True)


def _written(version: int, reply: JoinReply) -> dict[str, Any]:
    name = reply.protocol_name
    return {
        "error_code": reply.error,
        "generation_id": reply.generation,
        "protocol_type": reply.protocol_type,
        "protocol_name": name if version >= _PROTOCOL_NULLABLE_FROM else name or "",
        "leader": reply.leader,
        "skip_assignment": reply.skip_assignment,
        "member_id": reply.member_id,
        "members": [
            {"member_id": member.member_id, "group_instance_id": member.instance_id, "metadata": member.metadata}
            for member in reply.members
        ],
    }
