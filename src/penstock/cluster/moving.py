"""What becomes of one partition: the rules by which its in-sync set, its eligible replicas and its leader change. One state to the next.

1. A leader comes from the in-sync set. Only where nobody there is up, from the eligible. Never a fenced one; one that is stopping only
   where no other is left. Anyone else only where an unclean election is allowed, and then what others had is gone.
2. Whoever leaves the in-sync set while it falls below the effective min.insync.replicas stays eligible: nothing is committed below it, so
   whoever left has all that was (KIP-966). At or above it records are committed without those who left, so nobody is eligible.
3. Every change of leader raises the leader epoch, every change the partition epoch.
4. A reassignment ends when all that are being added are in sync and enough of those that stay are; who is removed leaves then.

A replica whose copy cannot be trusted (a wiped disk, a failed log) is named in `distrusted` and is not eligible, whatever it was.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from penstock.cluster.image import NodeState, PartitionState
from penstock.vocabulary import NO_NODE, LeaderEpoch, NodeId


class Circumstances(NamedTuple):
    """What a move depends on beside the partition."""

    nodes: Mapping[NodeId, NodeState]
    min_insync: int  # As the topic says; in effect never more than there are replicas.
    is_unclean_allowed: bool = False

    def is_live(self, node_id: NodeId) -> bool:
        node = self.nodes.get(node_id)
        return node is not None and node.is_live

    def may_lead(self, node_id: NodeId) -> bool:
        node = self.nodes.get(node_id)
        return node is not None and node.is_live and not node.is_stopping

    def has_old_disk(self, node_id: NodeId) -> bool:
        node = self.nodes.get(node_id)
        return node is not None and not node.has_new_disk


class Wish(NamedTuple):
    """What is asked of the partition. None: as it is."""

    in_sync: Sequence[NodeId] | None = None
    replicas: tuple[NodeId, ...] | None = None
    adding: tuple[NodeId, ...] | None = None
    removing: tuple[NodeId, ...] | None = None
    leader: NodeId | None = None  # Preferred over the one that leads, if it may.
    distrusted: NodeId | None = None
    begins_epoch: bool = False  # Though the leader stays.
    begins_version: bool = False  # Though nothing else changes.


AS_IT_IS = Wish()


def moved(state: PartitionState, wish: Wish, now: Circumstances) -> PartitionState:
    """The partition as it will be; the very same state where nothing changes."""
    draft = _finished_if_it_can_be(_assigned(state, wish), now)
    replicas, in_sync = draft.replicas, draft.in_sync
    have_everything = state.eligible + state.in_sync
    others = _within(replicas, have_everything, but=(*in_sync, wish.distrusted))
    leader = _chosen(draft, others, wish.leader, now)
    if leader != NO_NODE and leader not in in_sync:
        is_clean = leader in others
        in_sync = (leader,)
        others = _within(replicas, have_everything, but=(leader, wish.distrusted)) if is_clean else ()
    eligible = others if len(in_sync) < effective_min(now.min_insync, replicas) else ()
    leader_epoch = LeaderEpoch(state.leader_epoch + 1) if leader != state.leader or wish.begins_epoch else state.leader_epoch
    last_leader = _last_leader(state, leader, wish)
    after = PartitionState(
        replicas, in_sync, leader, leader_epoch, state.partition_epoch, eligible, draft.adding, draft.removing, last_leader
    )  # fmt: skip
    return state if after == state and not wish.begins_version else after._replace(partition_epoch=state.partition_epoch + 1)


def effective_min(min_insync: int, replicas: Sequence[NodeId]) -> int:
    return min(min_insync, len(replicas))


def _assigned(state: PartitionState, wish: Wish) -> PartitionState:
    replicas = state.replicas if wish.replicas is None else wish.replicas
    return state._replace(
        replicas=replicas,
        in_sync=_within(replicas, state.in_sync if wish.in_sync is None else wish.in_sync),
        adding=state.adding if wish.adding is None else wish.adding,
        removing=state.removing if wish.removing is None else wish.removing,
    )


def _finished_if_it_can_be(draft: PartitionState, now: Circumstances) -> PartitionState:
    if not draft.is_reassigning or not all(node in draft.in_sync for node in draft.adding):
        return draft
    target = draft.target
    staying = _within(target, draft.in_sync)
    if not any(now.is_live(node) for node in staying) or len(staying) < effective_min(now.min_insync, target):
        return draft
    return draft._replace(replicas=target, in_sync=staying, adding=(), removing=())


def _chosen(draft: PartitionState, eligible: Sequence[NodeId], wanted: NodeId | None, now: Circumstances) -> NodeId:
    """In the order of preference: who may, of those who have everything."""
    first = [node for node in (wanted, draft.leader) if node is not None]
    in_sync = [*(node for node in first if node in draft.in_sync), *(node for node in draft.replicas if node in draft.in_sync)]
    for candidates in (in_sync, eligible):
        for is_good in (now.may_lead, now.is_live):
            if (found := _first(candidates, is_good)) is not None:
                return found
    if draft.in_sync == (draft.leader,):
        return draft.leader  # It has just come up again, fenced until it has caught up, and nobody else could take its place.
    if now.is_unclean_allowed:
        return _uncleanly_chosen(draft, now)
    return NO_NODE


def _uncleanly_chosen(draft: PartitionState, now: Circumstances) -> NodeId:
    """Who led last may have lost the least; who is only being added, or got another disk, may have nothing at all."""
    live = [node for node in (draft.last_leader, *draft.replicas) if now.is_live(node)]
    return next((node for node in live if now.has_old_disk(node) and node not in draft.adding), live[0] if live else NO_NODE)


def _last_leader(state: PartitionState, leader: NodeId, wish: Wish) -> NodeId:
    if leader != NO_NODE:
        return NO_NODE
    last = state.leader if state.leader != NO_NODE else state.last_leader
    return NO_NODE if last == wish.distrusted else last


def _within(replicas: Sequence[NodeId], nodes: Sequence[NodeId], but: Sequence[NodeId | None] = ()) -> tuple[NodeId, ...]:
    return tuple([node for node in nodes if node in replicas and node not in but])


def _first(nodes: Sequence[NodeId], is_good: Callable[[NodeId], bool]) -> NodeId | None:
    return next((node for node in nodes if is_good(node)), None)
