"""What holds in the cluster now: the metadata log, replayed.

Only `replay` changes it, and it never refuses: a record in the log has happened. Readers take what they need and keep nothing.
`graveyard` is what is still owed: topics that are deleted but whose files may still lie on a disk.
A snapshot is the shortest list of records that replays into the same image, so there is no second format to get wrong.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import assert_never

from penstock.cluster import records
from penstock.vocabulary import LeaderEpoch, NodeId, ProducerId, TopicId


@dataclass(slots=True)
class PartitionState:
    replicas: tuple[NodeId, ...]
    in_sync: tuple[NodeId, ...]
    leader: NodeId
    leader_epoch: LeaderEpoch  # Only ever grows.


@dataclass(slots=True)
class Topic:
    name: str
    topic_id: TopicId
    partitions: list[PartitionState]
    overrides: dict[str, str]


@dataclass(slots=True)
class ClusterImage:
    cluster_id: str = ""
    nodes: dict[NodeId, records.NodeRegistered] = field(default_factory=dict)
    topics: dict[str, Topic] = field(default_factory=dict)
    topics_by_id: dict[TopicId, Topic] = field(default_factory=dict)
    node_overrides: dict[NodeId, dict[str, str]] = field(default_factory=dict)  # And of EVERY_NODE; none of them empty.
    graveyard: dict[TopicId, None] = field(default_factory=dict)
    next_producer_id: ProducerId = ProducerId(0)  # No id at or above this was ever given to a node.  # noqa: RUF009
    partition_count: int = 0

    def replay(self, record: records.Record) -> None:
        match record:
            case records.ClusterFormed():
                self.cluster_id = record.cluster_id
            case records.NodeRegistered():
                self.nodes[record.node_id] = record
            case records.TopicCreated():
                self._add_topic(record)
            case records.PartitionsAdded():
                topic = self.topics_by_id[record.topic_id]
                topic.partitions += _states(record.partitions)
                self.partition_count += len(record.partitions)
            case records.TopicConfigured():
                self.topics_by_id[record.topic_id].overrides = dict(record.overrides)
            case records.TopicDeleted():
                topic = self.topics_by_id.pop(record.topic_id)
                del self.topics[topic.name]
                self.partition_count -= len(topic.partitions)
                self.graveyard[record.topic_id] = None
            case records.TopicBuried():
                self.graveyard.pop(record.topic_id, None)
            case records.LeadershipResumed():
                self._raise_epochs_led_by(record.node_id)
            case records.NodeConfigured():
                self.node_overrides.pop(record.node_id, None)
                if record.overrides:
                    self.node_overrides[record.node_id] = dict(record.overrides)
            case records.ProducerBlockTaken():
                self.next_producer_id = ProducerId(max(self.next_producer_id, record.first + record.size))
            case _:
                assert_never(record)

    def snapshot(self) -> list[records.Record]:
        """Records that replay into this image from nothing."""
        kept: list[records.Record] = [records.ClusterFormed(self.cluster_id), *self.nodes.values()]
        kept += [records.NodeConfigured(node_id, dict(overrides)) for node_id, overrides in self.node_overrides.items()]
        for topic in self.topics.values():
            placements = tuple(records.Placement(p.replicas, p.in_sync, p.leader, p.leader_epoch) for p in topic.partitions)
            kept.append(records.TopicCreated(topic.name, topic.topic_id, placements, dict(topic.overrides)))
        for topic_id in self.graveyard:
            kept += [records.TopicCreated(f"deleted {topic_id.hex()}", topic_id, ()), records.TopicDeleted(topic_id)]
        if self.next_producer_id:
            kept.append(records.ProducerBlockTaken(NodeId(-1), ProducerId(0), self.next_producer_id))
        return kept

    def _add_topic(self, record: records.TopicCreated) -> None:
        topic = Topic(record.name, record.topic_id, _states(record.partitions), dict(record.overrides))
        self.topics[topic.name] = topic
        self.topics_by_id[topic.topic_id] = topic
        self.partition_count += len(topic.partitions)

    def _raise_epochs_led_by(self, node_id: NodeId) -> None:
        for topic in self.topics.values():
            for partition in topic.partitions:
                if partition.leader == node_id:
                    partition.leader_epoch = LeaderEpoch(partition.leader_epoch + 1)


def _states(placements: Sequence[records.Placement]) -> list[PartitionState]:
    return [PartitionState(placed.replicas, placed.in_sync, placed.leader, placed.leader_epoch) for placed in placements]
