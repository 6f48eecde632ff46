"""Partitions move to other nodes: the new replicas are added, catch up, and when all of them are in sync the old ones leave.

While it is under way the replicas are those to be, in the order asked for, then those to leave: should it be given up, nothing was lost.
A wish replaces the one under way. Without replicas it gives that one up: what was being added leaves, whether it leads or not.
"""

from collections.abc import Sequence

from penstock.cluster.commands import Reassignment, ReassignPartitions
from penstock.cluster.companions import not_directly
from penstock.cluster.deciding import Decision
from penstock.cluster.drafting import Draft
from penstock.cluster.image import PartitionState, Topic
from penstock.cluster.moving import Wish
from penstock.cluster.replies import Reply
from penstock.errors import ErrorCode, Refusal
from penstock.vocabulary import NodeId


def reassign(draft: Draft, command: ReassignPartitions) -> Decision:
    replies: list[Reply] = []
    for wish in command.wishes:
        try:
            topic = _topic_of(draft, wish)
            if wish.replicas is None:
                after = _given_up(draft, topic, wish.partition)
            else:
                after = _begun(draft, topic, wish.partition, wish.replicas)
            replies.append(after.as_change(topic.topic_id, wish.partition))
        except Refusal as refusal:
            replies.append(refusal)
    return Decision(tuple(draft.records()), tuple(replies))


def _topic_of(draft: Draft, wish: Reassignment) -> Topic:
    topic = draft.image.topics.get(wish.topic)
    if topic is None or not 0 <= wish.partition < len(topic.partitions):
        raise Refusal(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no partition {wish.partition} of a topic {wish.topic!r}")
    if draft.image.data_of(topic.topic_id) is not None:
        raise not_directly(topic.name)
    return topic


def _begun(draft: Draft, topic: Topic, index: int, replicas: Sequence[NodeId]) -> PartitionState:
    state = draft.state(topic, index)
    _check_replicas(draft, state, replicas)
    leaving = tuple(node for node in state.replicas if node not in replicas and node not in state.adding)
    if not any(node in (*replicas, *leaving) for node in draft.have_everything(topic, index)):
        leaving = tuple(node for node in state.replicas if node not in replicas)  # Only who was being added has everything by now.
    joining = tuple(node for node in replicas if node not in state.replicas or node in state.adding)
    return draft.move(topic, index, Wish(replicas=(*replicas, *leaving), adding=joining, removing=leaving))


def _check_replicas(draft: Draft, state: PartitionState, replicas: Sequence[NodeId]) -> None:
    if not replicas or len(set(replicas)) != len(replicas):
        raise Refusal(ErrorCode.INVALID_REPLICA_ASSIGNMENT, "a partition needs replicas, each node once")
    for node_id in replicas:
        node = draft.nodes.get(node_id)
        if node is None or not node.is_broker:
            raise Refusal(ErrorCode.INVALID_REPLICA_ASSIGNMENT, f"node {node_id} is no broker of this cluster")
        if node_id not in state.replicas and (node.is_fenced or node.is_stopping):
            raise Refusal(ErrorCode.INVALID_REPLICA_ASSIGNMENT, f"node {node_id} is not up, so it could not catch up: start it first")
        if node_id not in state.replicas and node.is_disk_full and (better := _with_room(draft, (*replicas, *state.replicas))) is not None:
            reason = f"the disk of node {node_id} is nearly full: make space on it, or take another node, node {better} for one"
            raise Refusal(ErrorCode.INVALID_REPLICA_ASSIGNMENT, reason)


def _with_room(draft: Draft, taken: Sequence[NodeId]) -> NodeId | None:
    """A node that could take a replica in place of one whose disk is full."""
    return next((node_id for node_id in sorted(draft.nodes) if draft.nodes[node_id].may_take_more and node_id not in taken), None)


def _given_up(draft: Draft, topic: Topic, index: int) -> PartitionState:
    state = draft.state(topic, index)
    if not state.is_reassigning:
        raise Refusal(ErrorCode.NO_REASSIGNMENT_IN_PROGRESS, f"{topic.name}-{index} is not being reassigned")
    back = tuple(node for node in state.replicas if node not in state.adding)
    if not back or not any(node in back for node in draft.have_everything(topic, index)):
        reason = f"of the replicas that {topic.name}-{index} had before, none has everything now: let it be finished, or reassign it anew"
        raise Refusal(ErrorCode.INVALID_REPLICA_ASSIGNMENT, reason)
    return draft.move(topic, index, Wish(replicas=back, adding=(), removing=()))
