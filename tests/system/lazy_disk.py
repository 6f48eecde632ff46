"""The hand on the plug of a lazy file system (lazyfs.py): mounts it, cuts its power, fails its flushes, fills it up."""

import json
import os
import subprocess
import sys
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from system.lazy_tree import Cut

TESTS = Path(__file__).parents[1]


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
        self._process.wait(timeout=10)

    def cut(self, how: Cut = Cut.DROP, *, seed: int = 0, after_writes: int = 0, within_ms: int = 3_000) -> None:
        """The power goes, now or at the n-th write from now, at the latest `within_ms`; this waits for it.

        Everything on the disk hangs from there on.
        """
        self._order(do="cut", how=how, seed=seed, after_writes=after_writes, within_ms=within_ms)

    def restore(self) -> None:
        """The power is back. Whoever still hangs on the old mount gets an error: kill them before."""
        self._order(do="restore")

    def fail_sync(self, pattern: str, *, skip: int = 0, times: int = 1) -> None:
        """After `skip` good ones the next `times` fsyncs of paths like `pattern` (relative to the mount) end in EIO."""
        self._order(do="fail_sync", pattern=pattern, skip=skip, times=times)

    def sync_takes(self, ms: float) -> None:
        self._order(do="sync_takes", ms=ms)

    def room(self, size: int | None) -> None:
        """From now on only so many bytes can be written before ENOSPC; None: as many as you like."""
        self._order(do="room", bytes=size)

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


def why_no_lazy_disk() -> str | None:
    """The reason why this machine cannot mount one, or None."""
    if not os.path.exists("/dev/fuse"):
        return "/dev/fuse is not there"
    return None if os.geteuid() == 0 else "only root may mount"
