"""DescribeCluster, versions 0 to 2 (KIP-700, KIP-1073 fenced brokers): the cluster as this node has heard of it.

Endpoint type 2 (controllers) is refused: nodes keep that door to themselves (KIP-919). Fenced nodes are told of when asked for.
"""

from typing import TYPE_CHECKING, Any

from penstock.broker.calls import Call
from penstock.broker.cluster_views import controller_for_clients
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
    live = [(*endpoint, False) for endpoint in node.endpoints()]
    away = [each for each in node.image.nodes.values() if each.is_broker and each.is_fenced]
    fenced = [(int(each.node_id), each.host, each.port, each.rack, True) for each in away]
    told = live + fenced if getattr(request, "include_fenced_brokers", False) else live
    return {
        "cluster_id": node.image.cluster_id,
        "controller_id": controller_for_clients(node),
        "brokers": [
            {"broker_id": node_id, "host": host, "port": port, "rack": rack, "is_fenced": is_fenced}
            for node_id, host, port, rack, is_fenced in told
        ],
        "cluster_authorized_operations": CLUSTER_OPERATIONS if request.include_cluster_authorized_operations else NO_OPERATIONS,
    }
