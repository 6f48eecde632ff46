"""The transactions of one partition that readers of committed records cannot see past: those that are open, and those that have ended with
a marker that is not below the watermark yet.

Replayed from the log like the producers that they belong to (producers.py, which calls this): a transaction begins with the first
transactional batch of its producer here, and ends with its marker. Of each producer the last marker is remembered too: by the number of its
transaction a marker that comes again is known, and by its coordinator's epoch an old coordinator.
A transaction's number is not in its batches. The leader that let it begin knows it, another one does not (`NO_NUMBER`).
O(1) for each batch and each marker. Nothing here is touched by producers without transactions.
"""

from collections import deque
from collections.abc import Iterator
from struct import Struct
from typing import Any, NamedTuple

from penstock.packed import rows_of
from penstock.wire.markers import NO_COORDINATOR_EPOCH, NO_NUMBER

NO_OFFSET = -1

_COUNT = Struct(">I")
_OPEN = Struct(">qqq")  # producer, first offset, number
_ENDED = Struct(">qq")  # first offset, marker's offset
_ENDING = Struct(">iqq")  # coordinator epoch, number, marker's offset
_ENDING_ROW = Struct(">q20s")


class Open(NamedTuple):
    first_offset: int
    number: int


class Ending(NamedTuple):
    """What is remembered of a producer's last marker."""

    coordinator_epoch: int
    number: int  # The highest that has ended here.
    marker_offset: int  # Of the last marker, whatever its number.


NEVER_ENDED = Ending(NO_COORDINATOR_EPOCH, NO_NUMBER, NO_OFFSET)


class OpenTransactions:
    __slots__ = ("_ended", "_endings", "by_producer")

    def __init__(self) -> None:
        # Since each begins at the end of the log, the dictionary is in the order of first offsets.
        self.by_producer: dict[int, Open] = {}
        # (first offset, marker's offset), both ascending: one that began later than one that ended later tells nothing new.
        self._ended: deque[tuple[int, int]] = deque()
        self._endings: dict[int, bytes] = {}  # By producer.

    def __bool__(self) -> bool:
        """Whether there is anything to remember."""
        return bool(self.by_producer or self._ended or self._endings)

    def begin(self, producer_id: int, first_offset: int) -> None:
        """A transactional batch is in the log: of an open transaction, or the first of one."""
        if producer_id not in self.by_producer:
            self.by_producer[producer_id] = Open(first_offset, NO_NUMBER)

    def learn_number(self, producer_id: int, number: int) -> None:
        """Of the open transaction, from its coordinator."""
        known = self.by_producer[producer_id]
        if known.number == NO_NUMBER:
            self.by_producer[producer_id] = Open(known.first_offset, number)

    def end(self, producer_id: int, ending: Ending) -> int | None:
        """A marker is in the log; where the transaction began that it ends, None if there was none."""
        before = self.ending_of(producer_id)
        coordinator_epoch, number = max(ending.coordinator_epoch, before.coordinator_epoch), max(ending.number, before.number)
        self._endings[producer_id] = _ENDING.pack(coordinator_epoch, number, ending.marker_offset)
        known = self.by_producer.pop(producer_id, None)
        if known is None:
            return None
        while self._ended and self._ended[-1][0] >= known.first_offset:
            self._ended.pop()
        self._ended.append((known.first_offset, ending.marker_offset))
        return known.first_offset

    def ending_of(self, producer_id: int) -> Ending:
        packed = self._endings.get(producer_id)
        return NEVER_ENDED if packed is None else Ending._make(_ENDING.unpack(packed))

    @property
    def first_open(self) -> int | None:
        """Where the open transaction began that began first."""
        return next(iter(self.by_producer.values())).first_offset if self.by_producer else None

    def first_unstable(self, watermark: int) -> int | None:
        """The first offset whose fate a reader below this watermark cannot know; None where there is none."""
        if not self._ended and not self.by_producer:
            return None
        self.settle(watermark)
        first_open = self.first_open
        if not self._ended:
            return first_open
        return self._ended[0][0] if first_open is None else min(first_open, self._ended[0][0])

    def settle(self, watermark: int) -> None:
        """Markers below the watermark stay whatever happens. It never goes back, unless the log is cut and all of this is built anew."""
        ended = self._ended
        while ended and ended[0][1] < watermark:
            ended.popleft()

    def forget(self, producer_id: int) -> None:
        """A producer that has no open transaction is forgotten."""
        self._endings.pop(producer_id, None)

    def snapshot(self) -> Iterator[bytes]:
        yield _COUNT.pack(len(self.by_producer))
        yield from (_OPEN.pack(producer_id, *known) for producer_id, known in self.by_producer.items())
        yield _COUNT.pack(len(self._ended))
        yield from (_ENDED.pack(*ended) for ended in self._ended)
        yield _COUNT.pack(len(self._endings))
        yield from (_ENDING_ROW.pack(producer_id, packed) for producer_id, packed in self._endings.items())

    def restore(self, snapshot: bytes, at: int) -> int:
        """Takes what stands there in place of its own; returns where it ends."""
        rows, at = _rows(snapshot, at, _OPEN)
        self.by_producer = {producer_id: Open(*known) for producer_id, *known in rows}
        rows, at = _rows(snapshot, at, _ENDED)
        self._ended = deque((first, marker) for first, marker in rows)
        rows, at = _rows(snapshot, at, _ENDING_ROW)
        self._endings = {producer_id: packed for producer_id, packed in rows}
        return at


def _rows(snapshot: bytes, at: int, row: Struct) -> tuple[Iterator[tuple[Any, ...]], int]:
    (count,) = _COUNT.unpack_from(snapshot, at)
    begin = at + _COUNT.size
    end = begin + count * row.size
    return rows_of(row, snapshot[begin:end]), end
