"""UnregisterBroker, version 0 (KIP-500): a node that will not come back is forgotten. One that does comes back as a new one."""

from typing import TYPE_CHECKING, Any

from penstock.broker.calls import Call
from penstock.cluster.commands import UnregisterNode
from penstock.errors import ErrorCode, Refusal
from penstock.vocabulary import NodeId
from penstock.wire import schemas

if TYPE_CHECKING:
    from penstock.broker.node import Node


async def unregister_broker(node: "Node", call: Call) -> dict[str, Any]:
    request = schemas.read_request(call.api_key, call.version, call.frame, call.body_at)
    try:
        (reply,) = await node.submit(UnregisterNode(NodeId(request.broker_id)))
    except Refusal as refusal:
        reply = refusal
    code, reason = (reply.code, reply.reason) if isinstance(reply, Refusal) else (ErrorCode.NONE, None)
    return {"error_code": code, "error_message": reason}
