"""A replica's log in memory: what is on its disk, and what waits for a flush. It behaves to the cores as the real one does.

A loss of power takes some of what no flush has covered; what a flush has covered, and cuts, stay. A killed process loses nothing.
"""

from random import Random
from typing import NamedTuple

from penstock.errors import require
from penstock.log.epochs import Epochs
from penstock.partition.joining import Batch
from penstock.vocabulary import Buffer, Offset
from penstock.wire.batches import BatchHeader


class Ticket(NamedTuple):
    """A flush that is under way."""

    end_offset: Offset
    lineage: int


class Store:
    def __init__(self) -> None:
        self.start_offset = Offset(0)
        self.end_offset = Offset(0)
        self.flushed_end = Offset(0)
        self.epochs = Epochs()
        self.failure: str | None = None
        self._batches: list[tuple[bytes, BatchHeader]] = []
        self._lineage = 0  # Cuts make the tickets from before them void.

    def append(self, batch: Buffer, header: BatchHeader) -> None:
        require(header.base_offset == self.end_offset, "a batch is appended at the end of its log")
        require(header.leader_epoch >= self.epochs.latest, "leader epochs never go back")
        self._put(bytes(batch), header)

    def read(self, offset: Offset, end_offset: Offset, batches_max: int) -> bytes:
        """Whole batches from the one that holds the offset."""
        found = [batch for batch, header in self._batches if offset < header.end_offset <= end_offset]
        return b"".join(found[:batches_max])

    def headers(self) -> list[BatchHeader]:
        return [header for _, header in self._batches]

    def batches(self) -> list[Batch]:
        return list(self._batches)

    # Flushing

    def begin_flush(self) -> Ticket | None:
        return Ticket(self.end_offset, self._lineage) if self.failure is None and self.flushed_end < self.end_offset else None

    def end_flush(self, ticket: Ticket) -> None:
        if ticket.lineage == self._lineage and self.failure is None:
            self.flushed_end = max(self.flushed_end, ticket.end_offset)

    def fail(self, reason: str) -> None:
        self.failure = reason
        self._lineage += 1

    def lose_power(self, rng: Random) -> None:
        """Of what was not flushed, some of the first may be there."""
        kept = rng.randint(0, len([header for header in self.headers() if header.end_offset > self.flushed_end]))
        durable = [each for each in self._batches if each[1].end_offset <= self.flushed_end]
        self._rebuild(self._batches[: len(durable) + kept])

    def start_again(self) -> None:
        """Another process opens it: what it finds is flushed before anybody hears of it."""
        self.failure = None
        self._lineage += 1
        self.flushed_end = self.end_offset

    # Getting shorter

    def truncate_to(self, offset: Offset) -> None:
        require(offset >= self.start_offset, "a log is not cut below its start")
        self._rebuild([each for each in self._batches if each[1].end_offset <= offset])
        self.start_offset = min(self.start_offset, self.end_offset)
        self.flushed_end = self.end_offset

    def start_over(self, offset: Offset) -> None:
        self._rebuild([])
        self.epochs.cut(0)
        self.start_offset = self.end_offset = self.flushed_end = offset

    def raise_start(self, offset: Offset) -> None:
        require(offset <= self.end_offset, "a log starts no later than it ends")
        self.start_offset = max(self.start_offset, offset)
        while self._batches and self._batches[0][1].end_offset <= self.start_offset:
            self._batches.pop(0)
        self.epochs.drop_below(self.start_offset)

    def _put(self, batch: bytes, header: BatchHeader) -> None:
        if header.leader_epoch != self.epochs.latest:
            self.epochs.begin(header.leader_epoch, header.base_offset)
        self._batches.append((batch, header))
        self.end_offset = Offset(header.end_offset)

    def _rebuild(self, batches: list[tuple[bytes, BatchHeader]]) -> None:
        """Only these are left, all from the front."""
        emptied_at = self._batches[0][1].base_offset if self._batches else self.end_offset
        self._lineage += 1
        self._batches = batches
        self.end_offset = Offset(batches[-1][1].end_offset if batches else emptied_at)
        self.epochs.cut(self.end_offset)
        self.flushed_end = min(self.flushed_end, self.end_offset)
