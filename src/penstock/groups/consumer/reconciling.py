"""How one member gets from what it has to what it shall have: the member's state table of KIP-848.

| state | goes on when | to |
|---|---|---|
| Stable | the target is of another epoch, or the member reads less than the target gives it | the next assignment |
| Unrevoked | the member no longer names what it was told to give up | the next assignment, one epoch on |
| Unreleased | always: others may have let go meanwhile | the next assignment |

The next assignment: whatever the member has and shall not have is taken away first, and its epoch stands still until it says that it is
gone. Then it gets what is free of what it shall have, and the epoch of the target; if others still have some of it, it waits for them.
So a partition is handed on only after the one who had it has let go of it, and what does not move is never touched.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import assert_never

from penstock.groups.consumer.partitions import NOTHING, Partitions, common, each, gathered, joined, overlap, without
from penstock.groups.consumer.records import CurrentAssigned, MemberState
from penstock.vocabulary import TopicId

IsFree = Callable[[TopicId, int], bool]


def reconciled(
    current: CurrentAssigned, target_epoch: int, target: Partitions, owned: Partitions | None, is_free: IsFree, *, reads_less: bool = False
) -> CurrentAssigned:
    """What the member has next. `owned` is what it says to have; None: it doesn't say, so nothing is known to be given up."""
    match current.state:
        case MemberState.STABLE:
            if current.epoch == target_epoch and not reads_less:
                return current
            return _next(current, target_epoch, target, owned, is_free)
        case MemberState.UNREVOKED:
            if _may_have(owned, current.revoking):
                return current
            return _next(current, target_epoch, target, owned, is_free, epochs=1)
        case MemberState.UNRELEASED:
            return _next(current, target_epoch, target, owned, is_free)
        case _:
            assert_never(current.state)


def _next(
    current: CurrentAssigned, target_epoch: int, target: Partitions, owned: Partitions | None, is_free: IsFree, *, epochs: int = 0
) -> CurrentAssigned:
    kept = common(current.assigned, target)
    revoking = without(current.assigned, kept)
    if revoking and _may_have(owned, revoking):
        return _at(current, current.epoch + epochs, state=MemberState.UNREVOKED, assigned=kept, revoking=revoking)
    wanted = without(target, kept)
    free = gathered((topic_id, (number,)) for topic_id, number in each(wanted) if is_free(topic_id, number))
    state = MemberState.STABLE if free == wanted else MemberState.UNRELEASED
    return _at(current, target_epoch, state=state, assigned=joined(kept, free), revoking=NOTHING)


def _at(current: CurrentAssigned, epoch: int, *, state: MemberState, assigned: Partitions, revoking: Partitions) -> CurrentAssigned:
    previous_epoch = current.previous_epoch if epoch == current.epoch else current.epoch
    return replace(current, epoch=epoch, previous_epoch=previous_epoch, state=state, assigned=assigned, revoking=revoking)


def _may_have(owned: Partitions | None, revoking: Partitions) -> bool:
    return owned is None or overlap(owned, revoking)
