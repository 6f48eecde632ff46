"""What a client knows of the cluster: nodes, topics, and who leads each partition.

An answer may come from a node that lags behind, so what is remembered of a partition gives way only to a leader epoch that is not older,
unless the topic itself is another one. What proved wrong is doubted: still there to look at, but asked for again before it is used.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

from penstock.errors import ErrorCode
from penstock.peers.connection import Address
from penstock.vocabulary import Instant, TopicId
from penstock.wire.schemas import topic_id_bytes

NO_LEADER = -1


@dataclass(frozen=True, slots=True)
class NodeView:
    node_id: int
    address: Address
    rack: str | None


@dataclass(frozen=True, slots=True)
class PartitionView:
    partition: int
    leader: int  # A node id, or NO_LEADER.
    leader_epoch: int
    replicas: tuple[int, ...]
    in_sync: tuple[int, ...]
    offline: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class TopicView:
    name: str
    topic_id: TopicId
    is_internal: bool
    partitions: tuple[PartitionView, ...]  # By number: partition n is at place n.
    error_code: int = ErrorCode.NONE


@dataclass(frozen=True, slots=True)
class ClusterView:
    cluster_id: str | None
    controller_id: int
    nodes: tuple[NodeView, ...]
    topics: tuple[TopicView, ...]


@dataclass(slots=True)
class _Remembered:
    view: TopicView
    learned_at: Instant
    asked_in: int  # The round of questions that brought it.
    doubted_in: int = -1  # The last round that had begun when it proved wrong; only a later one can clear it.


class TopicCache:
    def __init__(self, age_max_s: float) -> None:
        self._age_max_s = age_max_s
        self._topics: dict[str, _Remembered] = {}

    def get(self, name: str, now: Instant) -> TopicView | None:
        """What is known and neither doubted nor too old."""
        known = self._topics.get(name)
        if known is None or known.asked_in <= known.doubted_in or now - known.learned_at > self._age_max_s:
            return None
        return known.view

    def learn(self, views: Iterable[TopicView], now: Instant, asked_in: int) -> None:
        for view in views:
            known = self._topics.get(view.name)
            if view.error_code in (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID):
                self._topics.pop(view.name, None)
            elif view.error_code == ErrorCode.NONE and known is None:
                self._topics[view.name] = _Remembered(view, now, asked_in)
            elif view.error_code == ErrorCode.NONE and known is not None:
                self._topics[view.name] = _Remembered(_newer(known.view, view), now, max(asked_in, known.asked_in), known.doubted_in)

    def doubt(self, name: str, last_round: int) -> None:
        if name in self._topics:
            self._topics[name].doubted_in = last_round


def read_cluster(answer: Any) -> ClusterView:
    """A Metadata answer of any version."""
    return ClusterView(
        getattr(answer, "cluster_id", None),
        int(getattr(answer, "controller_id", NO_LEADER)),
        tuple(NodeView(int(node.node_id), Address(node.host, int(node.port)), getattr(node, "rack", None)) for node in answer.brokers),
        tuple(_read_topic(topic) for topic in answer.topics),
    )


def _read_topic(topic: Any) -> TopicView:
    partitions = sorted((_read_partition(partition) for partition in topic.partitions), key=lambda view: view.partition)
    return TopicView(
        topic.name or "",
        topic_id_bytes(getattr(topic, "topic_id", None)),
        bool(getattr(topic, "is_internal", False)),
        tuple(partitions),
        int(topic.error_code),
    )


def _read_partition(partition: Any) -> PartitionView:
    return PartitionView(
        int(partition.partition_index),
        int(partition.leader_id),
        int(getattr(partition, "leader_epoch", -1)),
        tuple(map(int, partition.replica_nodes)),
        tuple(map(int, partition.isr_nodes)),
        tuple(map(int, getattr(partition, "offline_replicas", ()))),
    )


def _newer(known: TopicView, told: TopicView) -> TopicView:
    if known.topic_id != told.topic_id:
        return told
    kept = {partition.partition: partition for partition in known.partitions}
    return replace(told, partitions=tuple(_newer_partition(kept.get(partition.partition), partition) for partition in told.partitions))


def _newer_partition(known: PartitionView | None, told: PartitionView) -> PartitionView:
    return known if known is not None and known.leader_epoch > told.leader_epoch else told
