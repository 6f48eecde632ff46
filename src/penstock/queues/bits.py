"""Sets of offsets, packed: which messages are done.

`Bits` keeps 1,024 offsets in one integer, so a set costs about a bit for each offset where it is dense, and a hundred bytes for each where
it is sparse; integers are nothing that the garbage collector looks at. Full chunks share one integer: ten million finished messages above
one that is stuck are ten thousand entries of a dictionary. `DoneSet` adds a base, below which everything is in the set.
Because integers never change, a copy of the dictionary is a picture of the set at that moment.
"""

from collections.abc import Iterator, Sequence

SHIFT = 10
CHUNK = 1 << SHIFT
FULL = (1 << CHUNK) - 1
_MASK = CHUNK - 1


class Bits:
    def __init__(self) -> None:
        self.chunks: dict[int, int] = {}  # Never has an empty one.
        self.count = 0

    def __contains__(self, offset: int) -> bool:
        return self.chunks.get(offset >> SHIFT, 0) >> (offset & _MASK) & 1 == 1

    def add(self, offset: int) -> bool:
        """False: it was there."""
        number, bit = offset >> SHIFT, 1 << (offset & _MASK)
        chunk = self.chunks.get(number, 0)
        if chunk & bit:
            return False
        chunk |= bit
        self.chunks[number] = FULL if chunk == FULL else chunk
        self.count += 1
        return True

    def copy(self) -> "Bits":
        copied = Bits()
        copied.chunks, copied.count = self.chunks.copy(), self.count
        return copied

    def discard(self, offset: int) -> bool:
        """False: it was not there."""
        number, bit = offset >> SHIFT, 1 << (offset & _MASK)
        chunk = self.chunks.get(number, 0)
        if not chunk & bit:
            return False
        if chunk == bit:
            del self.chunks[number]
        else:
            self.chunks[number] = chunk ^ bit
        self.count -= 1
        return True

    def add_range(self, start: int, end: int) -> int:
        """How many of [start, end) were not there."""
        before = self.count
        for number, mask in _masks(start, end):
            chunk = self.chunks.get(number, 0)
            grown = FULL if mask == FULL else chunk | mask
            self.chunks[number] = FULL if grown == FULL else grown
            self.count += grown.bit_count() - chunk.bit_count()
        return self.count - before

    def discard_range(self, start: int, end: int) -> int:
        """How many of [start, end) were there."""
        before = self.count
        numbers = [number for number in self.chunks if start >> SHIFT <= number < (end + _MASK) >> SHIFT] if end - start > CHUNK else None
        for number, mask in _masks(start, end) if numbers is None else ((each, _mask(each, start, end)) for each in numbers):
            chunk = self.chunks.get(number, 0)
            left = chunk & ~mask
            if left:
                self.chunks[number] = left
            elif chunk:
                del self.chunks[number]
            self.count -= chunk.bit_count() - left.bit_count()
        return before - self.count

    def count_without(self, others: "DoneSet") -> int:
        """How many of these are not in the other set."""
        if not others.bits.count and others.base <= min(self.chunks, default=0) << SHIFT:
            return self.count  # Millions may wait, and nothing be done.
        found = 0
        for number, chunk in self.chunks.items():
            if others.base < (number + 1) << SHIFT:
                unset = chunk & ~others.bits.chunks.get(number, 0)
                found += (unset >> max(others.base - (number << SHIFT), 0)).bit_count()
        return found

    def discard_done(self, others: "Sequence[DoneSet]", start: int, end: int) -> None:
        """Takes out what of [start, end) is in all of the other sets."""
        first, last = start >> SHIFT, (end + _MASK) >> SHIFT
        numbers = range(first, last) if last - first <= len(self.chunks) else [each for each in self.chunks if first <= each < last]
        for number in [number for number in numbers if number in self.chunks]:
            chunk = self.chunks[number]
            gone = chunk & _mask(number, start, end)
            for each in others:
                gone &= each.chunk(number)
            if gone == chunk:
                del self.chunks[number]
            elif gone:
                self.chunks[number] = chunk ^ gone
            self.count -= gone.bit_count()

    def has_any(self, start: int, end: int) -> bool:
        """Whether something of [start, end) may be in it: in the same chunks, at least."""
        first, last = start >> SHIFT, (end + _MASK) >> SHIFT
        return last - first > len(self.chunks) or any(number in self.chunks for number in range(first, last))

    def offsets_from(self, first: int) -> Iterator[int]:
        """In order, from `first` on."""
        for number in sorted(number for number in self.chunks if number >= first >> SHIFT):
            yield from (offset for offset in _ones(self.chunks[number], number << SHIFT) if offset >= first)

    def offsets(self) -> Iterator[int]:
        """All, in order. The set must not change meanwhile."""
        for number in sorted(self.chunks):
            yield from _ones(self.chunks[number], number << SHIFT)


class DoneSet:
    def __init__(self, base: int = 0) -> None:
        self.base = base  # Everything below is in the set, and this is not.
        self.bits = Bits()  # What is in it above the base.

    def __contains__(self, offset: int) -> bool:
        return offset < self.base or offset in self.bits

    @property
    def end(self) -> int:
        """Nothing at or above this is in the set."""
        last = max(self.bits.chunks, default=-1)
        return self.base if last < 0 else (last << SHIFT) + self.bits.chunks[last].bit_length()

    def add(self, offset: int) -> bool:
        """False: it was there."""
        if offset < self.base:
            return False
        if offset > self.base:
            return self.bits.add(offset)
        self.base += 1
        if self.bits.count:
            self._climb()
        return True

    def add_range(self, start: int, end: int) -> int:
        """How many of [start, end) were not there."""
        start = max(start, self.base)
        if end <= start:
            return 0
        if start > self.base:
            return self.bits.add_range(start, end)
        known = self.bits.discard_range(start, end)
        self.base = end
        if self.bits.count:
            self._climb()
        return end - start - known

    def chunk(self, number: int) -> int:
        """Which of these 1,024 offsets are in it."""
        below = self.base - (number << SHIFT)
        if below >= CHUNK:
            return FULL
        return self.bits.chunks.get(number, 0) | ((1 << below) - 1 if below > 0 else 0)

    def rewind(self, to: int) -> None:
        """Nothing from `to` on is in the set any more."""
        last = max(self.bits.chunks, default=-1)
        self.bits.discard_range(to, max((last + 1) << SHIFT, to))
        self.base = min(self.base, to)

    def gaps(self, start: int, end: int) -> Iterator[tuple[int, int]]:
        """Runs of what is not in the set, within [start, end), in order."""
        start = max(start, self.base)
        if not self.bits.count:
            if start < end:
                yield start, end
            return
        open_at = -1
        for number, mask in _masks(start, end):
            first = number << SHIFT
            missing = mask & ~self.bits.chunks.get(number, 0)
            if missing == mask and mask & 1 and open_at >= 0:
                if mask != FULL:
                    break  # The last one: the run goes on to the end.
                continue
            for run_start, run_end in _runs(missing, first):
                if open_at >= 0 and run_start != first:
                    yield open_at, first
                    open_at = -1
                if open_at < 0:
                    open_at = run_start
                if run_end != first + CHUNK:
                    yield open_at, run_end
                    open_at = -1
            if not missing and open_at >= 0:
                yield open_at, first
                open_at = -1
        if open_at >= 0:
            yield open_at, end

    def _climb(self) -> None:
        chunks = self.bits.chunks
        while chunk := chunks.get(self.base >> SHIFT):
            at = self.base & _MASK
            above = chunk >> at
            ones = (above ^ (above + 1)).bit_length() - 1
            if not ones:
                return
            self.bits.count -= ones
            self.base += ones
            left = chunk & ~((1 << (at + ones)) - 1)
            if left:
                chunks[(self.base - ones) >> SHIFT] = left
            else:
                del chunks[(self.base - ones) >> SHIFT]


def runs_outside(chunks: dict[int, int], start: int, end: int) -> Iterator[tuple[int, int]]:
    """Runs within [start, end) of what is in none of these chunks, in order. Takes as long as there are chunks, whatever the range."""
    open_at = start
    for number in sorted(number for number in chunks if start >> SHIFT <= number <= end >> SHIFT):
        for run_start, run_end in _runs(chunks[number], number << SHIFT):
            if open_at < min(run_start, end):
                yield open_at, min(run_start, end)
            open_at = max(open_at, run_end)
    if open_at < end:
        yield open_at, end


def _masks(start: int, end: int) -> Iterator[tuple[int, int]]:
    for number in range(start >> SHIFT, (end + _MASK) >> SHIFT if end > start else start >> SHIFT):
        yield number, _mask(number, start, end)


def _mask(number: int, start: int, end: int) -> int:
    low, high = max(start - (number << SHIFT), 0), min(end - (number << SHIFT), CHUNK)
    return FULL if high - low == CHUNK else (1 << high) - (1 << low)


def _ones(chunk: int, first: int) -> Iterator[int]:
    while chunk:
        low = chunk & -chunk
        yield first + low.bit_length() - 1
        chunk ^= low


def _runs(chunk: int, first: int) -> Iterator[tuple[int, int]]:
    at = first
    while chunk:
        zeros = (chunk & -chunk).bit_length() - 1
        chunk >>= zeros
        ones = (chunk ^ (chunk + 1)).bit_length() - 1
        yield at + zeros, at + zeros + ones
        chunk >>= ones
        at += zeros + ones
