"""DescribeQuorum, versions 0 to 2 (KIP-595, KIP-836 times, KIP-853 directories and listeners).

The metadata log is the only topic of it, and has one partition. The leader of the quorum is asked, wherever the question came in; where it
cannot be reached the answer has names and no ends. A replica that was heard of is told with the time of that, by this node's clock; the
leader's own time is now.
"""

from typing import TYPE_CHECKING, Any

from penstock.broker.calls import Call
from penstock.broker.quorum_calls import describe_quorum as describe
from penstock.broker.quorum_views import QuorumView, ReplicaView
from penstock.errors import ErrorCode
from penstock.vocabulary import NO_NODE
from penstock.wire import schemas

if TYPE_CHECKING:
    from penstock.broker.node import Node

METADATA_TOPIC = "__cluster_metadata"
LISTENER = "PEERS"  # The nodes' own.
NEVER_MS = -1


async def describe_quorum(node: "Node", call: Call) -> dict[str, Any]:
    request = schemas.read_request(call.api_key, call.version, call.frame, call.body_at)
    view = await describe(node)
    topics = [{"topic_name": topic.topic_name, "partitions": _partitions(node, view, topic)} for topic in request.topics]
    return {"error_code": ErrorCode.NONE, "error_message": None, "topics": topics, "nodes": _listeners(node, view)}


def _partitions(node: "Node", view: QuorumView, topic: Any) -> list[dict[str, Any]]:
    return [_partition(node, view, topic.topic_name, row.partition_index) for row in topic.partitions]


def _partition(node: "Node", view: QuorumView, topic: str, index: int) -> dict[str, Any]:
    if topic != METADATA_TOPIC or index != 0:
        return {"partition_index": index, "error_code": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "error_message": None, "leader_id": NO_NODE}
    return {
        "partition_index": 0,
        "error_code": ErrorCode.NONE,
        "error_message": None,
        "leader_id": NO_NODE if view.leader is None else view.leader,
        "leader_epoch": view.term,
        "high_watermark": view.committed_end,
        "current_voters": [_replica(node, view, each) for each in view.voters],
        "observers": [_replica(node, view, each) for each in view.observers],
    }


def _replica(node: "Node", view: QuorumView, each: ReplicaView) -> dict[str, Any]:
    heard_ms = NEVER_MS if each.silent_seconds is None else node.env.wall_ms() - int(each.silent_seconds * 1000)
    return {
        "replica_id": each.replica.node,
        "replica_directory_id": each.replica.directory,
        "log_end_offset": each.end,
        "last_fetch_timestamp": heard_ms,
        "last_caught_up_timestamp": heard_ms if each.end >= view.committed_end else NEVER_MS,
    }


def _listeners(node: "Node", view: QuorumView) -> list[dict[str, Any]]:
    """Where voters listen for other nodes, as far as they have registered."""
    known = [node.image.nodes.get(each.replica.node) for each in view.voters]
    return [
        {"node_id": each.node_id, "listeners": [{"name": LISTENER, "host": each.peer_host, "port": each.peer_port}]}
        for each in known
        if each is not None and each.peer_host
    ]
