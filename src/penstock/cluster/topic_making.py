"""Topics are made and grow.

A command for many topics is one decision: those that cannot be made are refused each by itself, the others are made together.
A topic that is there under the very id that was drawn for it was made by this command before: it is answered as then, and nothing is made.
If it was deleted since, it is not made again while files of it may lie somewhere: whoever has not buried the first would bury the second.

The cluster's own topics are made once, at whatever moment somebody first needs them, and nobody looks at their replicas afterwards. So they
get as many as they should have for good: nodes that are away get theirs too, and catch up when they come back (as Kafka's placer does it).
While a voter has never been up, nobody knows whether it will hold partitions: then they are not made with fewer, but refused. Only where
there are fewer brokers in all do they make do with as many (docs/decisions/0027).
"""

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from penstock.cluster import records
from penstock.cluster.commands import MorePartitions, NewTopic
from penstock.cluster.companions import companion_for, companion_id, not_directly, wants_companion
from penstock.cluster.configuring import check_partitions, check_together
from penstock.cluster.deciding import Decision
from penstock.cluster.image import ClusterImage, NodeState
from penstock.cluster.placement import Placer, as_assigned
from penstock.cluster.replies import Reply
from penstock.cluster.topic_names import COMPANION_PREFIX, INTERNAL_TOPICS, check_topic_name, is_companion
from penstock.errors import ErrorCode, Refusal
from penstock.settings import TopicConfig
from penstock.vocabulary import NodeId

INTERNAL_OVERRIDES = {"cleanup.policy": "compact"}  # Also where a client makes such a topic, as Kafka lets it.

INTERNAL_REPLICATION = 3


class Terms(NamedTuple):
    """What holds for new topics."""

    image: ClusterImage
    topic_defaults: TopicConfig
    partitions_default: int
    partitions_max: int
    replication_default: int
    internal_replication: Mapping[str, int]  # Of the cluster's own topics; they make do with fewer where there are fewer brokers.
    seconds_since_heard: Callable[[NodeId], float | None]
    voters: Sequence[NodeId] = ()  # Also those that have never been up.


class _Making:
    """One command: what earlier topics of it take is not there for the later ones."""

    def __init__(self, terms: Terms) -> None:
        self.terms = terms
        self.image = terms.image
        self.brokers = [node for node in sorted(terms.image.nodes.values(), key=_number) if node.is_live and not node.is_stopping]
        self.placer = Placer(self.brokers, terms.image.loads)
        self.room = terms.partitions_max - terms.image.partition_count
        self.taken: set[str] = set()


def create_topics(terms: Terms, wishes: Sequence[NewTopic]) -> Decision:
    making = _Making(terms)
    made: list[records.Record] = []
    replies: list[Reply] = []
    for wish in wishes:
        known = terms.image.topics_by_id.get(wish.topic_id)
        try:
            if known is not None and known.name == wish.name:
                replies.append(known.as_record())
                continue
            created = _created(making, wish)
        except Refusal as refusal:
            replies.append(refusal)
            continue
        making.taken.add(created.name)
        making.room -= len(created.partitions)
        made.append(created)
        replies.append(created)
        if wants_companion(created.overrides):
            making.room -= len(created.partitions)
            made.append(companion_for(created.topic_id, created.partitions, created.overrides))
    return Decision(tuple(made), tuple(replies))


def add_partitions(terms: Terms, wishes: Sequence[MorePartitions]) -> Decision:
    making = _Making(terms)
    made: list[records.Record] = []
    replies: list[Reply] = []
    for wish in wishes:
        try:
            added = _grown(making, wish)
        except Refusal as refusal:
            replies.append(refusal)
            continue
        both = _with_companion(making.image, added)
        making.room -= len(added.partitions) * len(both)
        made += both
        replies.append(added)
    return Decision(tuple(made), tuple(replies))


def _created(making: _Making, wish: NewTopic) -> records.TopicCreated:
    name = check_topic_name(wish.name)
    if is_companion(name):
        raise Refusal(ErrorCode.INVALID_TOPIC_EXCEPTION, f"{COMPANION_PREFIX} begins the names of queues' ledgers: choose another name")
    if name in making.image.topics or name in making.taken:
        raise Refusal(ErrorCode.TOPIC_ALREADY_EXISTS, f"topic {name!r} already exists")
    if any(topic_id in making.image.graveyard for topic_id in (wish.topic_id, companion_id(wish.topic_id))):
        raise Refusal(ErrorCode.UNKNOWN_TOPIC_ID, f"topic {name!r} was made by this request, and has been deleted since")
    overrides = {**INTERNAL_OVERRIDES, **wish.overrides} if name in INTERNAL_TOPICS else dict(wish.overrides)
    config = making.terms.topic_defaults.with_overrides(overrides)
    check_together(name, config)
    placements = _placements(making, wish)
    check_partitions(name, config, len(placements))
    return records.TopicCreated(name, wish.topic_id, placements, overrides)


def _placements(making: _Making, wish: NewTopic) -> tuple[records.Placement, ...]:
    terms, logs = making.terms, 2 if wants_companion(wish.overrides) else 1
    if wish.assignments:
        if wish.partitions != -1 or wish.replication_factor != -1:
            raise Refusal(ErrorCode.INVALID_REQUEST, "give either replica assignments, or a number of partitions and replicas")
        assigned = as_assigned(wish.assignments, making.image.nodes)
        _check_room(making, len(assigned) * logs)
        return assigned
    partitions = terms.partitions_default if wish.partitions == -1 else wish.partitions
    if not 1 <= partitions <= terms.partitions_max:
        raise Refusal(ErrorCode.INVALID_PARTITIONS, f"a topic has 1 to {terms.partitions_max} partitions, not {partitions}")
    if wish.name in INTERNAL_TOPICS and wish.replication_factor == -1:
        return _placed_for_good(making, wish.name, partitions)
    replication_factor = terms.replication_default if wish.replication_factor == -1 else wish.replication_factor
    if replication_factor < 1:
        raise Refusal(ErrorCode.INVALID_REPLICATION_FACTOR, f"a topic needs at least one replica, not {replication_factor}")
    _check_up(making, wish.name, replication_factor)
    _check_room(making, partitions * logs)
    return making.placer.place(partitions, replication_factor)


def _placed_for_good(making: _Making, name: str, partitions: int) -> tuple[records.Placement, ...]:
    """Of one of the cluster's own topics: over nodes that are up where they are enough, over others too where they are not."""
    nodes = making.image.nodes
    wanted = making.terms.internal_replication.get(name, INTERNAL_REPLICATION)
    away = [node for node in sorted(nodes.values(), key=_number) if node.is_broker and node not in making.brokers]
    replication_factor = max(1, min(wanted, len(making.brokers) + len(away)))
    unknown = [voter for voter in making.terms.voters if voter not in nodes]
    if replication_factor < wanted and unknown:
        raise Refusal(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"topic {name!r} is to have {wanted} replicas, and node {unknown[0]}, which votes, has never been up: start it, or remove it "
            f"from the voters",
        )
    _check_up(making, name, min(replication_factor, max(1, len(making.brokers))))
    _check_room(making, partitions)
    return making.placer.place(partitions, replication_factor, [node.node_id for node in away])


def _check_room(making: _Making, partitions: int) -> None:
    if partitions > making.room:
        raise Refusal(
            ErrorCode.POLICY_VIOLATION,
            f"{partitions} more partitions would pass the bound of {making.terms.partitions_max} (setting partitions.max)",
        )


def _check_up(making: _Making, topic: str, replication_factor: int) -> None:
    up = len(making.brokers)
    if replication_factor <= up:
        return
    missing = [node for node in sorted(making.image.nodes.values(), key=_number) if node.is_broker and node not in making.brokers]
    names = ", ".join(str(node.node_id) for node in making.brokers) or "none"
    told = "; ".join([names, *(_absence(making.terms, node) for node in missing)])
    needs = f"{replication_factor} replica{'s' * (replication_factor != 1)}"
    remedies = [f"start node {missing[0].node_id}"] if missing and not missing[0].is_stopping else []
    remedies += [f"use a replication factor of {up}"] if up else []
    raise Refusal(
        ErrorCode.INVALID_REPLICATION_FACTOR,
        f"topic {topic!r} needs {needs} but only {up} node{'s are' if up != 1 else ' is'} up ({told}); "
        f"{', or '.join(remedies) or 'start a broker'}",
    )


def _absence(terms: Terms, node: NodeState) -> str:
    if node.is_stopping and not node.is_fenced:
        return f"node {node.node_id} is stopping"
    seconds = terms.seconds_since_heard(node.node_id)
    return f"node {node.node_id} is not up" if seconds is None else f"node {node.node_id} was last seen {seconds:.0f} s ago"


def _grown(making: _Making, wish: MorePartitions) -> records.PartitionsAdded:
    topic = making.image.topics.get(wish.topic)
    if topic is None:
        raise Refusal(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {wish.topic!r}")
    if making.image.data_of(topic.topic_id) is not None:
        raise not_directly(topic.name)
    first = len(topic.partitions)
    if wish.partitions <= first:
        raise Refusal(ErrorCode.INVALID_PARTITIONS, f"topic {wish.topic!r} has {first} partitions; {wish.partitions} would not be more")
    if making.terms.topic_defaults.with_known(topic.overrides).queue_fifo:
        reason = f"{wish.topic!r} is a FIFO queue: its groups would change their partitions, and overtake themselves; make another queue"
        raise Refusal(ErrorCode.INVALID_PARTITIONS, reason)
    _check_room(making, (wish.partitions - first) * len(making.image.together(topic)))
    replicas = len(topic.partitions[0].target)
    if wish.assignments is None:
        _check_up(making, topic.name, replicas)
        return records.PartitionsAdded(topic.topic_id, making.placer.place(wish.partitions - first, replicas))
    if [len(assigned) for assigned in wish.assignments] != [replicas] * (wish.partitions - first):
        raise Refusal(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            f"{wish.partitions - first} new partitions need as many assignments, each of {replicas} replicas as the topic's others",
        )
    return records.PartitionsAdded(topic.topic_id, as_assigned(list(enumerate(wish.assignments)), making.image.nodes))


def _with_companion(image: ClusterImage, added: records.PartitionsAdded) -> list[records.PartitionsAdded]:
    companion = image.companion_of(added.topic_id)
    return [added] if companion is None else [added, records.PartitionsAdded(companion.topic_id, added.partitions)]


def _number(node: NodeState) -> NodeId:
    return node.node_id
