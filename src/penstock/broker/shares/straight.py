"""The usual share fetch: of one partition, accepting all that it speaks of, or saying nothing. One decision, and no task that waits for it.

What is not of this kind is told before anything is done, and is for the handler's general way. So is waiting, where there was nothing.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING

from penstock.broker.queues.leading import QueuePartition
from penstock.broker.shares.acknowledging import ACCEPTED, check, settlements
from penstock.broker.shares.acquiring import likely_part
from penstock.broker.shares.sessions import CLOSES, ShareSession
from penstock.errors import ErrorCode, Refusal
from penstock.queues.commands import ANY_LEASE, COUNT_MAX, QUEUE_GROUP, RANGE_MAX, Settlement, Swap, Verb
from penstock.queues.replies import Taken
from penstock.wire.share_requests import SharedPartition, ShareFetchRequest

if TYPE_CHECKING:
    from penstock.broker.shares.shares import Shares

_new_tuple = tuple.__new__  # Half the cost of calling a named tuple's class.

Told = Callable[[Taken | Refusal | None], None]


class Straight:
    """`told` hears, when all is durable, what was taken; or why nothing was done; or, as None, that it is of another kind after all, and
    nothing was done."""

    __slots__ = ("_items", "_told", "queue", "row", "session")

    def __init__(self, queue: QueuePartition, session: ShareSession, row: SharedPartition | None, items: tuple[Settlement, ...]) -> None:
        self.queue = queue
        self.session = session
        self.row = row  # What it acknowledges, if anything.
        self._items = items

    @classmethod
    def of(cls, shares: "Shares", request: ShareFetchRequest, session: ShareSession) -> "Straight | None":
        """None: it is of another kind."""
        if len(session.places) != 1 or len(request.partitions) > 1 or request.session_epoch == CLOSES or request.renews:
            return None
        if session.refused:  # It is to be left alone.
            return None
        if session.group == QUEUE_GROUP:  # Its queue may be paused, or keep groups of messages in order.
            return None
        (place,) = session.places
        row = request.partitions[0] if request.partitions and request.partitions[0].acknowledged else None
        if row is not None and (row[0], row[1]) != place:
            return None
        queue = shares.find(*place)
        if queue is None or queue.data.leader is None or not queue.state.has(session.group) or queue.waiting(session.group):
            return None
        items = () if row is None else _accepted(row, session.who)
        return None if items is None else cls(queue, session, row, items)

    def begin(self, count: int, bytes_max: int, told: Told) -> None:
        """Decides, together with others who come now."""
        self._told = told
        session, count = self.session, likely_part(self.queue, count, bytes_max)
        self.queue.exchanges.add(session.group, Swap(self._items, count, session.who), self)

    def exchanged(self, taken: Taken | None) -> None:
        self._told(taken)

    def refused(self, code: ErrorCode, reason: str) -> None:
        self._told(Refusal(code, reason))


def _accepted(row: SharedPartition, who: str) -> tuple[Settlement, ...] | None:
    """None: it says something else of some records."""
    first, last, types = row.acknowledged[0]
    if len(row.acknowledged) == 1 and types == ACCEPTED and 0 <= first <= last < first + RANGE_MAX:  # Nearly always.
        return (_new_tuple(Settlement, (first, ANY_LEASE, Verb.DONE, 0, "", who, last + 1)),)
    try:
        check(row.acknowledged, renews=False)
    except Refusal:
        return None
    if any([types.strip(ACCEPTED) for _, _, types in row.acknowledged]):
        return None
    items = settlements(row.acknowledged, who, 0)
    return tuple(items) if len(items) <= COUNT_MAX else None
