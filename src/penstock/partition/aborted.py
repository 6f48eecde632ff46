"""Which transactions of a partition were aborted, so that a reader of committed records can be told what to pass over.

One row per aborted transaction: where its marker stands, where it began, whose it was, and the last stable offset just after it ended. Rows
come in the order of markers, and last stable offsets never go back. A transaction overlaps a range if its marker is not before the range
and it began before the range's end. The first row whose last stable offset has reached the range's end is the last that can: whatever
ends later began no earlier than that.
A reader passes over the producer from the first offset on until it comes to the marker. So a row goes only when no record of its
transaction is left, and the marker only when the row has gone (log/decided.py): without it the reader would pass over what was committed
next.

Rows are packed numbers in memory, 32 bytes each, and travel with the producers' snapshot in the log's checkpoint. One file per segment, as
Kafka has, would save memory where somebody aborts millions of transactions, and cost every start, cut and swap of a segment another file.
A checkpoint with many of them waits until more was appended (log/growing_log.py), so what is written in all grows with the log only.
Hot path: `between`, once for each fetch of a reader of committed records.
"""

import sys
from array import array
from bisect import bisect_left
from struct import Struct

from penstock.log.decided import Spans
from penstock.vocabulary import Offset, ProducerId

Aborted = tuple[ProducerId, Offset]  # Whose it was, and where it began: as Fetch tells it.

_BLOCK = 512  # Rows that are passed over together where all of them began too late.
_COUNT = Struct(">I")


class AbortedIndex:
    __slots__ = ("_firsts", "_gone", "_lowest", "_markers", "_producers", "_stables")

    def __init__(self) -> None:
        self._markers = array("q")
        self._firsts = array("q")
        self._producers = array("q")
        self._stables = array("q")
        self._lowest = array("q")  # Of each block, where the earliest of its transactions began.
        self._gone = 0  # So many of the first rows are forgotten; they go when they fill a block.

    def __len__(self) -> int:
        return len(self._markers) - self._gone

    def add(self, producer_id: int, first_offset: int, marker_offset: int, last_stable: int) -> None:
        if len(self._markers) % _BLOCK:
            self._lowest[-1] = min(self._lowest[-1], first_offset)
        else:
            self._lowest.append(first_offset)
        self._markers.append(marker_offset)
        self._firsts.append(first_offset)
        self._producers.append(producer_id)
        self._stables.append(last_stable)

    def between(self, from_offset: int, end_offset: int) -> list[Aborted]:
        """Those that overlap the range, in the order in which they ended."""
        at = bisect_left(self._markers, from_offset, self._gone)
        stop = min(len(self._markers), bisect_left(self._stables, end_offset) + 1)
        found: list[Aborted] = []
        firsts, producers = self._firsts, self._producers
        while at < stop:
            block_end = min(stop, at - at % _BLOCK + _BLOCK)
            if self._lowest[at // _BLOCK] < end_offset:
                found += [(ProducerId(producers[row]), Offset(firsts[row])) for row in range(at, block_end) if firsts[row] < end_offset]
            at = block_end
        return found

    def has_any_after(self, from_offset: int) -> bool:
        """Whether any ended at or after the offset: in one step, for who would rather not ask which."""
        return len(self) > 0 and self._markers[-1] >= from_offset

    def spans(self) -> Spans:
        """A copy of all of them, for compaction."""
        return Spans(self._producers[self._gone :], self._firsts[self._gone :], self._markers[self._gone :])

    def forget_below(self, offset: int) -> None:
        """Of those that ended before the offset no record is left."""
        self._gone = bisect_left(self._markers, offset, self._gone)
        blocks = self._gone // _BLOCK
        if blocks:
            del self._lowest[:blocks]
            for column in self._columns():
                del column[: blocks * _BLOCK]
            self._gone -= blocks * _BLOCK

    def snapshot(self) -> bytes:
        return _COUNT.pack(len(self)) + b"".join(_big_endian(column[self._gone :]) for column in self._columns())

    def restore(self, snapshot: bytes, at: int) -> int:
        """Takes the rows that stand there in place of its own; returns where they end."""
        (count,) = _COUNT.unpack_from(snapshot, at)
        at, self._gone = at + _COUNT.size, 0
        for column in self._columns():
            del column[:]
            column.frombytes(snapshot[at : at + count * column.itemsize])
            if sys.byteorder == "little":
                column.byteswap()
            at += count * column.itemsize
        self._lowest = array("q", (min(self._firsts[row : row + _BLOCK]) for row in range(0, count, _BLOCK)))
        return at

    def _columns(self) -> "tuple[array[int], ...]":
        return self._markers, self._firsts, self._producers, self._stables


def _big_endian(copied: "array[int]") -> bytes:
    if sys.byteorder == "little":
        copied.byteswap()
    return copied.tobytes()
