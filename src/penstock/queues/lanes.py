"""Messages in line, by the place they have there.

A message's place is its offset, unless it was sent to the back: then it is that of the first message that was not known by then. So who
is next follows from what is recorded, and a ledger that is loaded again goes on in the same order. A lane holds those of one priority:
fresh ones as runs of offsets side by side, which is all that plain messages ever are, and a heap for all others. An *entry* is place and
offset in one integer.
Nothing is taken out of the middle: what does not count any more is passed over, and dropped when it is first in line.
"""

from collections import deque
from collections.abc import Callable, Iterator, Mapping
from heapq import heappop, heappush, heapreplace

from penstock.queues.bits import DoneSet
from penstock.queues.headers import PRIORITY_MAX

OFFSET_BITS = 64
OFFSET_MASK = (1 << OFFSET_BITS) - 1
LEVELS = PRIORITY_MAX + 1
CLEANED_MAX = 1_000  # Entries that are dropped in one call.


def entry_of(place: int, offset: int) -> int:
    return (place << OFFSET_BITS) + offset


class Lane:
    def __init__(self) -> None:
        self.runs: deque[int] = deque()  # Start and end of each run, in turns, rising.
        self.heap: list[int] = []  # Entries.

    def __bool__(self) -> bool:
        return bool(self.runs or self.heap)

    def add_run(self, start: int, end: int) -> None:
        """Fresh messages, none of them below any that was added before."""
        if self.runs and self.runs[-1] == start:
            self.runs[-1] = end
        else:
            self.runs.append(start)
            self.runs.append(end)

    def add(self, entry: int) -> None:
        heappush(self.heap, entry)

    def fresh(self) -> Iterator[int]:
        """Offsets in line. The lane must not change meanwhile."""
        runs = iter(self.runs)
        for start in runs:
            yield from range(start, next(runs))

    def clean(self, rows: Mapping[int, bytes], done: DoneSet, counts: Callable[[int], bool]) -> None:
        """Drops what is first in line and does not count; of a heap a bounded piece, for each costs its share of it."""
        runs = self.runs
        while runs:
            start, end = runs[0], runs[1]
            while start < end and (start in rows or start in done):
                start += 1
            if start < end:
                runs[0] = start
                break
            runs.popleft()
            runs.popleft()
        for _ in range(CLEANED_MAX):
            if not self.heap or counts(self.heap[0]):
                break
            heappop(self.heap)


def in_order(heap: list[int]) -> Iterator[int]:
    """The entries of a heap, smallest first, without taking them out. The heap must not change meanwhile."""
    if not heap:
        return
    frontier = [(heap[0], 0)]
    while frontier:
        entry, at = frontier[0]
        yield entry
        step(heap, frontier, at)


def step(heap: list[int], frontier: list[tuple[int, int]], at: int) -> None:
    """The first of the frontier gives way to the two that are behind it in the heap."""
    left = 2 * at + 1
    if left < len(heap):
        heapreplace(frontier, (heap[left], left))
        if left + 1 < len(heap):
            heappush(frontier, (heap[left + 1], left + 1))
    else:
        heappop(frontier)
