"""What several callers want of one partition in the same turn of the loop, as one decision: one record, one append, one look for bodies.

A call by itself costs about as much as one for ten messages, so callers who come together share what does not depend on their number:
senders a batch (senders.py), takers who want the same a lease record and a look for bodies (takers.py), those who finish messages a record
(finishers.py). Each gets just what it would have got alone, one after the other in the order in which they came.
Takers of a FIFO queue are served one by one, for a group's messages are never divided between two; so are those who name an attempt.
A round is decided before the turn after it begins, so nobody waits for others to come.
"""

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING

from penstock.broker.queues import finishers, senders
from penstock.broker.queues.calls import Draft
from penstock.broker.queues.finishers import Finishers
from penstock.broker.queues.lines import Waiter
from penstock.broker.queues.refusals import NotHere
from penstock.broker.queues.senders import Senders
from penstock.broker.queues.takers import Takers, alike
from penstock.queues.commands import COUNT_MAX, Settle, Take

if TYPE_CHECKING:
    from penstock.broker.queues.leading import QueuePartition


class Rounds:
    """Of one partition."""

    __slots__ = ("_finishers", "_is_coming", "_queue", "_senders", "_takers")

    def __init__(self, queue: "QueuePartition") -> None:
        self._queue = queue
        self._senders: Senders | None = None
        self._takers: list[Waiter] = []
        self._finishers: dict[str, Finishers] = {}  # By group.
        self._is_coming = False

    def send(self, drafts: Sequence[Draft], size: int) -> senders.Heard:
        """Plain messages of this size. Resolves when they are durable; to None where they have to go another way, and nothing of them was
        sent; or to NotHere or QueueRefusal."""
        if self._senders is not None and not self._senders.has_room_for(size):
            self._senders.append()
            self._senders = None
        if self._senders is None:
            self._senders = Senders(self._queue)
            self._come_soon()
        return self._senders.add(drafts, size)

    def take(self, waiter: Waiter) -> None:
        """The waiter is served as by `QueuePartition.serve`, with the messages themselves where they are at hand; or hears NotHere."""
        self._takers.append(waiter)
        self._come_soon()

    def finish(self, group: str, deliveries: Sequence[tuple[int, int]]) -> finishers.Heard:
        """Of (offset, lease) pairs that are done. Resolves when that is durable, or to NotHere or QueueRefusal."""
        some = self._finishers.get(group)
        if some is not None and len(some.items) + len(deliveries) > COUNT_MAX:
            self._submit(self._finishers.pop(group))
            some = None
        if some is None:
            some = self._finishers[group] = Finishers(group, self._submit)
            self._come_soon()
        return some.add(deliveries)

    def _come_soon(self) -> None:
        if not self._is_coming:
            self._is_coming = True
            asyncio.get_running_loop().call_soon(self._come)

    def _come(self) -> None:
        self._is_coming = False
        sending, self._senders = self._senders, None
        finishing, self._finishers = self._finishers, {}
        taking, self._takers = self._takers, []
        if sending is not None:
            sending.append()
        for each in finishing.values():
            self._submit(each)
        if taking:
            self._serve(taking)

    def _submit(self, some: Finishers) -> None:
        if self._queue.coordinator.state is None:
            some.not_here()
        else:
            self._queue.coordinator.submit(Settle(some, some.group, tuple(some.items)), some)

    def _serve(self, takers: list[Waiter]) -> None:
        queue, config = self._queue, self._queue.data.config
        if len(takers) > 1:
            takers = [waiter for waiter in takers if not waiter.heard.done()]
        elif takers[0].heard.done():
            return
        for some in alike(takers):
            wish = some[0].wish
            if queue.coordinator.state is None:
                for waiter in some:
                    waiter.heard.set_exception(NotHere())
            elif wish.attempt_id or config.queue_paused or config.queue_fifo:
                for waiter in some:
                    queue.serve(waiter)
            else:
                asker, count = Takers(queue, some), sum([waiter.wish.count for waiter in some])
                queue.coordinator.catch_up()
                queue.coordinator.submit(Take(asker, wish.group, count, wish.lease_ms, wish.who), asker)
