"""How long does the disk itself take, beside what is measured? A few bytes are due to be flushed every so many milliseconds.

The clock starts when they are due, as it does for messages at a fixed rate: a stall counts for all that it delays. A figure that waits for
flushes can be no better than these: they tell a server that is slow from a disk that stalls.
"""

import os
import threading
import time
from pathlib import Path
from types import TracebackType

from benchmarks.tables import quantile

EVERY_S = 0.01
CONTENT = b"x" * 200


class FlushProbe:
    def __init__(self, directory: Path) -> None:
        self._path = directory / "flush-probe"
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="flush-probe", daemon=True)
        self._seconds: list[float] = []

    def __enter__(self) -> "FlushProbe":
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, failure: BaseException | None, trace: TracebackType | None) -> None:
        self._over.set()
        self._thread.join()
        self._path.unlink(missing_ok=True)

    def quantile_s(self, share: float) -> float:
        return quantile(sorted(self._seconds), share)

    def _run(self) -> None:
        due = time.perf_counter()
        with self._path.open("ab", buffering=0) as file:
            while not self._over.wait(max(0.0, due - time.perf_counter())):
                count = int((time.perf_counter() - due) / EVERY_S) + 1  # All that are due by now go together.
                file.write(CONTENT * count)
                os.fdatasync(file.fileno())
                ended = time.perf_counter()
                self._seconds += [ended - due - at * EVERY_S for at in range(count)]
                due += count * EVERY_S
