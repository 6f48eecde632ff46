"""What the passing of time causes: open transactions are aborted when their time-out is over, and ids that nobody uses are forgotten.

A time-out runs from the first partition. It is measured by the clock that never jumps; a coordinator that has just been loaded takes from
the wall clock how much of it is left, but never more than all of it. An abort that could not be recorded is tried again.
"""

from collections.abc import Iterator
from itertools import islice

from penstock.transactions.bounds import ABORTS_PER_LAPSE, IDS_PER_SLICE, PARTITIONS_MAX
from penstock.transactions.draft import Draft
from penstock.transactions.ending import abort_and_fence
from penstock.transactions.image import TransactionsImage
from penstock.transactions.records import Record, TransactionForgotten, TransactionSaved
from penstock.transactions.states import TransactionState
from penstock.vocabulary import Instant


def abort_overdue(image: TransactionsImage, draft: Draft) -> None:
    sessions, partitions = draft.sessions, 0
    for _ in range(ABORTS_PER_LAPSE):
        transactional_id = sessions.alarms.ring(draft.now) if partitions < PARTITIONS_MAX else None
        if transactional_id is None:
            return
        saved = image.saved.get(transactional_id)
        if saved is None or saved.state is not TransactionState.ONGOING:
            sessions.deadlines.pop(transactional_id, None)  # Its first partition could not be recorded.
            continue
        deadline = sessions.deadlines.get(transactional_id)
        if deadline is None:
            deadline = sessions.deadlines[transactional_id] = _by_wall_clock(saved, draft)
        if deadline <= draft.now:
            abort_and_fence(saved, draft)
            partitions += len(saved.partitions)
            deadline = draft.after(draft.settings.abort_again_ms)
        sessions.alarms.set_by(transactional_id, deadline)


def _by_wall_clock(saved: TransactionSaved, draft: Draft) -> Instant:
    left_ms = saved.started_ms + saved.timeout_ms - draft.wall_ms
    return draft.after(min(max(left_ms, 0), saved.timeout_ms))


class Sweep:
    """One look at all ids, in slices."""

    def __init__(self, image: TransactionsImage, expiration_ms: int) -> None:
        self._image = image
        self._expiration_ms = expiration_ms
        self._ids: Iterator[str] = iter(list(image.saved))
        self.is_over = False

    def slice(self, wall_ms: int) -> list[Record]:
        """What the next piece of the sweep finds too old."""
        ids = list(islice(self._ids, IDS_PER_SLICE))
        self.is_over = len(ids) < IDS_PER_SLICE
        found = (self._image.saved.get(transactional_id) for transactional_id in ids)
        return [TransactionForgotten(saved.transactional_id) for saved in found if saved is not None and self._is_too_old(saved, wall_ms)]

    def _is_too_old(self, saved: TransactionSaved, wall_ms: int) -> bool:
        is_open = saved.state is TransactionState.ONGOING or saved.state.is_ending
        return not is_open and saved.updated_ms <= wall_ms - self._expiration_ms
