"""Records on their way to one partition, and the room that all of them share.

A lane is a queue: what is accepted first is sent first, settled first. Room is given in bytes, first come first served, and freed when a
record is settled, so that a producer whose node is slow or gone waits instead of growing.
"""

import asyncio
from collections import deque
from dataclasses import dataclass

from penstock.peers.failures import PeerFailure
from penstock.vocabulary import Instant, TopicPartition
from penstock.wire.batches import Record

RECORD_OVERHEAD_BYTES = 24  # Lengths, deltas and attributes of a record at their longest, near enough.
HEADER_OVERHEAD_BYTES = 4


@dataclass(frozen=True, slots=True)
class Delivered:
    """Where a record is stored. The offset is -1 where the node does not tell (acks 0)."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int


@dataclass(frozen=True, slots=True)
class Pending:
    """A record that was accepted and is not settled."""

    record: Record
    size: int
    accepted_at: Instant
    delivered: asyncio.Future[Delivered]

    def succeed(self, delivered: Delivered) -> None:
        if not self.delivered.done():
            self.delivered.set_result(delivered)

    def fail(self, failure: PeerFailure) -> None:
        if not self.delivered.done():
            self.delivered.set_exception(failure)
            self.delivered.exception()  # Counts as seen: whoever dropped the future did not want to know.


class Lane:
    """The queue of one partition. At most one batch of it is on its way, so that a retry can never overtake."""

    def __init__(self, where: TopicPartition) -> None:
        self.where = where
        self.sequence = 0  # Of the next record; moves when a batch is known to be stored.
        self.accepted = 0
        self.settled = 0  # Both count records since the lane began; equal when nothing is pending.
        self.is_ripe = asyncio.Event()  # A batch is full, or somebody flushes: do not wait for more.
        self.task: asyncio.Task[None] | None = None
        self._queue: deque[Pending] = deque()
        self._queued_bytes = 0
        self._progress = asyncio.Event()

    def __bool__(self) -> bool:
        return bool(self._queue)

    @property
    def oldest_at(self) -> Instant:
        return self._queue[0].accepted_at

    def accept(self, pending: Pending, batch_bytes_max: int) -> None:
        self._queue.append(pending)
        self._queued_bytes += pending.size
        self.accepted += 1
        if self._queued_bytes >= batch_bytes_max:
            self.is_ripe.set()

    def take(self, batch_bytes_max: int) -> list[Pending]:
        """The next batch: as many records as fit, and one at least."""
        batch = [self._queue.popleft()]
        size = batch[0].size
        while self._queue and size + self._queue[0].size <= batch_bytes_max:
            size += self._queue[0].size
            batch.append(self._queue.popleft())
        self._queued_bytes -= size
        if self._queued_bytes < batch_bytes_max:
            self.is_ripe.clear()
        return batch

    def note_settled(self, count: int) -> None:
        self.settled += count
        self._progress.set()
        self._progress.clear()  # Everyone who waits has been woken; the next to wait wait for the next batch.

    async def until_settled(self, count: int) -> None:
        while self.settled < count:
            await self._progress.wait()


class Room:
    """Bytes that pending records may take, all together."""

    def __init__(self, bytes_max: int) -> None:
        self.bytes_max = bytes_max
        self.bytes_taken = 0
        self._line: deque[tuple[int, asyncio.Future[None]]] = deque()

    async def take(self, size: int) -> None:
        if not self._line and self._fits(size):
            self.bytes_taken += size
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._line.append((size, turn))
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self.free(size)  # It was given, and nobody is there to use it.
            else:
                turn.cancel()
                self.free(0)  # Those behind may fit now.
            raise

    def free(self, size: int) -> None:
        self.bytes_taken -= size
        while self._line and (self._line[0][1].done() or self._fits(self._line[0][0])):
            size, turn = self._line.popleft()
            if not turn.done():
                self.bytes_taken += size
                turn.set_result(None)

    def _fits(self, size: int) -> bool:
        return self.bytes_taken + size <= self.bytes_max


def size_of(record: Record) -> int:
    """Its bytes in a batch before compression, near enough and never too few."""
    size = RECORD_OVERHEAD_BYTES + len(record.key or b"") + len(record.value or b"")
    for name, content in record.headers:
        size += HEADER_OVERHEAD_BYTES + 4 * len(name) + len(content or b"")
    return size
