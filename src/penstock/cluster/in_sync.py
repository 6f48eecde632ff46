"""A leader asks for another in-sync set: who keeps up with it and who doesn't any more.

Each wish is taken or refused by itself. It names the partition epoch that it was thought up in, so that of two changes that cross each
other one loses (INVALID_UPDATE_VERSION), and for each member the node epoch that the leader knows: whoever has restarted since must catch
up first (KIP-903).
A wish for what holds already is taken too, as another partition epoch: so a leader learns that nothing it wished for before can still come.
Whoever is taken out of the set of a partition leaves that of its companion in the same decision, and the other way round.
A leader whose log has failed leaves itself out. Another one leads then, and of its copy nothing is expected until it has caught up.

A node whose copy lacks records that it had says so (`distrust`). It leaves the in-sync set and is not eligible, also when no other replica
is up, and a new leader epoch begins: no late report about the old copy counts for the one that replaces it. Only where no other replica
has every committed record does it stay, with what it has left; an operator must decide what becomes of such a partition.
A copy that has everything, though some of it cannot be read, stays where no other replica that is up could take over.
A node says in which leader epoch it knows its copy. Said of an earlier epoch it may come late, and be about a copy that was replaced since.
"""

from penstock.cluster.commands import ChangeInSync, DamagedCopy, DistrustCopies, InSyncWish
from penstock.cluster.deciding import Decision
from penstock.cluster.drafting import Draft
from penstock.cluster.image import PartitionState
from penstock.cluster.moving import Wish
from penstock.cluster.replies import Reply
from penstock.errors import ErrorCode, Refusal
from penstock.vocabulary import NodeId


def change_in_sync(draft: Draft, command: ChangeInSync) -> Decision:
    if (stale := _why_stale(draft, command.node_id, command.node_epoch)) is not None:
        return Decision((), tuple(stale for _ in command.wishes))
    replies: list[Reply] = []
    for wish in command.wishes:
        try:
            replies.append(_changed(draft, command.node_id, wish).as_change(wish.topic_id, wish.partition))
        except Refusal as refusal:
            replies.append(refusal)
    return Decision(tuple(draft.records()), tuple(replies))


def distrust(draft: Draft, command: DistrustCopies) -> Decision:
    if (stale := _why_stale(draft, command.node_id, command.node_epoch)) is not None:
        return Decision((), tuple(stale for _ in command.copies))
    replies: list[Reply] = []
    for copy in command.copies:
        try:
            replies.append(_distrusted(draft, command.node_id, copy).as_change(copy.topic_id, copy.partition))
        except Refusal as refusal:
            replies.append(refusal)
    return Decision(tuple(draft.records()), tuple(replies))


def _distrusted(draft: Draft, node_id: NodeId, copy: DamagedCopy) -> PartitionState:
    topic = draft.image.topics_by_id.get(copy.topic_id)
    if topic is None or not 0 <= copy.partition < len(topic.partitions):
        raise Refusal(ErrorCode.UNKNOWN_TOPIC_ID, "there is no such partition (any more)")
    state = draft.state(topic, copy.partition)
    if copy.leader_epoch < state.leader_epoch:
        raise Refusal(ErrorCode.FENCED_LEADER_EPOCH, f"the partition is in leader epoch {state.leader_epoch}, not {copy.leader_epoch}")
    have_everything = draft.have_everything(topic, copy.partition)
    others = tuple(node for node in state.in_sync if node != node_id)
    if have_everything == (node_id,):
        if not _could_lead(draft, state, copy.in_favour_of) or copy.in_favour_of == node_id:
            raise Refusal(ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE, "no other replica has every committed record")
        others = (copy.in_favour_of,)
    elif copy.has_everything and not any(_could_lead(draft, state, node) for node in have_everything if node != node_id):
        raise Refusal(ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE, "no other replica that has every committed record is up")
    return draft.move(topic, copy.partition, Wish(in_sync=others, distrusted=node_id, begins_epoch=True))


def _could_lead(draft: Draft, state: PartitionState, node_id: NodeId) -> bool:
    return node_id in state.replicas and node_id in draft.nodes and draft.nodes[node_id].is_live


def _why_stale(draft: Draft, node_id: NodeId, node_epoch: int) -> Refusal | None:
    node = draft.image.nodes.get(node_id)
    if node is None or node.node_epoch != node_epoch:
        return Refusal(ErrorCode.STALE_BROKER_EPOCH, f"node {node_id} is not registered in epoch {node_epoch}")
    return None


def _changed(draft: Draft, leader: NodeId, wish: InSyncWish) -> PartitionState:
    topic = draft.image.topics_by_id.get(wish.topic_id)
    if topic is None:
        raise Refusal(ErrorCode.UNKNOWN_TOPIC_ID, "there is no such topic (any more)")
    if not 0 <= wish.partition < len(topic.partitions):
        raise Refusal(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"topic {topic.name!r} has no partition {wish.partition}")
    state = draft.state(topic, wish.partition)
    _check_epochs(state, leader, wish)
    members = tuple(node for node, _ in wish.in_sync)
    if not members or len(set(members)) != len(members) or not set(members) <= set(state.replicas):
        raise Refusal(ErrorCode.INVALID_REQUEST, f"an in-sync set has replicas of the partition, each once: not {members}")
    for node_id, node_epoch in wish.in_sync:
        _check_member(draft, state, node_id, node_epoch)
    if leader in members:
        return draft.move(topic, wish.partition, Wish(in_sync=members, begins_version=True))
    if not any(node in draft.in_sync(topic, wish.partition) and draft.nodes[node].is_live for node in members):
        raise Refusal(ErrorCode.INELIGIBLE_REPLICA, f"node {leader} cannot be left out: no other member could lead")
    return draft.move(topic, wish.partition, Wish(in_sync=members, distrusted=leader))


def _check_epochs(state: PartitionState, leader: NodeId, wish: InSyncWish) -> None:
    if wish.leader_epoch > state.leader_epoch or wish.partition_epoch > state.partition_epoch:
        raise Refusal(ErrorCode.NOT_CONTROLLER, "the asker knows more than this controller does")
    if wish.leader_epoch < state.leader_epoch:
        raise Refusal(ErrorCode.FENCED_LEADER_EPOCH, f"node {state.leader} leads in epoch {state.leader_epoch}")
    if state.leader != leader:
        raise Refusal(ErrorCode.INVALID_REQUEST, f"node {state.leader} leads, not node {leader}")
    if wish.partition_epoch < state.partition_epoch:
        reason = f"the partition has changed since: it is in partition epoch {state.partition_epoch}, not {wish.partition_epoch}"
        raise Refusal(ErrorCode.INVALID_UPDATE_VERSION, reason)


def _check_member(draft: Draft, state: PartitionState, node_id: NodeId, node_epoch: int) -> None:
    node = draft.nodes.get(node_id)
    if node is None or not node.is_broker:
        raise Refusal(ErrorCode.INELIGIBLE_REPLICA, f"node {node_id} is no broker of this cluster")
    if node.node_epoch != node_epoch:
        raise Refusal(ErrorCode.INELIGIBLE_REPLICA, f"node {node_id} has restarted: it is in epoch {node.node_epoch}, not {node_epoch}")
    if node.is_fenced:  # Also a leader that has just come up and is not let in yet.
        raise Refusal(ErrorCode.INELIGIBLE_REPLICA, f"node {node_id} is fenced")
    if node.is_stopping and node_id not in state.in_sync:
        raise Refusal(ErrorCode.INELIGIBLE_REPLICA, f"node {node_id} is stopping")
