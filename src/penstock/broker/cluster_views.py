"""What clients and operators are told of nodes and partitions, out of the image that this node has replayed.

The controller of the protocol is the node to which clients send what changes the cluster. Every broker takes that and passes it on, so
where the real controller is no broker, or nobody knows of one, this node names itself.
"""

from collections import Counter
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, NamedTuple

from penstock.broker.patience import Patience
from penstock.cluster.image import ClusterImage, PartitionState, Topic
from penstock.errors import ErrorCode
from penstock.settings import TopicConfig
from penstock.vocabulary import NO_NODE, NodeId

if TYPE_CHECKING:
    from penstock.broker.node import Node

LOOK_EVERY = 256  # Partitions between two looks at the clock.


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


class Share(NamedTuple):
    """Of one node."""

    leads: int = 0
    replicas: int = 0
    in_sync: int = 0


async def ills(node: "Node") -> Ills:
    under = below = leaderless = reassigning = 0
    config, configured = node.partitions.defaults, None
    async for topic, _, state in each_partition(node):
        if configured is not topic:
            config, configured = node.partitions.config_of(topic), topic
        under += is_under_replicated(state)
        below += is_below_min_in_sync(state, config)
        leaderless += state.leader == NO_NODE
        reassigning += state.is_reassigning
    return Ills(under, below, leaderless, reassigning)


async def shares(node: "Node") -> dict[NodeId, Share]:
    """How the partitions lie on the nodes; those without any are left out."""
    leads: Counter[NodeId] = Counter()
    replicas: Counter[NodeId] = Counter()
    in_sync: Counter[NodeId] = Counter()
    async for _, _, state in each_partition(node):
        leads[state.leader] += 1
        for replica in state.replicas:
            replicas[replica] += 1
        for replica in state.in_sync:
            in_sync[replica] += 1
    return {node_id: Share(leads[node_id], count, in_sync[node_id]) for node_id, count in replicas.items()}


async def each_partition(node: "Node") -> AsyncIterator[tuple[Topic, int, PartitionState]]:
    """All of the cluster. There may be many thousands, so others get their turn meanwhile."""
    patience = Patience(node.env)
    for topic in list(node.image.topics.values()):
        for index, state in enumerate(list(topic.partitions)):
            if index % LOOK_EVERY == 0:
                await patience.pause_if_over()
            yield topic, index, state
