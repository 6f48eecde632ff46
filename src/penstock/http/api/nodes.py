"""GET /nodes: every node of the cluster with its state, what is wrong in the cluster, and what the node that answers is like.

All of the cluster is as this node has heard of it: any node can be asked. Nodes that only vote have no address for clients.
"""

from typing import Any

from penstock import __version__
from penstock.broker.cluster_views import Share, ills, shares
from penstock.broker.node import Node
from penstock.cluster.image import NodeState
from penstock.cluster.topic_names import is_internal
from penstock.http.answers import OK, Answer
from penstock.http.api.requests import ApiRequest
from penstock.http.api.schemas import flag, integer, listing, or_null, shape, text

NODE = shape(
    {
        "id": integer("The node's number."),
        "state": text("fenced: it is away. stopping: it hands over what it leads.", enum=["live", "fenced", "stopping"]),
        "host": or_null(text("Where clients are told to connect; null where it is no broker.")),
        "port": or_null(integer("And the port.")),
        "rack": or_null(text("Where it stands.")),
        "roles": listing(text("broker or controller."), "What it does."),
        "disk_is_short": flag("Whether others shall lead instead of it, because its disk is nearly full."),
        "epoch": integer("Grows with each of its starts."),
        "is_this": flag("Whether it is the node that answers."),
        "is_controller": flag("Whether it decides for the cluster."),
        "leads": integer("Partitions that it leads."),
        "replicas": integer("Partitions that it holds."),
        "in_sync": integer("Of those: where it has everything."),
    }
)
NODES = shape(
    {
        "cluster_id": text("The cluster's name for itself."),
        "controller": or_null(integer("The node that decides for the cluster; null while there is none.")),
        "version": text("Of the Penstock that answers."),
        "nodes": listing(NODE),
        "topics": integer("Topics in the cluster, without internal ones."),
        "under_replicated": integer("Partitions in the cluster that lack replicas in sync."),
        "below_min_in_sync": integer("Partitions in the cluster that refuse acks=all."),
        "leaderless": integer("Partitions in the cluster that nobody leads."),
        "reassigning": integer("Partitions in the cluster that are on their way to other nodes."),
        "partitions": integer("Partitions on this node."),
        "partitions_offline": integer("Of those: take no writes any more."),
        "connections": integer("Client connections open at this node."),
        "bytes": integer("In the logs of this node."),
        "disk_free_bytes": integer("Room on the disk of its data directory."),
        "disk_is_low": flag("Whether produce requests are refused for want of room."),
    }
)


async def get_nodes(node: Node, request: ApiRequest) -> Answer:
    partitions = list(node.partitions)
    return Answer(
        OK,
        {
            "cluster_id": node.image.cluster_id,
            "controller": node.controller_node(),
            "version": __version__,
            "nodes": await _nodes(node),
            "topics": sum(not is_internal(name) for name in node.image.topics),
            **(await ills(node))._asdict(),
            "partitions": len(partitions),
            "partitions_offline": sum(each.log.failure is not None for each in partitions),
            "connections": len(node.connections),
            "bytes": sum(each.log.size_bytes for each in partitions),
            "disk_free_bytes": node.env.disk.free_bytes(),
            "disk_is_low": node.disk_is_low,
        },
    )


async def _nodes(node: Node) -> list[dict[str, Any]]:
    held = await shares(node)
    reachable = {node_id: (host, port) for node_id, host, port, _ in node.endpoints()}
    return [
        {
            "id": each.node_id,
            "state": _state(each),
            "host": host,
            "port": port,
            "rack": each.rack,
            "roles": list(each.roles),
            "disk_is_short": each.is_disk_full,
            "epoch": each.node_epoch,
            "is_this": each.node_id == node.settings.node_id,
            "is_controller": each.node_id == node.controller_node(),
            **held.get(each.node_id, Share())._asdict(),
        }
        for each in sorted(node.image.nodes.values(), key=lambda each: each.node_id)
        for host, port in [reachable.get(each.node_id, (each.host, each.port) if each.is_broker else (None, None))]
    ]


def _state(each: NodeState) -> str:
    return "fenced" if each.is_fenced else "stopping" if each.is_stopping else "live"
