"""Records taken for a member of a share group: leases of whole runs, and the batches that hold them.

What is ready at several partitions is taken from all of them at once, a fair part from each; where nothing is, the member stands in line at
all of them, and the first that has something serves it. Never more records are taken than were asked for, which suits both of Kafka's
acquire modes. What then does not fit into the reply, or was being taken for one who is gone, is given back, which is no failure.
"""

import asyncio
from collections.abc import Sequence
from typing import NamedTuple

from penstock.broker.askers import Nobody
from penstock.broker.queues.calls import QueueRefusal
from penstock.broker.queues.leading import QueuePartition
from penstock.broker.queues.lines import Served, Waiter, Wish
from penstock.broker.queues.refusals import NotHere
from penstock.broker.shares.batches import Found, batches_at_hand, likely_count, read_batches
from penstock.queues.commands import COUNT_MAX, Settle, Settlement, Verb
from penstock.queues.replies import Delivery, Taken
from penstock.vocabulary import Buffer
from penstock.wire.share_responses import Acquired

DELIVERY_COUNT_MAX = 2**15 - 1


class Lot(NamedTuple):
    """What one partition gives."""

    queue: QueuePartition
    records: list[Buffer]
    acquired: list[Acquired]
    size: int


class Taking:
    """Decided, where something was ready; `lots` waits for the rest."""

    def __init__(
        self,
        queues: Sequence[QueuePartition],
        group: str,
        who: str,
        *,
        count: int,
        bytes_max: int,
        wait_s: float,
        taken: Taken | None = None,
    ) -> None:
        """`taken`: what was taken a moment ago, if only nothing, of the only one of them."""
        self._group = group
        self._bytes_max = bytes_max
        queues = [queue for queue in queues if queue.coordinator.state is not None]  # Leadership may have ended while others were opened.
        self._waiters: list[Waiter] = []
        self._read_to = 0  # What those before it were given is read, or given back.
        self._timer: asyncio.TimerHandle | None = None
        if taken is not None and taken.deliveries:
            if not queues:
                return  # What it was given is another leader's to give again, when its time is up.
            waiter = Waiter(Wish(group, count, None, who), queues, waits=False)
            waiter.heard.set_result(Served(queues[0], taken))
            self._waiters.append(waiter)
        elif len(queues) == 1 and not queues[0].waiting(group) and taken is None:  # The usual case: it is asked for, ready or not.
            self._ask(queues[0], Wish(group, likely_part(queues[0], count, bytes_max), None, who), wait_s)
        elif ready := [queue for queue in queues if queue.is_ready(group)][:count]:
            for queue in ready:
                self._ask(queue, Wish(group, likely_part(queue, count // len(ready), bytes_max // len(ready)), None, who), 0)
        elif queues and wait_s > 0:
            self._stand(Waiter(Wish(group, likely_part(queues[0], count, bytes_max), None, who), queues, waits=True), wait_s)

    def _ask(self, queue: QueuePartition, wish: Wish, wait_s: float) -> None:
        waiter = Waiter(wish, (queue,), waits=wait_s > 0)
        self._waiters.append(waiter)
        self._set_timer(waiter, wait_s)
        queue.serve(waiter)

    def _stand(self, waiter: Waiter, wait_s: float) -> None:
        try:
            waiter.stand()
        except QueueRefusal:  # Too many stand there: it may come again.
            waiter.leave()
            return
        self._waiters.append(waiter)
        for queue in waiter.places:
            queue.look_soon()
        self._set_timer(waiter, wait_s)

    def _set_timer(self, waiter: Waiter, wait_s: float) -> None:
        if wait_s > 0:
            self._timer = asyncio.get_running_loop().call_later(wait_s, waiter.time_is_up)

    async def lots(self) -> list[Lot]:
        """Raises DiskFailed where a log cannot be read. A partition whose ledger is gone meanwhile gives nothing: its member hears of that
        when it asks again."""
        lots: list[Lot] = []
        try:
            for at, waiter in enumerate(self._waiters):
                served = await _heard(waiter)
                self._read_to = at
                if served is not None and served.taken.deliveries:
                    lots.append(await self._lot(served, self._bytes_max - sum(lot.size for lot in lots), is_first=not lots))
                self._read_to = at + 1
        finally:
            self._end()
        return [lot for lot in lots if lot.acquired]

    def _end(self) -> None:
        """Whatever was taken and is not read goes back."""
        if self._timer is not None:
            self._timer.cancel()
        for waiter in self._waiters[self._read_to :]:
            waiter.leave()
            waiter.give_back()

    async def _lot(self, served: Served, bytes_max: int, *, is_first: bool) -> Lot:
        queue, deliveries = served.queue, sorted(served.taken.deliveries)
        found = await read_batches(queue, [each.offset for each in deliveries], bytes_max, is_first=is_first)
        return _lot(queue, self._group, deliveries, found)


def lot_at_hand(queue: QueuePartition, group: str, lent: Sequence[Delivery], bytes_max: int) -> Lot | None:
    """What one partition gives, as the first of a reply. None: it must wait for the disk. Raises DiskFailed."""
    deliveries = sorted(lent)
    found = batches_at_hand(queue, [each[0] for each in deliveries], bytes_max)
    return None if found is None else _lot(queue, group, deliveries, found)


def _lot(queue: QueuePartition, group: str, deliveries: list[Delivery], found: Found) -> Lot:
    if found.unread < len(deliveries):
        queue.give_back(group, deliveries[found.unread :])
        deliveries = deliveries[: found.unread]
    if found.gone:
        lost = frozenset(found.gone)
        _finish(queue, group, [each for each in deliveries if each.offset in lost])
        deliveries = [each for each in deliveries if each.offset not in lost]
    return Lot(queue, found.pieces, ranges(deliveries), found.size)


def likely_part(queue: QueuePartition, count: int, bytes_max: int) -> int:
    """As many of so many records as are likely to fit."""
    return max(1, min(count, likely_count(queue.data, bytes_max), COUNT_MAX))


async def _heard(waiter: Waiter) -> Served | None:
    try:
        return await waiter.heard
    except (NotHere, QueueRefusal):
        return None


def ranges(deliveries: Sequence[Delivery]) -> list[Acquired]:
    """Side by side records of the same delivery count as one."""
    found: list[Acquired] = []
    first = last = count = -1
    for each in deliveries:
        if each.offset == last + 1 and each.attempt == count:
            last = each.offset
            continue
        if count >= 0:
            found.append(Acquired(first, last, min(count, DELIVERY_COUNT_MAX)))
        first, last, count = each.offset, each.offset, each.attempt
    if count >= 0:
        found.append(Acquired(first, last, min(count, DELIVERY_COUNT_MAX)))
    return found


def _finish(queue: QueuePartition, group: str, gone: Sequence[Delivery]) -> None:
    """Their records are not in the log any more: nobody can work on them."""
    if gone and queue.coordinator.state is not None:
        items = tuple(Settlement(each.offset, each.lease, Verb.DONE) for each in gone)
        queue.coordinator.order(Settle(Nobody(), group, items, is_dropped=True))
