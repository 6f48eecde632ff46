"""A message under a lease, and what its worker may say of it.

| say | when | then |
|---|---|---|
| `ack()` | it is done | it is finished |
| `nack(delay=, reason=)` | it failed, and may be tried again | ready again after the delay or the queue's backoff; at last a dead letter |
| `reject(reason)` | it can never succeed | a dead letter at once |
| `extend(seconds)` | the work takes longer | the lease ends so long from now |
| `release()` | nobody worked on it | ready again at once, as if it had not been lent |

`with message:` says `ack` when the block ends well, `nack` with the exception as the reason when it does not (the exception goes on), and
`release` when it is interrupted; unless the block has said something itself. While it runs its lease is kept (heartbeat.py), unless the
queue was told not to. Whoever settles a message whose lease was lost gets `LeaseLost`: another worker has it, or will.
"""

import json
from datetime import datetime, timedelta
from types import TracebackType
from typing import Any, Protocol, Self

from penstock.client.queues.failures import QueueError
from penstock.client.queues.heartbeat import Heartbeat, log
from penstock.client.queues.loop_thread import loop_thread
from penstock.client.queues.spans import Span, milliseconds
from penstock.client.queues.values import DeadLetter, Delivery

REASON_LENGTH_MAX = 1_000  # Characters of an exception that are kept: what went wrong, not where.


class Settling(Protocol):
    """What a message asks of its queue."""

    async def settle_one(self, delivery: Delivery, verb: str, *, delay_ms: int | None = None, reason: str = "") -> datetime | None:
        """When the lease now ends, after `extend`."""
        ...


class _Fields:
    """What there is to read of a message, whichever face it has."""

    def __init__(self, delivery: Delivery) -> None:
        self._delivery = delivery

    @property
    def id(self) -> str:
        return self._delivery.id

    @property
    def body(self) -> bytes:
        return self._delivery.body

    @property
    def text(self) -> str:
        return self._delivery.body.decode()

    def json(self) -> Any:
        return json.loads(self._delivery.body)

    @property
    def key(self) -> bytes | None:
        return self._delivery.key

    @property
    def headers(self) -> dict[str, bytes]:
        """The sender's own."""
        return self._delivery.headers

    @property
    def attempt(self) -> int:
        """1 for the first delivery; those that were given back untouched do not count."""
        return self._delivery.attempt

    @property
    def sent_at(self) -> datetime:
        return self._delivery.sent_at

    @property
    def priority(self) -> int:
        return self._delivery.priority

    @property
    def group(self) -> str:
        return self._delivery.group

    @property
    def receipt(self) -> str:
        """The name of this lease, for whoever settles the message elsewhere."""
        return self._delivery.receipt

    @property
    def dead_letter(self) -> DeadLetter | None:
        """Where it came from and why, of a message in a queue of dead letters."""
        return self._delivery.dead_letter

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.id} attempt {self.attempt}>"


class AsyncQueueMessage(_Fields):
    """A message under a lease, for asyncio."""

    def __init__(self, delivery: Delivery, queue: Settling, *, keeps_lease: bool) -> None:
        super().__init__(delivery)
        self.deadline = delivery.deadline  # When the lease ends; later, once it was extended.
        self.is_settled = False  # Whether its worker has said what became of it.
        self.is_lost = False  # Whether an extension came too late.
        self._queue = queue
        self._heartbeat = Heartbeat(self.extend, delivery.lease_ms / 1000, f"message {delivery.id}") if keeps_lease else None

    async def ack(self) -> None:
        await self._settle("done")

    async def nack(self, *, delay: Span | None = None, reason: str = "") -> None:
        await self._settle("release", delay_ms=None if delay is None else milliseconds(delay, "delay"), reason=reason)

    async def reject(self, reason: str = "") -> None:
        await self._settle("reject", reason=reason)

    async def release(self) -> None:
        """Nobody has worked on it: it is ready at once, and this delivery does not count."""
        await self._settle("return")

    async def extend(self, seconds: Span | None = None) -> None:
        """The lease ends so long from now; without a number, as long as it was at first."""
        delay_ms = self._delivery.lease_ms if seconds is None else milliseconds(seconds, "seconds")
        if delay_ms == 0:
            raise ValueError("seconds must be more than 0: to give the message back, release() it")
        try:
            ends = await self._queue.settle_one(self._delivery, "extend", delay_ms=delay_ms)
        except QueueError as failure:
            self.is_lost = self.is_lost or failure.code == "lost"
            raise
        self.deadline = ends or self.deadline + timedelta(milliseconds=delay_ms)

    async def _settle(self, verb: str, *, delay_ms: int | None = None, reason: str = "") -> None:
        if self._heartbeat is not None:
            await self._heartbeat.stop()
        await self._queue.settle_one(self._delivery, verb, delay_ms=delay_ms, reason=reason)
        self.is_settled = True

    async def __aenter__(self) -> Self:
        if self._heartbeat is not None:
            self._heartbeat.start()
        return self

    async def __aexit__(self, kind: type[BaseException] | None, failure: BaseException | None, trace: TracebackType | None) -> None:
        if self._heartbeat is not None:
            await self._heartbeat.stop()
        if self.is_settled:
            return
        if failure is None:
            return await self.ack()
        try:
            await (self.nack(reason=reason_of(failure)) if isinstance(failure, Exception) else self.release())
        except QueueError as second:  # What the block died of is the better story.
            log.warning("message %s could not be given back: %s", self.id, second.problem)


class QueueMessage(_Fields):
    """A message under a lease."""

    def __init__(self, within: AsyncQueueMessage) -> None:
        super().__init__(within._delivery)
        self.within = within

    @property
    def deadline(self) -> datetime:
        """When the lease ends."""
        return self.within.deadline

    @property
    def is_settled(self) -> bool:
        """Whether its worker has said what became of it."""
        return self.within.is_settled

    @property
    def is_lost(self) -> bool:
        """Whether an extension came too late."""
        return self.within.is_lost

    def ack(self) -> None:
        loop_thread().wait_for(self.within.ack())

    def nack(self, *, delay: Span | None = None, reason: str = "") -> None:
        loop_thread().wait_for(self.within.nack(delay=delay, reason=reason))

    def reject(self, reason: str = "") -> None:
        loop_thread().wait_for(self.within.reject(reason))

    def release(self) -> None:
        loop_thread().wait_for(self.within.release())

    def extend(self, seconds: Span | None = None) -> None:
        """The lease ends so long from now; without a number, as long as it was at first."""
        loop_thread().wait_for(self.within.extend(seconds))

    def __enter__(self) -> Self:
        loop_thread().wait_for(self.within.__aenter__())
        return self

    def __exit__(self, kind: type[BaseException] | None, failure: BaseException | None, trace: TracebackType | None) -> None:
        loop_thread().wait_for(self.within.__aexit__(kind, failure, trace))


def reason_of(failure: BaseException) -> str:
    """An exception in one line, as the message's history keeps it."""
    words = " ".join(str(failure).split())
    return f"{type(failure).__name__}: {words}"[:REASON_LENGTH_MAX] if words else type(failure).__name__
