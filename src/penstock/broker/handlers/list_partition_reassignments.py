"""ListPartitionReassignments, version 0 (KIP-455). kafka-topics asks before it describes a topic; on one node nothing ever moves."""

from typing import TYPE_CHECKING, Any

from penstock.broker.calls import Call
from penstock.errors import ErrorCode
from penstock.wire import schemas

if TYPE_CHECKING:
    from penstock.broker.node import Node


async def list_partition_reassignments(node: "Node", call: Call) -> dict[str, Any]:
    schemas.read_request(call.api_key, call.version, call.frame, call.body_at)  # One that doesn't parse closes its connection.
    return {"error_code": ErrorCode.NONE, "error_message": None, "topics": []}
