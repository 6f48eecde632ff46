"""How far a long change of a cluster has come: a bar on standard error, written over itself where that is a terminal.

Elsewhere a line is printed when something has changed, not more often than every few seconds, and when all is done.
"""

import sys
import time
from collections.abc import Callable
from typing import TextIO

WIDTH = 30
LINE_EVERY_SECONDS = 3.0

_ERASE = "\r\x1b[K"


class Bar:
    def __init__(self, what: str, *, stream: TextIO | None = None, clock: Callable[[], float] = time.monotonic) -> None:
        self._what = what
        self._stream = stream or sys.stderr
        self._clock = clock
        self._next_line_at = clock()
        self._last = ""

    def show(self, share: float, note: str) -> None:
        """`share` from 0 to 1."""
        line = f"{self._what} [{_blocks(share)}] {100 * share:3.0f} %  {note}"
        if self._stream.isatty():
            self._write(f"{_ERASE}{line}")
        elif line != self._last and (share >= 1.0 or self._clock() >= self._next_line_at):
            self._next_line_at = self._clock() + LINE_EVERY_SECONDS
            self._last = line
            self._write(f"{line}\n")

    def end(self) -> None:
        if self._stream.isatty():
            self._write("\n")

    def _write(self, text: str) -> None:
        self._stream.write(text)
        self._stream.flush()


def _blocks(share: float) -> str:
    full = round(max(0.0, min(1.0, share)) * WIDTH)
    return "#" * full + "." * (WIDTH - full)
