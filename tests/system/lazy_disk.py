"""The hand on the plug of a lazy file system (lazyfs.py): mounts it, cuts its power, fails its flushes, fills it up."""

import json
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from system.harness import Node
from system.lazy_tree import Cut
from waiting import PATIENCE_S, until

TESTS = Path(__file__).parents[1]
POLL_S = 0.02  # Each look is a request to the file system.


class LazyDisk:
    """A mounted disk. As a context manager it takes the mount away at the end, whatever happened."""

    def __init__(self, mountpoint: Path) -> None:
        self.path = mountpoint
        mountpoint.mkdir(parents=True, exist_ok=True)
        self._process = subprocess.Popen(
            [sys.executable, "-m", "system.lazyfs", str(mountpoint)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=TESTS, text=True,
        )  # fmt: skip
        self.stats()  # It answers only when it is mounted.

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(timeout=PATIENCE_S)

    def cut(self, how: Cut = Cut.DROP, *, seed: int = 0) -> None:
        """Takes the power away: everything on the disk hangs from here on. Changes nothing if the power is away already."""
        self._order(do="cut", how=how, seed=seed, after_writes=0)

    def cut_at_write(self, number: int, how: Cut, *, seed: int, or_when: Callable[[], bool] = lambda: False) -> None:
        """Takes the power away at the n-th write from now, and waits for it; at once for 0, or if `or_when` comes true before."""
        self._order(do="cut", how=how, seed=seed, after_writes=number)
        until(lambda: self.is_cut() or or_when(), f"{number} writes", every_s=POLL_S)
        self.cut(how, seed=seed)

    def is_cut(self) -> bool:
        return bool(self.stats()["is_cut"])

    def restore(self) -> None:
        """The power is back. Whoever still hangs on the old mount gets an error: kill them before."""
        self._order(do="restore")

    def fail_sync(self, pattern: str, *, skip: int = 0, times: int = 1) -> None:
        """After `skip` good ones the next `times` fsyncs of paths like `pattern` (relative to the mount) end in EIO."""
        self._order(do="fail_sync", pattern=pattern, skip=skip, times=times)

    def sync_takes(self, ms: float) -> None:
        """How long each flush takes from now on. With 0 those under way end at once."""
        self._order(do="sync_takes", ms=ms)

    def room(self, size: int | None, *, gives_back: bool = False) -> None:
        """From now on only so many bytes can be written before ENOSPC; None: as many as you like. `gives_back`: files that are removed give
        back what they took."""
        self._order(do="room", bytes=size, gives_back=gives_back)

    def stats(self) -> dict[str, int]:
        return self._order(do="stats")

    def _order(self, **order: Any) -> dict[str, Any]:
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(json.dumps(order) + "\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline()
        if not answer:
            raise RuntimeError(f"the lazy file system died with code {self._process.wait()}")
        return dict(json.loads(answer))


def power_cut(
    node: Node, disk: LazyDisk, how: Cut, *, seed: int, at_write: int = 0, or_when: Callable[[], bool] = lambda: False
) -> None:
    """The node hangs on the dead disk from the cut on, so it can promise nothing between the cut and its end."""
    try:
        disk.cut_at_write(at_write, how, seed=seed, or_when=or_when)
        node.signal(signal.SIGKILL)
    finally:  # Also when Ctrl-C interrupts it: what hangs on a dead disk cannot even be killed.
        disk.restore()
    node.wait()
