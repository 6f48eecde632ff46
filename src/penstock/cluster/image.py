"""What holds in the cluster now: the metadata log, replayed.

Only `replay` changes it, and it never refuses: a record in the log has happened. Readers take what they need and keep nothing.
`graveyard` is what is still owed: topics that are deleted but whose files may still lie on somebody's disk.
`unsettled` and `loads` are reckoned from the partitions while they change, so that looking for what is owed costs nothing when nothing is.
A snapshot is the shortest list of records that replays into the same image, so there is no second format to get wrong.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple, assert_never

from penstock.cluster import records
from penstock.cluster.records import BROKER
from penstock.cluster.topic_names import companion_name
from penstock.vocabulary import NO_NODE, LeaderEpoch, NodeId, ProducerId, TopicId


class PartitionState(NamedTuple):
    replicas: tuple[NodeId, ...]  # The first is preferred as leader. While being reassigned: those to be, then those to leave.
    in_sync: tuple[NodeId, ...]  # Each has every record that was ever committed, if it hasn't lost what it had.
    leader: NodeId  # One of in_sync, or NO_NODE.
    leader_epoch: LeaderEpoch  # Grows with every change of leader; no two nodes lead in one epoch.
    partition_epoch: int = 0  # Grows with every change.
    eligible: tuple[NodeId, ...] = ()  # Out of the set, yet with every committed record: none was committed since they left (KIP-966).
    adding: tuple[NodeId, ...] = ()  # Of replicas, those that join by the reassignment under way.
    removing: tuple[NodeId, ...] = ()  # Of replicas, those that leave when it is finished.
    last_leader: NodeId = NO_NODE  # Who led last, while nobody does.

    @property
    def is_reassigning(self) -> bool:
        return bool(self.adding or self.removing)

    @property
    def target(self) -> tuple[NodeId, ...]:
        """The replicas when nothing is under way any more."""
        return tuple(node for node in self.replicas if node not in self.removing) if self.removing else self.replicas

    def as_change(self, topic_id: TopicId, index: int) -> records.PartitionChange:
        return records.PartitionChange(topic_id, index, *self)


@dataclass(frozen=True, slots=True)
class NodeState:
    node_id: NodeId
    node_epoch: int
    directory_id: str
    host: str
    port: int
    rack: str | None
    peer_host: str
    peer_port: int
    roles: tuple[str, ...]
    is_fenced: bool
    has_new_disk: bool = False
    flush_defaults: dict[str, str] | None = None
    is_stopping: bool = False  # Until it registers again.
    is_disk_full: bool = False  # It said that its disk is nearly full.

    @property
    def is_broker(self) -> bool:
        return BROKER in self.roles

    @property
    def is_live(self) -> bool:
        """May lead and be in sync."""
        return not self.is_fenced and BROKER in self.roles

    @property
    def may_take_more(self) -> bool:
        """Leaderships and replicas go to such nodes as long as there are any."""
        return self.is_live and not self.is_stopping and not self.is_disk_full

    def as_record(self) -> records.NodeRegistered:
        return records.NodeRegistered(
            self.node_id, self.node_epoch, self.directory_id, self.host, self.port, self.rack, self.peer_host, self.peer_port,
            self.roles, self.is_fenced, self.has_new_disk, self.flush_defaults,
        )  # fmt: skip


class Load(NamedTuple):
    """What placement made of one node's share."""

    firsts: int = 0  # Partitions of which it is the preferred leader.
    replicas: int = 0


@dataclass(slots=True)
class Topic:
    name: str
    topic_id: TopicId
    partitions: list[PartitionState]
    overrides: dict[str, str]

    def as_record(self, companion_of: TopicId | None = None) -> records.TopicCreated | records.CompanionMade:
        placements = tuple(records.Placement(*state) for state in self.partitions)
        if companion_of is not None:
            return records.CompanionMade(companion_of, self.topic_id, placements, dict(self.overrides))
        return records.TopicCreated(self.name, self.topic_id, placements, dict(self.overrides))


@dataclass(slots=True)
class ClusterImage:
    cluster_id: str = ""
    nodes: dict[NodeId, NodeState] = field(default_factory=dict)
    retired: dict[NodeId, int] = field(default_factory=dict)  # The last epoch of each node that was unregistered.
    topics: dict[str, Topic] = field(default_factory=dict)
    topics_by_id: dict[TopicId, Topic] = field(default_factory=dict)
    companions: dict[TopicId, TopicId] = field(default_factory=dict)  # topic: the one that has its ledger; both are there.
    companions_of: dict[TopicId, TopicId] = field(default_factory=dict)  # The other way round.
    node_overrides: dict[NodeId, dict[str, str]] = field(default_factory=dict)  # And of EVERY_NODE; none of them empty.
    group_configs: dict[str, dict[str, str]] = field(default_factory=dict)  # By group, what it was told; none of them empty.
    graveyard: dict[TopicId, tuple[NodeId, ...]] = field(default_factory=dict)  # Who still has files of it; never nobody.
    early: dict[TopicId, dict[NodeId, int]] = field(default_factory=dict)  # Lives under a weaker promise than now: see FlushPromised.
    next_producer_id: ProducerId = ProducerId(0)  # No id at or above this was ever given to a node.  # noqa: RUF009
    partition_count: int = 0
    unsettled: dict[tuple[TopicId, int], None] = field(default_factory=dict)  # Without a leader, with eligible ones, or being reassigned.
    loads: dict[NodeId, Load] = field(default_factory=dict)
    version: int = field(default=0, compare=False)  # How many records it has replayed: who reckons from it can tell.

    def live_brokers(self) -> list[NodeId]:
        return sorted(node.node_id for node in self.nodes.values() if node.is_live)

    def partition(self, topic_id: TopicId, index: int) -> PartitionState | None:
        topic = self.topics_by_id.get(topic_id)
        return topic.partitions[index] if topic is not None and 0 <= index < len(topic.partitions) else None

    def each_partition(self) -> Iterator[tuple[Topic, int, PartitionState]]:
        for topic in self.topics.values():
            for index, state in enumerate(topic.partitions):
                yield topic, index, state

    def companion_of(self, topic_id: TopicId) -> Topic | None:
        """The topic that has the ledger of this one, by partitions of the same numbers."""
        companion_id = self.companions.get(topic_id)
        return None if companion_id is None else self.topics_by_id[companion_id]

    def data_of(self, companion_id: TopicId) -> Topic | None:
        """The topic whose ledger is in this one."""
        topic_id = self.companions_of.get(companion_id)
        return None if topic_id is None else self.topics_by_id[topic_id]

    def together(self, topic: Topic) -> tuple[Topic, ...]:
        """Topics whose partitions have one leader for each number: the data, then its companion. Most stand alone."""
        if (companion_id := self.companions.get(topic.topic_id)) is not None:
            return topic, self.topics_by_id[companion_id]
        data_id = self.companions_of.get(topic.topic_id)
        return (topic,) if data_id is None else (self.topics_by_id[data_id], topic)

    def in_sync(self, topic: Topic, index: int) -> tuple[NodeId, ...]:
        """Who may lead the partition, while it is up: in sync here, and in what moves with it."""
        first, *others = (each.partitions[index].in_sync for each in self.together(topic))
        return tuple(node for node in first if all(node in other for other in others)) if others else first

    def led_by(self, node_id: NodeId) -> int:
        return sum(state.leader == node_id for _, _, state in self.each_partition())

    def replay(self, record: records.Record) -> None:
        self.version += 1
        match record:
            case records.ClusterFormed():
                self.cluster_id = record.cluster_id
            case records.NodeRegistered() | records.NodeFenced() | records.NodeUnfenced():
                self._replay_node(record)
            case records.NodeStopping() | records.NodeDiskReported() | records.NodeUnregistered():
                self._replay_node(record)
            case records.PartitionsChanged():
                for change in record.changes:
                    self._put(self.topics_by_id[change.topic_id], change.partition, PartitionState(*change[2:]))
            case records.LeadershipResumed():
                self._raise_epochs_led_by(record.node_id)
            case records.NodeConfigured():
                self.node_overrides.pop(record.node_id, None)
                if record.overrides:
                    self.node_overrides[record.node_id] = dict(record.overrides)
            case records.GroupConfigured():
                self.group_configs.pop(record.group, None)
                if record.overrides:
                    self.group_configs[record.group] = dict(record.overrides)
            case records.ProducerBlockTaken():
                self.next_producer_id = ProducerId(max(self.next_producer_id, record.first + record.size))
            case _:
                self._replay_topic(record)

    def _replay_node(self, record: records.OfNode) -> None:
        match record:
            case records.NodeRegistered():
                self.retired.pop(record.node_id, None)
                known = self.nodes.get(record.node_id)
                self.nodes[record.node_id] = NodeState(
                    record.node_id, record.node_epoch, record.directory_id, record.host, record.port, record.rack,
                    record.peer_host, record.peer_port, record.roles, record.is_fenced, record.has_new_disk, record.flush_defaults,
                    is_disk_full=known is not None and known.is_disk_full and known.directory_id == record.directory_id,
                )  # fmt: skip
                self._forget_lives(record.node_id, before=record.node_epoch)
            case records.NodeFenced():
                self.nodes[record.node_id] = replace(self.nodes[record.node_id], is_fenced=True)
            case records.NodeUnfenced():
                self.nodes[record.node_id] = replace(self.nodes[record.node_id], is_fenced=False)
            case records.NodeStopping():
                self.nodes[record.node_id] = replace(self.nodes[record.node_id], is_stopping=True)
            case records.NodeDiskReported():
                self.nodes[record.node_id] = replace(self.nodes[record.node_id], is_disk_full=record.is_full)
            case records.NodeUnregistered():
                self._forget_node(record)
            case _:
                assert_never(record)

    def _replay_topic(self, record: records.OfTopic) -> None:
        match record:
            case records.TopicCreated():
                topic = Topic(record.name, record.topic_id, [], dict(record.overrides))
                self.topics[topic.name] = topic
                self.topics_by_id[topic.topic_id] = topic
                self._add_partitions(topic, record.partitions)
            case records.CompanionMade():
                companion = Topic(companion_name(record.topic_id), record.companion_id, [], dict(record.overrides))
                self.topics[companion.name] = self.topics_by_id[companion.topic_id] = companion
                self.companions[record.topic_id], self.companions_of[record.companion_id] = record.companion_id, record.topic_id
                self._add_partitions(companion, record.partitions)
            case records.PartitionsAdded():
                self._add_partitions(self.topics_by_id[record.topic_id], record.partitions)
            case records.TopicConfigured():
                self.topics_by_id[record.topic_id].overrides = dict(record.overrides)
            case records.TopicDeleted():
                self._delete(record)
            case records.TopicBuried():
                self._bury(record.topic_id, record.node_id)
            case records.FlushPromised():
                for topic_id in record.topics:
                    self.early.setdefault(topic_id, {}).update(record.lives)
            case _:
                assert_never(record)

    def snapshot(self) -> Iterator[records.Record]:
        """Records that replay into this image from nothing, made one by one: nothing is replayed until the last of them."""
        yield records.ClusterFormed(self.cluster_id)
        yield from (node.as_record() for node in self.nodes.values())
        yield from (records.NodeUnregistered(node_id, node_epoch) for node_id, node_epoch in self.retired.items())
        yield from (records.NodeStopping(node.node_id, node.node_epoch) for node in self.nodes.values() if node.is_stopping)
        yield from (records.NodeDiskReported(node.node_id, node.node_epoch, True) for node in self.nodes.values() if node.is_disk_full)
        yield from (records.NodeConfigured(node_id, dict(overrides)) for node_id, overrides in self.node_overrides.items())
        yield from (records.GroupConfigured(group, dict(overrides)) for group, overrides in self.group_configs.items())
        yield from (topic.as_record(self.companions_of.get(topic.topic_id)) for topic in self.topics.values())
        yield from (records.FlushPromised((topic_id,), tuple(lives.items())) for topic_id, lives in self.early.items())
        for topic_id, holders in self.graveyard.items():
            yield records.TopicCreated(f"deleted {topic_id.hex()}", topic_id, ())
            yield records.TopicDeleted(topic_id, holders)
        if self.next_producer_id:
            yield records.ProducerBlockTaken(NodeId(-1), ProducerId(0), self.next_producer_id)

    def _add_partitions(self, topic: Topic, placements: Sequence[records.Placement]) -> None:
        self.partition_count += len(placements)
        for placed in placements:
            state = PartitionState(
                placed.replicas, placed.in_sync, placed.leader, placed.leader_epoch,
                placed.partition_epoch, placed.eligible, placed.adding, placed.removing, placed.last_leader,
            )  # fmt: skip
            topic.partitions.append(state)
            self._weigh(state.replicas, 1)
            self._note(topic.topic_id, len(topic.partitions) - 1, state)

    def _put(self, topic: Topic, index: int, state: PartitionState) -> None:
        if state.replicas != topic.partitions[index].replicas:
            self._weigh(topic.partitions[index].replicas, -1)
            self._weigh(state.replicas, 1)
        topic.partitions[index] = state
        self._note(topic.topic_id, index, state)

    def _note(self, topic_id: TopicId, index: int, state: PartitionState) -> None:
        if state.leader == NO_NODE or state.eligible or state.is_reassigning:
            self.unsettled[topic_id, index] = None
        else:
            self.unsettled.pop((topic_id, index), None)

    def _weigh(self, replicas: tuple[NodeId, ...], sign: int) -> None:
        for place, node_id in enumerate(replicas):
            firsts, held = self.loads.get(node_id, Load())
            load = Load(firsts + (sign if place == 0 else 0), held + sign)
            if load.replicas:
                self.loads[node_id] = load
            else:
                del self.loads[node_id]

    def _delete(self, record: records.TopicDeleted) -> None:
        topic = self.topics_by_id.pop(record.topic_id)
        self.early.pop(record.topic_id, None)
        if (data_id := self.companions_of.pop(record.topic_id, None)) is not None:
            del self.companions[data_id]
        del self.topics[topic.name]
        self.partition_count -= len(topic.partitions)
        for index, state in enumerate(topic.partitions):
            self._weigh(state.replicas, -1)
            self.unsettled.pop((topic.topic_id, index), None)
        holders = record.holders
        if holders is None:  # Version 1 had one node; its snapshots kept the partitions of no deleted topic.
            held = {node_id for state in topic.partitions for node_id in state.replicas} or self.nodes
            holders = tuple(sorted(held))
        if holders:
            self.graveyard[topic.topic_id] = holders

    def _bury(self, topic_id: TopicId, node_id: NodeId) -> None:
        left = tuple(holder for holder in self.graveyard.get(topic_id, ()) if holder != node_id)
        if left:
            self.graveyard[topic_id] = left
        else:
            self.graveyard.pop(topic_id, None)

    def _forget_node(self, record: records.NodeUnregistered) -> None:
        self.nodes.pop(record.node_id, None)
        self.node_overrides.pop(record.node_id, None)
        self.retired[record.node_id] = record.node_epoch
        self._forget_lives(record.node_id, before=record.node_epoch + 1)
        for topic_id in list(self.graveyard):
            self._bury(topic_id, record.node_id)

    def _forget_lives(self, node_id: NodeId, *, before: int) -> None:
        for topic_id, lives in list(self.early.items()):
            if lives.get(node_id, before) < before:
                del lives[node_id]
            if not lives:
                del self.early[topic_id]

    def _raise_epochs_led_by(self, node_id: NodeId) -> None:
        for topic, index, state in list(self.each_partition()):
            if state.leader == node_id:
                raised = state._replace(leader_epoch=LeaderEpoch(state.leader_epoch + 1), partition_epoch=state.partition_epoch + 1)
                self._put(topic, index, raised)
