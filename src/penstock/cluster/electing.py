"""Elections: those that an operator asks for, and those that the cluster owes itself.

Preferred: the first replica leads again, if it is in sync. Unclean: a partition without a leader gets one that may lack acknowledged
records, because an operator says so; the answer says who was passed over. If somebody who has everything is up, that one is elected.
Settling: a leader where one can be found again, the end of reassignments that can end, no eligible replicas where there should be none.
"""

from collections.abc import Iterator

from penstock.cluster.commands import ElectionKind, ElectLeaders
from penstock.cluster.companions import not_directly
from penstock.cluster.deciding import Decision
from penstock.cluster.drafting import Draft
from penstock.cluster.image import ClusterImage, PartitionState, Topic
from penstock.cluster.moving import AS_IT_IS, Wish
from penstock.cluster.replies import LeaderElected, NotElected, Settled
from penstock.errors import ErrorCode
from penstock.vocabulary import NO_NODE, NodeId

CHANGES_MAX = 5_000  # In one decision that is not pressing: others wait for it.

Election = LeaderElected | NotElected


def elect(draft: Draft, command: ElectLeaders) -> Decision:
    one = _elect_preferred if command.kind is ElectionKind.PREFERRED else _elect_uncleanly
    if command.partitions is not None:
        replies = [_elect_named(draft, name, index, command.kind) for name, index in command.partitions]
        return Decision(tuple(draft.records()), tuple(replies))
    moved: list[Election] = []
    for topic, index, _ in draft.image.each_partition():
        if len(draft) >= CHANGES_MAX:
            break
        if draft.image.data_of(topic.topic_id) is not None:
            continue  # It goes with its data.
        outcome = one(draft, topic, index)
        if isinstance(outcome, LeaderElected) or outcome.code is not ErrorCode.ELECTION_NOT_NEEDED:
            moved.append(outcome)
    return Decision(tuple(draft.records()), tuple(moved))


def _elect_named(draft: Draft, name: str, index: int, kind: ElectionKind) -> Election:
    topic = draft.image.topics.get(name)
    if topic is None or not 0 <= index < len(topic.partitions):
        return NotElected(name, index, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no partition {index} of a topic {name!r}")
    if draft.image.data_of(topic.topic_id) is not None:
        return NotElected(name, index, ErrorCode.INVALID_TOPIC_EXCEPTION, not_directly(name).reason)
    return (_elect_preferred if kind is ElectionKind.PREFERRED else _elect_uncleanly)(draft, topic, index)


def _elect_preferred(draft: Draft, topic: Topic, index: int) -> Election:
    state = draft.state(topic, index)
    preferred = state.target[0]
    if state.leader == preferred:
        return NotElected(topic.name, index, ErrorCode.ELECTION_NOT_NEEDED, f"node {preferred} leads already")
    may_lead = may_be_preferred(draft.image, preferred, draft.in_sync(topic, index))
    after = draft.move(topic, index, Wish(leader=preferred)) if may_lead else state
    if after.leader != preferred:
        reason = f"node {preferred} is the preferred leader, but is not in sync, not up, stopping, or has a full disk"
        return NotElected(topic.name, index, ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE, reason)
    return LeaderElected(topic.name, index, after.leader, after.leader_epoch)


def may_be_preferred(image: ClusterImage, preferred: NodeId, in_sync: tuple[NodeId, ...]) -> bool:
    node = image.nodes.get(preferred)
    return preferred in in_sync and node is not None and node.may_take_more


def _elect_uncleanly(draft: Draft, topic: Topic, index: int) -> Election:
    before = draft.state(topic, index)
    live = [node.node_id for node in draft.nodes.values() if node.is_live]
    if before.leader in live:
        return NotElected(topic.name, index, ErrorCode.ELECTION_NOT_NEEDED, f"node {before.leader} leads")
    have_everything = draft.have_everything(topic, index)
    up = tuple(node for node in before.in_sync if node in live)
    if not any(node in live for node in before.replicas):
        names = ", ".join(map(str, before.replicas))
        return NotElected(topic.name, index, ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE, f"none of its replicas is up ({names})")
    after = draft.move(topic, index, Wish(in_sync=up), is_unclean_ordered=True)
    if after.leader in have_everything:
        return LeaderElected(topic.name, index, after.leader, after.leader_epoch)
    words = _in_words(after.leader, have_everything, before.leader if before.leader != NO_NODE else before.last_leader)
    return LeaderElected(topic.name, index, after.leader, after.leader_epoch, have_everything, words)


def _in_words(leader: NodeId, passed_over: tuple[NodeId, ...], last_leader: NodeId) -> str:
    if passed_over:
        names = " and ".join(map(str, passed_over))
        return f"node {leader} leads with what it has; acknowledged records that only node {names} had are lost"
    led = f"; node {last_leader} led last" if last_leader != NO_NODE else ""
    return f"node {leader} leads with what it has; no replica was known to have every acknowledged record{led}"


def settle(draft: Draft) -> Decision:
    is_done = True
    for topic, index, _ in _unsettled(draft.image):
        if len(draft) >= CHANGES_MAX:
            is_done = False
            break
        draft.move(topic, index, AS_IT_IS)
    return Decision(tuple(draft.records()), (Settled(len(draft), is_done),))


def _unsettled(image: ClusterImage) -> Iterator[tuple[Topic, int, PartitionState]]:
    for topic_id, index in image.unsettled:
        topic = image.topics_by_id[topic_id]
        yield topic, index, topic.partitions[index]


def to_be_given_back(image: ClusterImage) -> tuple[tuple[str, int], ...]:
    """Partitions whose first replica could lead and does not."""
    found = [
        (topic.name, index)
        for topic, index, state in image.each_partition()
        if state.leader not in (NO_NODE, state.target[0])
        and image.data_of(topic.topic_id) is None
        and may_be_preferred(image, state.target[0], image.in_sync(topic, index))
    ]
    return tuple(found[:CHANGES_MAX])
