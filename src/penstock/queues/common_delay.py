"""The delay that a queue has for messages that ask for none: from which message on it is how long, and who waits for it in order.

A changed setting counts from a message on that is recorded (`Turn.DELAYED`): the first one that was not known by then or, in a FIFO queue,
the first one that still waits. So what a message waits for follows from the logs alone, and is the same after a load; a standard queue's
messages keep the delay that they were sent under, and a FIFO queue's change theirs, as AWS has both.
In a FIFO queue those who wait stand here, in the order of the log, and come in that order, whatever becomes of the delay: the first one
that waits holds up all behind it. Their options are in memory, as those of all messages of a FIFO queue are.
A message that has its own time is no concern of this one, and neither are those of standard queues that wait (timetable.py).
"""

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterator

from penstock.queues.bits import Bits

TOLD_MAX = 100  # Changes that are remembered. Messages from before the oldest one have waited for long.
_DROPPED_MIN = 4_096  # Numbers that are left behind before they are cleared away.
_LONG_AGO_MS = 1  # 0 means something else to who asks when.


class CommonDelay:
    def __init__(self, waiting: Bits) -> None:
        """`waiting` tells who still waits: entries of others count no more."""
        self._waiting = waiting
        self.starts: list[int] = []  # From this message on... Empty: there never was one.
        self._spans_ms: list[int] = []  # ...it is so long. Below the first one, there is none.
        self._line = array("q")  # Offset and time of writing of each that waits in order.
        self._head = 0  # Where the first of them is.

    # How long it is

    @property
    def last_ms(self) -> int:
        """As it is for new messages."""
        return self._spans_ms[-1] if self._spans_ms else 0

    def tell(self, start: int, span_ms: int) -> None:
        """It is so long from this message on."""
        at = bisect_left(self.starts, start)
        del self.starts[at:], self._spans_ms[at:]
        self.starts.append(start)
        self._spans_ms.append(span_ms)
        del self.starts[:-TOLD_MAX], self._spans_ms[:-TOLD_MAX]

    def told(self) -> list[tuple[int, int]]:
        return list(zip(self.starts, self._spans_ms, strict=True))

    def of(self, offset: int) -> int:
        at = bisect_right(self.starts, offset)
        return self._spans_ms[at - 1] if at else 0

    def over(self, start: int, end: int) -> Iterator[tuple[int, int, int]]:
        """[start, end) in pieces of one delay each: start, end, delay."""
        while start < end:
            at = bisect_right(self.starts, start)
            piece_end = min(end, self.starts[at]) if at < len(self.starts) else end
            yield start, piece_end, self._spans_ms[at - 1] if at else 0
            start = piece_end

    # Who waits in order

    @property
    def has_line(self) -> bool:
        return len(self._line) > self._head

    def add(self, offset: int, written_ms: int) -> None:
        self._waiting.add(offset)
        self._line.append(offset)
        self._line.append(written_ms)

    def first(self, end: int) -> int:
        """The first that waits; `end`: nobody does."""
        self._pass_over()
        return self._line[self._head] if self.has_line else end

    def next_ms(self) -> int | None:
        """When the first one's time comes. None: nobody waits."""
        self._pass_over()
        if not self.has_line:
            return None
        span_ms = self.of(self._line[self._head])
        return self._line[self._head + 1] + span_ms if span_ms else _LONG_AGO_MS  # By whatever clock it was written.

    def pop(self, wall_ms: int) -> tuple[int, int] | None:
        """The first one, if its time has come, and when it was written. It waits no more."""
        due_ms = self.next_ms()
        if due_ms is None or due_ms > wall_ms:
            return None
        offset, written_ms = self._line[self._head], self._line[self._head + 1]
        self._head += 2
        self._waiting.discard(offset)
        return offset, written_ms

    def entries(self) -> "array[int]":
        """Offset and time of writing of all that wait, as they are now."""
        return self._line[self._head :]

    def unlearn(self, end: int) -> None:
        """Messages from here on will be learned of anew."""
        while len(self._line) > self._head and self._line[-2] >= end:
            del self._line[-2:]

    @property
    def held_bytes(self) -> int:
        return 8 * len(self._line)

    def _pass_over(self) -> None:
        line, waiting = self._line, self._waiting
        while self._head < len(line) and line[self._head] not in waiting:
            self._head += 2
        if self._head > _DROPPED_MIN and 2 * self._head >= len(line):
            del line[: self._head]
            self._head = 0
