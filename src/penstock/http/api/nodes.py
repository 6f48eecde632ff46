"""GET /nodes: the cluster's nodes, and what this one is like."""

from penstock import __version__
from penstock.broker.node import Node
from penstock.cluster.topic_names import INTERNAL_TOPICS
from penstock.http.answers import OK, Answer
from penstock.http.api.requests import ApiRequest
from penstock.http.api.schemas import flag, integer, listing, or_null, shape, text

NODE = shape(
    {
        "id": integer("The node's number."),
        "host": text("Where clients are told to connect."),
        "port": integer("And the port."),
        "rack": or_null(text("Where it stands.")),
        "is_this": flag("Whether it is the node that answers."),
    }
)
NODES = shape(
    {
        "cluster_id": text("The cluster's name for itself."),
        "controller": integer("The node that decides on topics."),
        "version": text("Of the Penstock that answers."),
        "nodes": listing(NODE),
        "topics": integer("Topics in the cluster, without internal ones."),
        "partitions": integer("Partitions on this node."),
        "partitions_offline": integer("Of those: take no writes any more."),
        "connections": integer("Client connections open at this node."),
        "bytes": integer("In the logs of this node."),
        "disk_free_bytes": integer("Room on the disk of its data directory."),
        "disk_is_low": flag("Whether produce requests are refused for want of room."),
    }
)


async def get_nodes(node: Node, request: ApiRequest) -> Answer:
    own_id = node.settings.node_id
    partitions = list(node.partitions)
    return Answer(
        OK,
        {
            "cluster_id": node.image.cluster_id,
            "controller": own_id,
            "version": __version__,
            "nodes": [
                {"id": node_id, "host": host, "port": port, "rack": rack, "is_this": node_id == own_id}
                for node_id, host, port, rack in node.endpoints()
            ],
            "topics": sum(name not in INTERNAL_TOPICS for name in node.image.topics),
            "partitions": len(partitions),
            "partitions_offline": sum(each.log.failure is not None for each in partitions),
            "connections": len(node.connections),
            "bytes": sum(each.log.size_bytes for each in partitions),
            "disk_free_bytes": node.env.disk.free_bytes(),
            "disk_is_low": node.disk_is_low,
        },
    )
