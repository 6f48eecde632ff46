"""SyncGroup, versions 0 to 5 (KIP-345 static members from 3, KIP-559 protocol type and name from 5).

The leader brings everybody's assignment; the others are parked until it has. The bytes mean nothing to the node.
From version 5 the protocol must be named; without it INCONSISTENT_GROUP_PROTOCOL, as at Kafka.
"""

from typing import TYPE_CHECKING, Any

from penstock.broker.askers import Asker
from penstock.broker.calls import Call
from penstock.errors import ErrorCode
from penstock.groups.commands import SyncGroup
from penstock.groups.replies import SyncReply
from penstock.wire import schemas

if TYPE_CHECKING:
    from penstock.broker.node import Node

_PROTOCOL_FROM = 5


def sync_group(node: "Node", call: Call) -> None:
    request = schemas.read_request(call.api_key, call.version, call.frame, call.body_at)
    protocol_type, protocol_name = getattr(request, "protocol_type", None), getattr(request, "protocol_name", None)
    if call.version >= _PROTOCOL_FROM and (protocol_type is None or protocol_name is None):
        refusal = _written(call.version, SyncReply(error=ErrorCode.INCONSISTENT_GROUP_PROTOCOL))
        call.connection.new_reply().send([schemas.write_response(call.api_key, call.version, call.correlation_id, refusal)])
        return

    def order(asker: Asker) -> SyncGroup:
        return SyncGroup(
            token=asker,
            group=request.group_id,
            generation=request.generation_id,
            member_id=request.member_id,
            instance_id=getattr(request, "group_instance_id", None),
            protocol_type=protocol_type,
            protocol_name=protocol_name,
            assignments=tuple((given.member_id, given.assignment) for given in request.assignments),
        )

    node.groups.put(call, request.group_id, order, write=_written, refuse=lambda code: SyncReply(error=code))


def _written(_: int, reply: SyncReply) -> dict[str, Any]:
    return {
        "error_code": reply.error,
        "protocol_type": reply.protocol_type,
        "protocol_name": reply.protocol_name,
        "assignment": reply.assignment,
    }
