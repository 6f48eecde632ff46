"""Takers who want the same of one partition in the same turn, and get parts of one batch."""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from penstock.broker.queues.calls import LENT_BYTES_MAX, Lent, size_of
from penstock.broker.queues.lines import Served, Waiter
from penstock.broker.queues.refusals import not_available, refusal_of
from penstock.errors import ErrorCode, Refusal
from penstock.queues.commands import COUNT_MAX
from penstock.queues.replies import Delivery, Fault, Taken

if TYPE_CHECKING:
    from penstock.broker.queues.leading import QueuePartition


def alike(takers: list[Waiter]) -> Iterator[list[Waiter]]:
    """Those side by side whose wishes differ in their counts only, up to what one decision may give."""
    some: list[Waiter] = []
    kind, count = None, 0
    for waiter in takers:
        wish = waiter.wish
        this = wish.group, wish.lease_ms, wish.who, wish.attempt_id
        if some and (this != kind or count + wish.count > COUNT_MAX):
            yield some
            some, count = [], 0
        some.append(waiter)
        kind, count = this, count + wish.count
    if some:
        yield some


class Takers:
    """They hear once their batch is durable."""

    __slots__ = ("_queue", "_waiters")

    def __init__(self, queue: "QueuePartition", waiters: list[Waiter]) -> None:
        self._queue = queue
        self._waiters = waiters

    def answered(self, reply: Taken) -> None:
        if reply.fault is not Fault.NONE:
            for waiter in self._waiters:
                if not waiter.heard.done():
                    waiter.heard.set_exception(refusal_of(reply.fault))
        elif not reply.deliveries:
            for waiter in self._waiters:
                self._queue.served_with(waiter, reply)
        else:
            self._divide(reply.deliveries)

    def refused(self, code: ErrorCode, reason: str) -> None:
        for waiter in self._waiters:
            if not waiter.heard.done():
                waiter.heard.set_exception(not_available(Refusal(code, reason)))

    def _divide(self, deliveries: Sequence[Delivery]) -> None:
        queue, waiters, at = self._queue, self._waiters, 0
        lent = self._lent(deliveries)
        for waiter in waiters:
            end = at + waiter.wish.count
            part = deliveries[at:end]
            if waiter.heard.done():
                queue.give_back(waiter.wish.group, part)
            elif part:
                its_own = None if lent is None else lent[at:end]
                if its_own is not None and (held := waiter.wish.held) is not None:
                    held.add(sum(map(size_of, its_own)))  # At once: the next ones are told in the same turn, and may have what is left.
                waiter.heard.set_result(Served(queue, Taken(tuple(part)), its_own))
            else:
                queue.serve(waiter)  # Nothing is left, and only the ledger can tell why.
            at = end

    def _lent(self, deliveries: Sequence[Delivery]) -> list[Lent] | None:
        """None: they are not at hand, or are no longer lent. Each of the waiters sees to its own then."""
        queue = self._queue
        if deliveries[0].deadline_ms <= queue.node.env.wall_ms():  # All have the same.
            return None
        try:
            bytes_max = min(LENT_BYTES_MAX, queue.node.reply_room.fair_share())
            found = queue.bodies.at_hand([each[0] for each in deliveries], bytes_max=bytes_max)
            return None if found is None else queue.lent(self._waiters[0].wish.group, deliveries, found)
        except Exception:  # Whoever tells us of the flush has others to tell. Each taker meets it again, and tells its own caller.
            return None
