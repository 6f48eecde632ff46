"""When something is due, over any number of messages and any length of time: near ones in a heap, later ones in buckets.

A bucket is an array of (when, offset) pairs: 16 bytes for each, and nothing that the garbage collector looks at. There are buckets of a
second, of ten minutes and of a day; when the clock comes to one, it is taken apart into smaller ones, the smallest into the heap. So an
entry is moved three times at most, and only the next second of them is in order.
Nothing is ever taken out before its time: an entry that does not count any more is told by whoever asked for it when it comes up, at the
latest.
All of it is in memory. What may be any number of messages for any length of time is in a `Timetable`, of which this is the near part.
A ledger asks its schedules several times at each decision, and most of them are empty or have nothing near: that must cost nothing.
"""

from array import array
from collections.abc import Container, Iterable, Iterator, Sequence
from heapq import heapify, heappop, heappush
from itertools import compress

OFFSET_BITS = 64
_OFFSET_MASK = (1 << OFFSET_BITS) - 1
_NEVER = 1 << 62
WIDTHS_MS = (1_000, 600_000, 86_400_000)


class Buckets:
    """Entries by the time they are due, as coarse as `width_ms`."""

    def __init__(self, width_ms: int) -> None:
        self.width_ms = width_ms
        self._entries: dict[int, array[int]] = {}
        self._order: list[int] = []  # A heap of the numbers of buckets.

    def add(self, when_ms: int, offset: int) -> None:
        number = when_ms // self.width_ms
        entries = self._entries.get(number)
        if entries is None:
            entries = self._entries[number] = array("q")
            heappush(self._order, number)
        entries.append(when_ms)
        entries.append(offset)

    def add_all(self, when_ms: int, offsets: Sequence[int]) -> None:
        self.add(when_ms, offsets[0])
        if len(offsets) > 1:
            pairs = array("q", (when_ms, 0)) * (len(offsets) - 1)
            pairs[1::2] = array("q", offsets[1:])
            self._entries[when_ms // self.width_ms].extend(pairs)

    @property
    def first_ms(self) -> int | None:
        """When the first bucket begins."""
        return self._order[0] * self.width_ms if self._order else None

    def take(self) -> "tuple[int, array[int]]":
        """The end of the first bucket, and what was in it."""
        number = heappop(self._order)
        return (number + 1) * self.width_ms, self._entries.pop(number)

    def copies(self) -> "list[array[int]]":
        return [entries[:] for entries in self._entries.values()]


class Schedule:
    def __init__(self, *, is_near: bool = False, alive: Container[int] | None = None) -> None:
        """`is_near`: all of it is due within minutes, so buckets of a second are all that there need be. `alive`: entries of messages that
        are not in it count no more, and are dropped with the bucket that they are in, where they cost next to nothing."""
        self._alive = alive
        self._near: list[int] = []  # A heap of (when << 64) + offset, due before `_ends[0]`.
        self._levels = tuple(Buckets(width_ms) for width_ms in WIDTHS_MS)
        # What is due before the end of a level is in a finer one. Ends rise from fine to coarse.
        self._ends = [0, _NEVER, _NEVER] if is_near else [0, 0, 0]
        self.size = 0  # How many entries there are. Read by others as it is: this is asked at each decision.

    def __len__(self) -> int:
        return self.size

    def add(self, when_ms: int, offset: int) -> None:
        self.size += 1
        ends = self._ends
        if when_ms < ends[0]:
            heappush(self._near, (when_ms << OFFSET_BITS) + offset)
        elif when_ms < ends[1]:
            self._levels[0].add(when_ms, offset)
        elif when_ms < ends[2]:
            self._levels[1].add(when_ms, offset)
        else:
            self._levels[2].add(when_ms, offset)

    def add_all(self, when_ms: int, offsets: Sequence[int]) -> None:
        """The same for several that are due at one time."""
        self.size += len(offsets)
        ends = self._ends
        if when_ms < ends[0]:
            for offset in offsets:
                heappush(self._near, (when_ms << OFFSET_BITS) + offset)
        else:
            level = 0 if when_ms < ends[1] else 1 if when_ms < ends[2] else 2
            self._levels[level].add_all(when_ms, offsets)

    def next_ms(self, wall_ms: int) -> int | None:
        """When the next entry is due, or, where that is after now, up to a bucket earlier. None: there is none."""
        if not self.size:
            return None
        if not self._near:
            first_ms = self._expand(wall_ms)
            if not self._near:
                return first_ms
        return self._near[0] >> OFFSET_BITS

    def pop(self, wall_ms: int) -> tuple[int, int] | None:
        """The first entry that is due by now: (when, offset)."""
        if not self.size:
            return None
        near = self._near
        if not near or near[0] >> OFFSET_BITS > wall_ms:
            self._expand(wall_ms)
            if not near or near[0] >> OFFSET_BITS > wall_ms:
                return None
        entry = heappop(near)
        self.size -= 1
        return entry >> OFFSET_BITS, entry & _OFFSET_MASK

    def entries(self) -> Iterator[tuple[int, int]]:
        """All that are there now, in no order, whatever is added or popped meanwhile."""
        near = self._near[:]
        pieces = [piece for level in self._levels for piece in level.copies()]
        return _entries(near, pieces)

    def drop_from(self, end: int) -> None:
        """Nothing of messages at or above this offset is in it any more."""
        if self.size:
            kept = [(when_ms, offset) for when_ms, offset in self.entries() if offset < end]
            self._near.clear()
            self._levels = tuple(Buckets(width_ms) for width_ms in WIDTHS_MS)
            self.size = 0
            for when_ms, offset in kept:
                self.add(when_ms, offset)

    def _expand(self, wall_ms: int) -> int | None:
        """The heap gets the next second that has anything in it, if that has begun; otherwise this is when it begins."""
        while not self._near:
            number = 0
            while (first_ms := self._levels[number].first_ms) is None:
                number += 1
                if number == len(self._levels):
                    return None
            if first_ms > wall_ms:
                return first_ms
            self._take_apart(number)
        return None

    def _take_apart(self, number: int) -> None:
        end, entries = self._levels[number].take()
        self._ends[number] = end
        offsets = entries[1::2]
        pairs: Iterable[tuple[int, int]] = zip(entries[::2], offsets, strict=True)
        if self._alive is not None:
            are_alive = list(map(self._alive.__contains__, offsets))
            self.size -= are_alive.count(False)
            pairs = compress(pairs, are_alive)
        if number == 0:
            self._near += [(when_ms << OFFSET_BITS) + offset for when_ms, offset in pairs]
            heapify(self._near)
            return
        finer_level = self._levels[number - 1]
        for when_ms, offset in pairs:
            finer_level.add(when_ms, offset)


def _entries(near: list[int], pieces: "list[array[int]]") -> Iterator[tuple[int, int]]:
    for entry in near:
        yield entry >> OFFSET_BITS, entry & _OFFSET_MASK
    for piece in pieces:
        for at in range(0, len(piece), 2):
            yield piece[at], piece[at + 1]
