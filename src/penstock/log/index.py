"""Where in a segment an offset or a time is to be found: one entry for a stretch of batches.

An entry stands for the batches from its position up to the next entry: the first one's offset, its position, and the highest timestamp
among them. So an offset is found by bisection, and a time by skipping stretches that end before it, however disordered the clocks were.

The index of one segment never has more than `ENTRIES_MAX` entries: when it is full, every other one is dropped and the stretches
become twice as long. That bounds memory (80 KB, where one entry for every 4 KB would need 5 MB for 1 GiB), and a search in the longest
stretches still reads no more than a usual fetch does.

A cache: rebuilt from the batches whenever it is missing or doubtful, and what it says is checked against the batches when they are read.
Not here: files (index_files.py).
"""

import sys
from array import array
from bisect import bisect_right
from struct import Struct

from penstock.vocabulary import Buffer

ENTRIES_MAX = 4096
NO_TIMESTAMP = -1
ANY_TIMESTAMP = 2**63 - 1  # Of a stretch that could not be read: whoever looks for a time must look there, and will be told.

_HEAD = Struct("<II")  # entries, interval in bytes
_ENTRY_BYTES = 20


class SparseIndex:
    __slots__ = ("interval_bytes", "next_at", "offsets", "positions", "times")

    def __init__(self, interval_bytes: int) -> None:
        self.interval_bytes = max(1, interval_bytes)
        self.next_at = 0  # A batch that begins at or after this position gets an entry.
        self.offsets = array("q")
        self.positions = array("I")
        self.times = array("q")  # No batch in the stretch is newer than this.

    def note(self, offset: int, position: int, max_timestamp: int) -> None:
        """Takes in the next batch of the segment. `Log.append` does the same by hand for a batch that needs no entry."""
        if position >= self.next_at:
            self.add(offset, position, max_timestamp)
        elif max_timestamp > self.times[-1]:
            self.times[-1] = max_timestamp

    def add(self, offset: int, position: int, max_timestamp: int) -> None:
        if len(self.offsets) == ENTRIES_MAX:
            self._thin()
            if position < self.positions[-1] + self.interval_bytes:
                self.next_at = self.positions[-1] + self.interval_bytes
                self.times[-1] = max(self.times[-1], max_timestamp)
                return
        self.offsets.append(offset)
        self.positions.append(position)
        self.times.append(max_timestamp)
        self.next_at = position + self.interval_bytes

    def find(self, offset: int) -> int:
        """The entry whose stretch holds the offset; -1 when the offset lies before the first one."""
        return bisect_right(self.offsets, offset) - 1

    def stretch_end(self, entry: int, segment_size: int) -> int:
        """The position where the entry's stretch ends."""
        return self.positions[entry + 1] if entry + 1 < len(self.positions) else segment_size

    def cut(self, position: int) -> None:
        """Forgets the stretches that begin at or after the position. The last one that is left may claim too high a time."""
        while self.positions and self.positions[-1] >= position:
            for column in (self.offsets, self.positions, self.times):
                column.pop()
        self.next_at = self.positions[-1] + self.interval_bytes if self.positions else 0

    def max_timestamp(self) -> int:
        return max(self.times, default=NO_TIMESTAMP)

    def _thin(self) -> None:
        self.times = array("q", map(max, self.times[::2], self.times[1::2]))
        self.offsets = self.offsets[::2]
        self.positions = self.positions[::2]
        self.interval_bytes *= 2

    def encode(self) -> bytes:
        return b"".join((_HEAD.pack(len(self.offsets), self.interval_bytes), *map(_packed, (self.offsets, self.positions, self.times))))

    @classmethod
    def decode(cls, content: Buffer, at: int = 0) -> tuple["SparseIndex", int]:
        """The index and where it ends. The caller has checked the checksum around it; what does not fit raises ValueError."""
        if len(content) < at + _HEAD.size:
            raise ValueError("an index is cut off")
        count, interval_bytes = _HEAD.unpack_from(content, at)
        at += _HEAD.size
        end = at + count * _ENTRY_BYTES
        if count > ENTRIES_MAX or len(content) < end:
            raise ValueError("an index is cut off")
        index = cls(interval_bytes)
        view = memoryview(content)
        index.offsets = _unpacked("q", view[at : at + 8 * count])
        index.positions = _unpacked("I", view[at + 8 * count : at + 12 * count])
        index.times = _unpacked("q", view[at + 12 * count : end])
        index.next_at = index.positions[-1] + index.interval_bytes if count else 0
        return index, end


def _packed(column: "array[int]") -> bytes:
    if sys.byteorder == "little":
        return column.tobytes()
    swapped = column[:]
    swapped.byteswap()
    return swapped.tobytes()


def _unpacked(kind: str, content: memoryview) -> "array[int]":
    column = array(kind)
    column.frombytes(content)
    if sys.byteorder == "big":
        column.byteswap()
    return column
