"""What clients and operators are told of nodes and partitions, out of the image that this node has replayed.

The controller of the protocol is the node to which clients send what changes the cluster. Every broker takes that and passes it on, so
where the real controller is no broker, or nobody knows of one, this node names itself.
"""

from typing import TYPE_CHECKING, NamedTuple

from penstock.cluster.image import ClusterImage, PartitionState
from penstock.errors import ErrorCode
from penstock.settings import TopicConfig
from penstock.vocabulary import NO_NODE, NodeId

if TYPE_CHECKING:
    from penstock.broker.node import Node


class Ills(NamedTuple):
    """What is wrong with the partitions of the cluster: how many are so."""

    under_replicated: int = 0
    below_min_in_sync: int = 0
    leaderless: int = 0
    reassigning: int = 0


def controller_for_clients(node: "Node") -> NodeId:
    controller = node.controller_node()
    known = None if controller is None else node.image.nodes.get(controller)
    return known.node_id if known is not None and known.is_live else NodeId(node.settings.node_id)


def offline_replicas(image: ClusterImage, state: PartitionState) -> tuple[NodeId, ...]:
    """Replicas whose node is away."""
    return tuple(replica for replica in state.replicas if (node := image.nodes.get(replica)) is None or not node.is_live)


def leader_error(state: PartitionState) -> ErrorCode:
    return ErrorCode.LEADER_NOT_AVAILABLE if state.leader == NO_NODE else ErrorCode.NONE


def is_under_replicated(state: PartitionState) -> bool:
    """As Kafka's tools reckon it: replicas that are only being added are not missed yet."""
    return len(state.in_sync) < len(state.replicas) - len(state.adding)


def is_below_min_in_sync(state: PartitionState, config: TopicConfig) -> bool:
    """Producers with acks=all are refused."""
    return state.leader == NO_NODE or len(state.in_sync) < min(config.min_insync_replicas, len(state.replicas))


def ills(node: "Node") -> Ills:
    counts = [0, 0, 0, 0]
    for topic in node.image.topics.values():
        config = node.partitions.config_of(topic)
        for state in topic.partitions:
            counts[0] += is_under_replicated(state)
            counts[1] += is_below_min_in_sync(state, config)
            counts[2] += state.leader == NO_NODE
            counts[3] += state.is_reassigning
    return Ills(*counts)
