"""Records taken for a member of a share group: leases of whole runs, and the batches that hold them.

What is ready at several partitions is taken from all of them at once, a fair part from each; where nothing is, the member stands in line at
all of them, and the first that has something serves it. Never more records are taken than were asked for, which suits both of Kafka's
acquire modes. What then does not fit into the reply, or was being taken for one who is gone, is given back, which is no failure.

A lease that was taken has an owner at every moment: whoever serves the waiter, then the taking, then the lots of the fetch, at last the
reply that waits to be written. Each of them gives back what it could not hand on, whatever the reason.
"""

import asyncio
from collections.abc import Sequence
from typing import NamedTuple

from penstock.broker.askers import Nobody
from penstock.broker.queues.calls import QueueRefusal
from penstock.broker.queues.leading import QueuePartition
from penstock.broker.queues.lines import LINE_LENGTH_MAX, Served, Waiter, Wish
from penstock.broker.queues.refusals import NotHere
from penstock.broker.shares.batches import Found, batches_at_hand, likely_count, read_batches
from penstock.broker.shares.refusals import refusal_of
from penstock.errors import DiskFailed, Refusal
from penstock.queues.commands import COUNT_MAX, Settle, Settlement, Verb
from penstock.queues.replies import Delivery, Taken
from penstock.vocabulary import Buffer
from penstock.wire.share_responses import Acquired

DELIVERY_COUNT_MAX = 2**15 - 1


class Lot(NamedTuple):
    """What one partition gives."""

    queue: QueuePartition
    group: str
    lent: list[Delivery]
    records: list[Buffer]
    acquired: list[Acquired]
    size: int

    def cancel(self) -> None:
        """It is not sent: nobody has seen it, which is no delivery."""
        self.queue.give_back(self.group, self.lent)


class Lots(list[Lot]):
    """What a request is given, until it is sent."""

    __slots__ = ()

    def cancel(self) -> None:
        while self:
            self.pop().cancel()

    @property
    def size(self) -> int:
        return sum([lot.size for lot in self])


class Taking:
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
        self._queues = [queue for queue in queues if queue.coordinator.state is not None]  # Leadership may have ended meanwhile.
        self._group = group
        self._who = who
        self._count = count
        self._bytes_max = bytes_max
        self._wait_s = wait_s
        self._taken = taken
        self._waiters: list[Waiter] = []
        self._timer: asyncio.TimerHandle | None = None
        self.refused: list[tuple[QueuePartition, Refusal]] = []  # Those that give nothing for now, and why.
        self.is_unclear = False  # One of those in whose lines it stood has refused. Which, shows when they are looked at again.

    async def into(self, lots: Lots) -> None:
        """Takes what is ready, at once, or waits for something; adds it to `lots`. However this ends, whatever is not there goes back."""
        try:
            self._begin()
            while self._waiters:
                waiter = self._waiters[0]
                try:
                    served = await waiter.heard
                    if served is not None and served.taken.deliveries and (lot := await self._lot(served, lots)).acquired:
                        lots.append(lot)
                except (NotHere, QueueRefusal, DiskFailed) as failure:
                    self._failed(waiter, failure)
                del self._waiters[0]  # In the same turn in which its leases have become the lots'.
        finally:
            self._end()

    def hurry(self, *_: object) -> None:
        """Waits no longer for what is not there yet."""
        for waiter in self._waiters:
            waiter.time_is_up()

    def _begin(self) -> None:
        queues, taken, group, count, bytes_max = self._queues, self._taken, self._group, self._count, self._bytes_max
        if taken is not None and taken.deliveries:
            if queues:  # Else what it was given is another leader's to give again, when its time is up.
                waiter = Waiter(self._wish(count), queues, waits=False)
                waiter.heard.set_result(Served(queues[0], taken))
                self._waiters.append(waiter)
        elif len(queues) == 1 and not queues[0].waiting(group) and taken is None:  # The usual case: it is asked for, ready or not.
            self._ask(queues[0], self._wish(likely_part(queues[0], count, bytes_max)), self._wait_s)
        elif ready := [queue for queue in queues if queue.is_ready(group)][:count]:
            for queue in ready:
                self._ask(queue, self._wish(likely_part(queue, count // len(ready), bytes_max // len(ready))), 0)
        elif queues and self._wait_s > 0:
            self._stand(Waiter(self._wish(likely_part(queues[0], count, bytes_max)), queues, waits=True), self._wait_s)

    def _wish(self, count: int) -> Wish:
        return Wish(self._group, count, None, self._who)

    def _ask(self, queue: QueuePartition, wish: Wish, wait_s: float) -> None:
        waiter = Waiter(wish, (queue,), waits=wait_s > 0)
        self._waiters.append(waiter)
        self._set_timer(waiter, wait_s)
        queue.serve(waiter)

    def _stand(self, waiter: Waiter, wait_s: float) -> None:
        try:
            waiter.stand()
        except QueueRefusal as refusal:
            waiter.leave()
            crowded = [queue for queue in waiter.places if queue.waiting(self._group) >= LINE_LENGTH_MAX]
            self.refused += [(queue, refusal_of(queue, refusal)) for queue in crowded]
            return
        self._waiters.append(waiter)
        for queue in waiter.places:
            queue.look_soon()
        self._set_timer(waiter, wait_s)

    def _set_timer(self, waiter: Waiter, wait_s: float) -> None:
        if wait_s > 0:
            self._timer = asyncio.get_running_loop().call_later(wait_s, waiter.time_is_up)

    def _failed(self, waiter: Waiter, failure: NotHere | QueueRefusal | DiskFailed) -> None:
        if isinstance(failure, DiskFailed):
            served = waiter.heard.result()
            assert served is not None, "it was being read"
            self.refused.append((served.queue, refusal_of(served.queue, failure)))
            served.queue.node.report(f"records for share group {self._group} cannot be read: {failure}")
        elif len(waiter.places) == 1:
            self.refused.append((waiter.places[0], refusal_of(waiter.places[0], failure)))
        else:
            self.is_unclear = True
        waiter.give_back()

    def _end(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        for waiter in self._waiters:
            waiter.leave()
            waiter.give_back()

    async def _lot(self, served: Served, lots: Lots) -> Lot:
        queue, deliveries, size = served.queue, sorted(served.taken.deliveries), lots.size
        found = await read_batches(queue, [each.offset for each in deliveries], self._bytes_max - size, is_first=size == 0)
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
    return Lot(queue, group, deliveries, found.pieces, ranges(deliveries), found.size)


def likely_part(queue: QueuePartition, count: int, bytes_max: int) -> int:
    """As many of so many records as are likely to fit."""
    return max(1, min(count, likely_count(queue.data, bytes_max), COUNT_MAX))


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
