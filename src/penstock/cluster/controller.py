"""Who may change the cluster, and how: commands in, records and replies out.

`decide` never mutates the image. One decision is committed and replayed before the next is taken, so each sees all that came before it.
A command for many topics is one decision: topics that cannot be made are refused each by itself, the others are made together.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, assert_never

from penstock.cluster import placement, records
from penstock.cluster.commands import (
    AddPartitions,
    BuryTopic,
    ChangeInSync,
    Command,
    CreateTopics,
    DeleteTopic,
    ElectLeaders,
    FenceNode,
    MorePartitions,
    NewTopic,
    ReassignPartitions,
    RegisterNode,
    Settle,
    StopNode,
    TakeProducerBlock,
    UnfenceNode,
    UnregisterNode,
)
from penstock.cluster.configuring import ConfigureNode, ConfigureTopic, check_internal, node_configured, topic_configured
from penstock.cluster.image import ClusterImage
from penstock.cluster.replies import Reply
from penstock.cluster.topic_names import INTERNAL_TOPICS, check_topic_name
from penstock.errors import ErrorCode, Refusal
from penstock.settings import TopicConfig
from penstock.vocabulary import TopicId

__all__ = [
    "PRODUCER_BLOCK_SIZE", "AddPartitions", "BuryTopic", "Command", "Controller", "CreateTopics", "Decision", "DeleteTopic",
    "MorePartitions", "NewTopic", "RegisterNode", "Reply", "TakeProducerBlock",
]  # fmt: skip

INTERNAL_OVERRIDES = {"cleanup.policy": "compact"}  # Also where a client makes such a topic, as Kafka lets it.
PRODUCER_BLOCK_SIZE = 1_000  # As Kafka's: a crash wastes at most this many of 2**63 ids.


@dataclass(frozen=True, slots=True)
class Decision:
    """What becomes true, and what the asker hears: one reply for each thing asked, in the order asked."""

    records: tuple[records.Record, ...]
    replies: tuple[Reply, ...]


@dataclass(slots=True)
class Controller:
    """All but the image follows the node's settings, which may change while it runs."""

    image: ClusterImage
    topic_defaults: TopicConfig
    partitions_default: int
    partitions_max: int

    def decide(self, command: Command) -> Decision:
        match command:
            case CreateTopics():
                return self._create(command.topics)
            case AddPartitions():
                return self._add_partitions(command.topics)
            case ConfigureTopic():
                return self._configure_topic(command)
            case ConfigureNode():
                return self._configure_node(command)
            case DeleteTopic():
                return self._delete(command.topic_id)
            case TakeProducerBlock():
                return _all_agreed(records.ProducerBlockTaken(command.node_id, self.image.next_producer_id, PRODUCER_BLOCK_SIZE))
            case RegisterNode():
                return self._register(command)
            case BuryTopic():
                return _all_agreed(records.TopicBuried(command.topic_id, command.node_id))
            case ChangeInSync() | ElectLeaders() | ReassignPartitions() | Settle():
                return Decision((), (Refusal(ErrorCode.UNSUPPORTED_VERSION, "not yet"),))
            case FenceNode() | UnfenceNode() | StopNode() | UnregisterNode():
                return Decision((), (Refusal(ErrorCode.UNSUPPORTED_VERSION, "not yet"),))
            case _:
                assert_never(command)

    def _create(self, topics: Sequence[NewTopic]) -> Decision:
        replies: list[Any] = []
        room = self.partitions_max - self.image.partition_count
        taken: set[str] = set()
        for wish in topics:
            try:
                made = self._new_topic(wish, taken, room)
            except Refusal as refusal:
                replies.append(refusal)
                continue
            taken.add(made.name)
            room -= len(made.partitions)
            replies.append(made)
        return Decision(tuple(reply for reply in replies if not isinstance(reply, Refusal)), tuple(replies))

    def _new_topic(self, wish: NewTopic, taken: set[str], room: int) -> records.TopicCreated:
        name = check_topic_name(wish.name)
        if name in self.image.topics or name in taken:
            raise Refusal(ErrorCode.TOPIC_ALREADY_EXISTS, f"topic {name!r} already exists")
        overrides = {**INTERNAL_OVERRIDES, **wish.overrides} if name in INTERNAL_TOPICS else dict(wish.overrides)
        check_internal(name, self.topic_defaults.with_overrides(overrides))
        placements = self._placements(wish)
        self._check_room(len(placements), room)
        return records.TopicCreated(name, wish.topic_id, placements, overrides)

    def _placements(self, wish: NewTopic) -> tuple[records.Placement, ...]:
        nodes = sorted(self.image.nodes)
        if wish.assignments:
            if wish.partitions != -1 or wish.replication_factor != -1:
                raise Refusal(ErrorCode.INVALID_REQUEST, "give either replica assignments, or a number of partitions and replicas")
            return placement.as_assigned(wish.assignments, nodes)
        partitions = self.partitions_default if wish.partitions == -1 else wish.partitions
        if not 1 <= partitions <= self.partitions_max:
            raise Refusal(ErrorCode.INVALID_PARTITIONS, f"a topic has 1 to {self.partitions_max} partitions, not {partitions}")
        replication_factor = 1 if wish.replication_factor == -1 else wish.replication_factor
        if replication_factor < 1:
            raise Refusal(ErrorCode.INVALID_REPLICATION_FACTOR, f"a topic needs at least one replica, not {replication_factor}")
        return placement.place(partitions, replication_factor, nodes)

    def _check_room(self, partitions: int, room: int) -> None:
        if partitions > room:
            raise Refusal(
                ErrorCode.POLICY_VIOLATION,
                f"{partitions} more partitions would pass the bound of {self.partitions_max} (setting partitions.max)",
            )

    def _add_partitions(self, wishes: Sequence[MorePartitions]) -> Decision:
        replies: list[Any] = []
        room = self.partitions_max - self.image.partition_count
        for wish in wishes:
            try:
                added = self._more_partitions(wish, room)
            except Refusal as refusal:
                replies.append(refusal)
                continue
            room -= len(added.partitions)
            replies.append(added)
        return Decision(tuple(reply for reply in replies if not isinstance(reply, Refusal)), tuple(replies))

    def _more_partitions(self, wish: MorePartitions, room: int) -> records.PartitionsAdded:
        topic = self.image.topics.get(wish.topic)
        if topic is None:
            raise Refusal(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {wish.topic!r}")
        first = len(topic.partitions)
        if wish.partitions <= first:
            raise Refusal(ErrorCode.INVALID_PARTITIONS, f"topic {wish.topic!r} has {first} partitions; {wish.partitions} would not be more")
        self._check_room(wish.partitions - first, room)
        replicas, nodes = len(topic.partitions[0].replicas), sorted(self.image.nodes)
        if wish.assignments is None:
            return records.PartitionsAdded(topic.topic_id, placement.place(wish.partitions - first, replicas, nodes, first=first))
        if [len(assigned) for assigned in wish.assignments] != [replicas] * (wish.partitions - first):
            raise Refusal(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                f"{wish.partitions - first} new partitions need as many assignments, each of {replicas} replicas as the topic's others",
            )
        return records.PartitionsAdded(topic.topic_id, placement.as_assigned(list(enumerate(wish.assignments)), nodes))

    def _configure_topic(self, command: ConfigureTopic) -> Decision:
        try:
            configured = topic_configured(self.image, self.topic_defaults, command)
        except Refusal as refusal:
            return Decision((), (refusal,))
        is_news = configured.overrides != self.image.topics_by_id[configured.topic_id].overrides
        return Decision((configured,) if is_news else (), (configured,))

    def _configure_node(self, command: ConfigureNode) -> Decision:
        try:
            configured = node_configured(self.image, command)
        except Refusal as refusal:
            return Decision((), (refusal,))
        is_news = configured.overrides != self.image.node_overrides.get(command.node_id, {})
        return Decision((configured,) if is_news else (), (configured,))

    def _delete(self, topic_id: TopicId) -> Decision:
        if topic_id not in self.image.topics_by_id:
            return Decision((), (Refusal(ErrorCode.UNKNOWN_TOPIC_ID, "there is no such topic (any more)"),))
        return _all_agreed(records.TopicDeleted(topic_id))

    def _register(self, command: RegisterNode) -> Decision:
        known = self.image.nodes.get(command.node_id)
        node_epoch = known.node_epoch + 1 if known else 1
        made: list[records.Record] = []
        if not self.image.cluster_id:
            made.append(records.ClusterFormed(command.cluster_id))
        made.append(records.NodeRegistered(command.node_id, node_epoch, command.directory_id, command.host, command.port))
        if known and not command.was_stopped_cleanly:
            made.append(records.LeadershipResumed(command.node_id))
        return _all_agreed(*made)


def _all_agreed(*made: records.Record) -> Decision:
    return Decision(made, made)
