"""Exchange: members of a share group have done what they hold, and take others, all in one decision.

All of it is decided side by side, before any of it is replayed. That comes to the same as one after the other where what is done makes
nothing else ready: every message is held by the one who says so, and no groups of messages are kept in order or apart. Only the room for
messages in flight is another then, and is reckoned with. Whatever is not so simple is not decided here: nothing happens to it.
"""

from collections.abc import Sequence

from penstock.queues.commands import COUNT_MAX, RANGE_MAX, WHO_BYTES_MAX, Exchange, Swap
from penstock.queues.draft import Draft
from penstock.queues.finishing import finish_runs
from penstock.queues.history import cut
from penstock.queues.records import Leased, Record
from penstock.queues.replies import Exchanged, Taken
from penstock.queues.taking import choose, deliveries


def exchange(draft: Draft, command: Exchange) -> tuple[list[Record], Exchanged]:
    swaps = command.swaps
    if not _is_simple(draft, swaps):
        return [], Exchanged((None,) * len(swaps))
    finished = [finish_runs(draft, swap.items) if swap.items else 0 for swap in swaps]
    are_decided = [done > 0 or not swap.items for done, swap in zip(finished, swaps, strict=True)]
    wanted = sum([swap.wanted for swap, is_decided in zip(swaps, are_decided, strict=True) if is_decided])
    if not wanted:
        return [], Exchanged((None,) * len(swaps))
    offsets, nothing = choose(draft, wanted, freed=sum(finished))
    records: list[Record] = [*draft.record()]
    taken: list[Taken | None] = []
    at = 0
    for swap, is_decided in zip(swaps, are_decided, strict=True):
        if is_decided and at < len(offsets):
            record = _leased(draft, swap, offsets[at : at + swap.wanted], at)
            records.append(record)
            taken.append(Taken(deliveries(draft, record)))
            at += swap.wanted
        else:
            taken.append(nothing if is_decided else None)
    return records, Exchanged(tuple(taken))


def _is_simple(draft: Draft, swaps: Sequence[Swap]) -> bool:
    """Within the bounds of a take and of a settlement, and each of another member: what one has done is not done a second time."""
    ready = draft.ledger.ready
    assert ready is not None
    if ready.is_grouped or min([swap.wanted for swap in swaps], default=0) < 1 or sum([swap.wanted for swap in swaps]) > COUNT_MAX:
        return False
    if len(swaps) > 1 and len({swap.who for swap in swaps}) < len(swaps):
        return False
    return sum([item.end_offset - item.offset for swap in swaps for item in swap.items]) <= RANGE_MAX


def _leased(draft: Draft, swap: Swap, offsets: list[int], at: int) -> Leased:
    """`at`: how many were given by this decision before."""
    ledger, wall_ms = draft.ledger, draft.wall_ms
    deadline_ms, lease, who = wall_ms + draft.policy.lease_ms, ledger.next_lease + at, cut(swap.who, WHO_BYTES_MAX)
    return Leased(ledger.group, wall_ms, deadline_ms, lease, who, b"", tuple(offsets))
