"""A line that tells how a long transfer comes along, for a person who would otherwise look at nothing.

It is written to standard error, over itself, and only where that is a terminal; a short transfer shows none. Whoever prints records to the
same terminal, or types them there, needs no such line.
"""

import sys
import time
from collections.abc import Callable
from typing import TextIO

FIRST_AFTER_SECONDS = 1.0
EVERY_SECONDS = 0.5

_ERASE = "\r\x1b[K"
_UNITS = ("B", "KiB", "MiB", "GiB", "TiB")


class Progress:
    def __init__(self, *, is_shown: bool, stream: TextIO | None = None, clock: Callable[[], float] = time.monotonic) -> None:
        self._is_shown = is_shown
        self._stream = stream or sys.stderr
        self._clock = clock
        self._began = clock()
        self._next_at = self._began + FIRST_AFTER_SECONDS
        self._has_shown = False
        self.records = 0
        self.bytes = 0

    def add(self, records: int, size: int) -> None:
        self.records += records
        self.bytes += size
        if self._is_shown and self._clock() >= self._next_at:
            self._next_at = self._clock() + EVERY_SECONDS
            self._has_shown = True
            self._stream.write(f"{_ERASE}{self._line()}")
            self._stream.flush()

    def end(self) -> None:
        """Leaves the last count on a line of its own, if any was shown."""
        if self._has_shown:
            self._stream.write(f"{_ERASE}{self._line()}\n")
            self._stream.flush()

    def _line(self) -> str:
        seconds = max(self._clock() - self._began, 0.001)
        return f"{self.records:,} records, {size_text(self.bytes)}, {self.records / seconds:,.0f} records/s, {seconds:.0f} s"


def size_text(size: float) -> str:
    """Bytes as people read them: `12.3 MiB`."""
    for unit in _UNITS[:-1]:
        if size < 1024:
            return f"{size:,.0f} {unit}" if unit == "B" else f"{size:,.1f} {unit}"
        size /= 1024
    return f"{size:,.1f} {_UNITS[-1]}"
