"""DescribeCluster, versions 0 to 2 (KIP-700). Endpoint type 2 (controllers) is refused: nodes keep that door to themselves (KIP-919)."""

from typing import TYPE_CHECKING, Any

from penstock.broker.calls import Call
from penstock.broker.operations import CLUSTER_OPERATIONS
from penstock.errors import ErrorCode
from penstock.wire import schemas
from penstock.wire.metadata import NO_OPERATIONS

if TYPE_CHECKING:
    from penstock.broker.node import Node

BROKERS = 1


async def describe_cluster(node: "Node", call: Call) -> dict[str, Any]:
    request = schemas.read_request(call.api_key, call.version, call.frame, call.body_at)
    endpoint_type = getattr(request, "endpoint_type", BROKERS)
    if endpoint_type != BROKERS:
        reason = "this address serves brokers only"
        return {"error_code": ErrorCode.MISMATCHED_ENDPOINT_TYPE, "error_message": reason, "endpoint_type": endpoint_type}
    return {
        "cluster_id": node.image.cluster_id,
        "controller_id": node.settings.node_id,
        "brokers": [
            {"broker_id": node_id, "host": host, "port": port, "rack": rack, "is_fenced": False}
            for node_id, host, port, rack in node.endpoints()
        ],
        "cluster_authorized_operations": CLUSTER_OPERATIONS if request.include_cluster_authorized_operations else NO_OPERATIONS,
    }
