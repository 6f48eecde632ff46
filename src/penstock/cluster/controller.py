"""Who may change the cluster, and how: commands in, records and replies out.

`decide` never mutates the image. One decision is committed and replayed before the next is taken, so each sees all that came before it.
A command for many topics is one decision: topics that cannot be made are refused each by itself, the others are made together.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import assert_never

from penstock.cluster import placement, records
from penstock.cluster.image import ClusterImage
from penstock.cluster.topic_names import check_topic_name
from penstock.errors import ErrorCode, Refusal
from penstock.settings import TopicConfig
from penstock.vocabulary import NodeId, TopicId

PRODUCER_BLOCK_SIZE = 1_000  # As Kafka's: a crash wastes at most this many of 2**63 ids.


@dataclass(frozen=True, slots=True)
class NewTopic:
    name: str
    topic_id: TopicId  # Drawn by the asker: a decision has no dice.
    partitions: int  # -1: the default
    replication_factor: int = -1  # -1: the default
    overrides: dict[str, str] = field(default_factory=dict)
    assignments: tuple[tuple[int, tuple[int, ...]], ...] = ()


@dataclass(frozen=True, slots=True)
class CreateTopics:
    topics: tuple[NewTopic, ...]


@dataclass(frozen=True, slots=True)
class DeleteTopic:
    topic_id: TopicId


@dataclass(frozen=True, slots=True)
class TakeProducerBlock:
    node_id: NodeId


@dataclass(frozen=True, slots=True)
class RegisterNode:
    node_id: NodeId
    cluster_id: str  # For a cluster that isn't formed yet.
    directory_id: str
    host: str
    port: int
    was_stopped_cleanly: bool


@dataclass(frozen=True, slots=True)
class BuryTopic:
    topic_id: TopicId
    node_id: NodeId


Command = CreateTopics | DeleteTopic | TakeProducerBlock | RegisterNode | BuryTopic
Reply = records.Record | Refusal


@dataclass(frozen=True, slots=True)
class Decision:
    """What becomes true, and what the asker hears: one reply for each thing asked, in the order asked."""

    records: tuple[records.Record, ...]
    replies: tuple[Reply, ...]


@dataclass(frozen=True, slots=True)
class Controller:
    image: ClusterImage
    topic_defaults: TopicConfig
    partitions_default: int
    partitions_max: int

    def decide(self, command: Command) -> Decision:
        match command:
            case CreateTopics():
                return self._create(command.topics)
            case DeleteTopic():
                return self._delete(command.topic_id)
            case TakeProducerBlock():
                return _all_agreed(records.ProducerBlockTaken(command.node_id, self.image.next_producer_id, PRODUCER_BLOCK_SIZE))
            case RegisterNode():
                return self._register(command)
            case BuryTopic():
                return _all_agreed(records.TopicBuried(command.topic_id, command.node_id))
            case _:
                assert_never(command)

    def _create(self, topics: Sequence[NewTopic]) -> Decision:
        replies: list[Reply] = []
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
            raise Refusal(ErrorCode.TOPIC_ALREADY_EXISTS, f"topic {name!r} exists")
        self.topic_defaults.with_overrides(wish.overrides)
        placements = self._placements(wish)
        if len(placements) > room:
            raise Refusal(
                ErrorCode.POLICY_VIOLATION,
                f"{len(placements)} more partitions would pass the bound of {self.partitions_max} (setting partitions.max)",
            )
        return records.TopicCreated(name, wish.topic_id, placements, dict(wish.overrides))

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
