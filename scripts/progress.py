"""One line that says what long work is doing: redrawn on a terminal, printed anew from time to time elsewhere.

    with Progress("packages") as progress:
        progress.say("12 of 131: pyspark (434 MB)")

`run` does so for a program. Needs nothing but the standard library: `make setup` uses it before anything is installed.
"""

import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import Self, TextIO

REDRAWN_S, REPEATED_S = 0.5, 10.0
WIDTH_MAX = 110


class Progress:
    def __init__(self, label: str, out: TextIO = sys.stderr) -> None:
        self._label, self._text, self._out = label, "", out
        self._has_failed = False
        self._is_terminal = out.isatty()
        self._began = time.monotonic()
        self._ended = threading.Event()
        self._ticker = threading.Thread(target=self._tick, daemon=True)

    def __enter__(self) -> Self:
        self._draw()
        self._ticker.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._ended.set()
        self._ticker.join()
        self._text = "failed" if self._has_failed or error is not None else "done"
        self._draw()
        if self._is_terminal:
            self._out.write("\n")

    def say(self, text: str) -> None:
        """Shows this from the next drawing on."""
        self._text = text

    def fail(self) -> None:
        """Ends with "failed" in the place of "done"."""
        self._has_failed = True

    def _tick(self) -> None:
        while not self._ended.wait(REDRAWN_S if self._is_terminal else REPEATED_S):
            self._draw()

    def _width(self) -> int:
        """Less than the terminal has: a line that fills it would be redrawn below itself."""
        return min(WIDTH_MAX, os.get_terminal_size(self._out.fileno()).columns - 1) if self._is_terminal else WIDTH_MAX

    def _draw(self) -> None:
        line = f"[{time.monotonic() - self._began:3.0f} s] {self._label}{': ' if self._text else ''}{self._text}"[: self._width()]
        self._out.write(f"\r\x1b[K{line}" if self._is_terminal else f"{line}\n")
        self._out.flush()


def run(
    command: Sequence[str], label: str, step_in: Callable[[str], str | None], environment: Mapping[str, str] | None = None
) -> tuple[int, list[str]]:
    """Runs a program and shows each step that it prints. Returns its exit code and its other lines, those of its errors among them."""
    lines = []
    # A question of the program could not be seen: it gets no answer, rather than to wait for one.
    pipe, merged, nothing = subprocess.PIPE, subprocess.STDOUT, subprocess.DEVNULL
    running = subprocess.Popen(command, env=environment, stdin=nothing, stdout=pipe, stderr=merged, text=True, errors="replace")
    with Progress(label) as progress, running:
        assert running.stdout is not None
        for line in running.stdout:
            step = step_in(line)
            if step is None:
                lines.append(line.rstrip())
            else:
                progress.say(step)
        if running.wait() != 0:
            progress.fail()
    return running.returncode, lines
