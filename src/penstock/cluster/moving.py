"""What becomes of one partition: the rules by which its in-sync set, its eligible replicas and its leader change. One state to the next.

1. A leader comes from the in-sync set. Only where nobody there is up, from the eligible. Never a fenced one; one whose disk is nearly full
   only where all others' are, or are stopping; one that is stopping only where no other is left. Anyone else only where an unclean election
   is allowed, and then what others had is gone.
2. Whoever leaves the in-sync set while it falls below the effective min.insync.replicas stays eligible: nothing is committed below it, so
   whoever left has all that was (KIP-966). So does who leaves while nobody leads, or while all members of the set have only just come up:
   they may find their copies damaged, and a leader commits nothing while it sees eligible replicas. Otherwise records are committed
   without those who left, so nobody is eligible.
3. Every change raises the partition epoch; a change of leader raises the leader epoch, too, and so does a replica that leaves: if it comes
   back its copy is another one, for which no late report of the first may count. A leader takes no report of an earlier epoch.
4. A reassignment ends when all that are being added are in sync and enough of those that stay are; who is removed leaves then.
5. A partition of a queue and the one that has its ledger are one thing with two logs (`companions.py`): they have the same replicas and the
   same leader, who must have everything of both. So they move together, and each rule above is asked of both; most move alone.

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
        return node is not None and node.may_take_more

    def stays(self, node_id: NodeId) -> bool:
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


def moved(states: Sequence[PartitionState], wishes: Sequence[Wish], now: Circumstances) -> tuple[PartitionState, ...]:
    """Partitions that have one leader, as they will be; the very same state where nothing changes. The first one's data matter most."""
    drafts = _finished_if_they_can_be(list(map(_assigned, states, wishes)), now)
    others = list(map(_others, states, drafts, wishes))
    leader = _chosen(drafts, others, wishes[0].leader, now)
    return tuple([_led(leader, now, *each) for each in zip(states, drafts, others, wishes, strict=True)])


def mirrored(wish: Wish, asked: PartitionState, other: PartitionState) -> Wish:
    """What a wish for `asked` means for the one that moves with it: whoever leaves one in-sync set leaves both, but may join one first."""
    if wish.in_sync is None:
        return wish._replace(begins_version=False)
    leaving = [wish.distrusted, *(node for node in asked.in_sync if node not in wish.in_sync)]
    return wish._replace(in_sync=[node for node in other.in_sync if node not in leaving], begins_version=False)


def in_sync_in_all(states: Sequence[PartitionState]) -> tuple[NodeId, ...]:
    """Who may lead these, while it is up."""
    if len(states) == 1:
        return states[0].in_sync
    return tuple([node for node in states[0].in_sync if all(node in state.in_sync for state in states)])


def has_everything_of_all(node: NodeId, states: Sequence[PartitionState]) -> bool:
    return all(node in state.in_sync or node in state.eligible for state in states)


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


def _finished_if_they_can_be(drafts: list[PartitionState], now: Circumstances) -> list[PartitionState]:
    if not drafts[0].is_reassigning or not all(node in draft.in_sync for draft in drafts for node in draft.adding):
        return drafts
    target = drafts[0].target
    finished = [draft._replace(replicas=target, in_sync=_within(target, draft.in_sync), adding=(), removing=()) for draft in drafts]
    if not any(now.is_live(node) for node in in_sync_in_all(finished)):
        return drafts
    least = effective_min(now.min_insync, target)
    return drafts if any(len(draft.in_sync) < least for draft in finished) else finished


def _others(state: PartitionState, draft: PartitionState, wish: Wish) -> tuple[NodeId, ...]:
    """Who has everything, though out of the in-sync set."""
    return _within(draft.replicas, state.eligible + state.in_sync, but=(*draft.in_sync, wish.distrusted))


def _chosen(drafts: list[PartitionState], others: list[tuple[NodeId, ...]], wanted: NodeId | None, now: Circumstances) -> NodeId:
    """In the order of preference: who may, of those who have everything."""
    first, in_all = drafts[0], in_sync_in_all(drafts)
    in_sync = [node for node in (wanted, first.leader, *first.replicas) if node is not None and node in in_all]
    if (found := _best(in_sync, now)) is not None:
        return found
    have_everything = [draft.in_sync + eligible for draft, eligible in zip(drafts, others, strict=True)]
    if (found := _best([node for node in have_everything[0] if all(node in have for have in have_everything)], now)) is not None:
        return found
    if in_all == (first.leader,):
        return first.leader  # It has just come up again, fenced until it has caught up, and nobody else could take its place.
    if now.is_unclean_allowed:
        return _uncleanly_chosen(first, have_everything, now)
    return NO_NODE


def _uncleanly_chosen(draft: PartitionState, have_everything: list[tuple[NodeId, ...]], now: Circumstances) -> NodeId:
    """Who has everything of one loses nothing there; else who led last may have lost the least. Who is only being added, or got another
    disk, may have nothing at all."""
    live = [node for node in (draft.last_leader, *draft.replicas) if now.is_live(node)]
    for have in have_everything:
        if (found := _first(live, have.__contains__)) is not None:
            return found
    return next((node for node in live if now.has_old_disk(node) and node not in draft.adding), live[0] if live else NO_NODE)


def _led(  # noqa: PLR0917 - one of each, by the partition
    leader: NodeId, now: Circumstances, state: PartitionState, draft: PartitionState, others: tuple[NodeId, ...], wish: Wish
) -> PartitionState:  # fmt: skip
    """The partition with this leader, who has everything of it unless the election is unclean."""
    replicas, in_sync = draft.replicas, draft.in_sync
    if leader != NO_NODE and leader not in in_sync:
        is_clean = leader in others
        in_sync = (leader,)
        others = _within(replicas, state.eligible + state.in_sync, but=(leader, wish.distrusted)) if is_clean else ()
    commits = leader != NO_NODE and len(in_sync) >= effective_min(now.min_insync, replicas) and any(map(now.is_live, in_sync))
    eligible = () if commits else others
    begins_epoch = wish.begins_epoch or leader != state.leader or not set(state.replicas) <= set(replicas)
    leader_epoch = LeaderEpoch(state.leader_epoch + 1) if begins_epoch else state.leader_epoch
    after = PartitionState(
        replicas, in_sync, leader, leader_epoch, state.partition_epoch, eligible, draft.adding, draft.removing,
        _last_leader(state, leader, wish),
    )  # fmt: skip
    return state if after == state and not wish.begins_version else after._replace(partition_epoch=state.partition_epoch + 1)


def _last_leader(state: PartitionState, leader: NodeId, wish: Wish) -> NodeId:
    if leader != NO_NODE:
        return NO_NODE
    last = state.leader if state.leader != NO_NODE else state.last_leader
    return NO_NODE if last == wish.distrusted else last


def _within(replicas: Sequence[NodeId], nodes: Sequence[NodeId], but: Sequence[NodeId | None] = ()) -> tuple[NodeId, ...]:
    return tuple([node for node in nodes if node in replicas and node not in but])


def _best(nodes: Sequence[NodeId], now: Circumstances) -> NodeId | None:
    """The best that is up. A full disk may at least be read from; a node that is stopping is gone in a moment."""
    for is_good in (now.may_lead, now.stays, now.is_live):
        if (found := _first(nodes, is_good)) is not None:
            return found
    return None


def _first(nodes: Sequence[NodeId], is_good: Callable[[NodeId], bool]) -> NodeId | None:
    return next((node for node in nodes if is_good(node)), None)
