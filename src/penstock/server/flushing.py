"""Flush rounds: how a set of dirty files becomes durable, and which of four ways is quickest.

One round at a time. What is asked for during a round is gathered into the next one, however many ask.
- A few files: fdatasync of each, side by side, by the kernel itself (kernel_flushes.py), where it does that; no thread takes part.
- A single file or directory, elsewhere: fdatasync in a thread.
- More, on a file system that honours it: one syncfs. It costs the same few disk operations for ten files as for a hundred.
- Otherwise: fdatasync of each, by a small pool of threads.

syncfs also waits for what strangers wrote to the same disk. `Chooser` notices a round that took far longer than the pool would have
and keeps to the pool for a while.

Rounds never overlap, and that is a promise, not thrift: the kernel reports a failed write-back once per open file. Two overlapping
rounds could share one error, and the round that did not see it would vouch for bytes that are gone. For the same reason the first
failure of any kind ends the use of syncfs for good: its one error counter has then been read, while each file still has its own.

Not here: which files are dirty, and what a failure means for a log (log/).
"""

import asyncio
import os
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from enum import Enum
from queue import SimpleQueue
from typing import NamedTuple

from penstock.env import SyncFailures
from penstock.server import kernel
from penstock.server.kernel_flushes import KernelFlushes

POOL_THREADS = 8  # Measured with 4, 8 and 16: more than 8 gain nothing until many hundreds of files.
KERNEL_FILES_MAX = 4  # Measured: with more, syncfs is quicker.


class Way(Enum):
    KERNEL = "fdatasync, by the kernel itself"
    EACH = "fdatasync, one after another"
    POOL = "fdatasync, by a pool"
    FILE_SYSTEM = "syncfs"


class Target(NamedTuple):
    """A file (its open descriptor) or a directory (opened for the round) to be made durable."""

    path: str
    fd: int  # -1 for a directory.


class Chooser:
    """Picks the way of each round from what earlier rounds took. Holds no clock: `now_s` is the caller's."""

    SUSPECT_RATIO = 4.0  # Syncfs may cost this much more than the pool is thought to before it is put aside.
    SUSPECT_S = 0.005  # Below this nobody would notice.
    PAUSE_S = 0.25  # How long syncfs is put aside the first time; each bad trial doubles it.
    PAUSE_S_MAX = 30.0

    def __init__(self, *, can_use_syncfs: bool, can_use_kernel: bool = False) -> None:
        self.can_use_syncfs = can_use_syncfs
        self.can_use_kernel = can_use_kernel
        self._pool_s_per_target = 0.000_1  # A guess until a pool round was measured.
        self._resume_at_s = 0.0
        self._pause_s = self.PAUSE_S

    def choose(self, targets: int, now_s: float, *, has_directories: bool = False) -> Way:
        if self.can_use_kernel and targets <= KERNEL_FILES_MAX and not has_directories:
            return Way.KERNEL
        if targets == 1:
            return Way.EACH
        if self.can_use_syncfs and now_s >= self._resume_at_s:
            return Way.FILE_SYSTEM
        return Way.POOL

    def learn(self, way: Way, targets: int, took_s: float, now_s: float) -> None:
        if way is Way.POOL:
            self._pool_s_per_target += (took_s / targets - self._pool_s_per_target) / 4
        elif way is Way.FILE_SYSTEM:
            self._judge_syncfs(targets, took_s, now_s)

    def distrust(self) -> None:
        """A flush failed: from now on each file answers for itself."""
        self.can_use_syncfs = False

    def _judge_syncfs(self, targets: int, took_s: float, now_s: float) -> None:
        if took_s > self.SUSPECT_S and took_s > self.SUSPECT_RATIO * self._pool_s_per_target * targets:
            self._resume_at_s = now_s + self._pause_s
            self._pause_s = min(2 * self._pause_s, self.PAUSE_S_MAX)
        else:
            self._pause_s = self.PAUSE_S


class _Wish(NamedTuple):
    targets: Sequence[Target]
    answer: asyncio.Future[SyncFailures]
    ended: Callable[[], None]


class _Round:
    __slots__ = ("begun", "failures", "loop", "targets", "under_way", "wishes")

    def __init__(self, wishes: list[_Wish], loop: asyncio.AbstractEventLoop) -> None:
        self.wishes = wishes
        self.loop = loop
        # Each open file and each directory once, in the order asked for.
        self.targets = list(dict.fromkeys(target for wish in wishes for target in wish.targets))
        self.begun = 0  # So many of them, from the first, are the kernel's own to flush,
        self.under_way = 0  # and so many of those it has not reported yet.
        self.failures: dict[str, str] = {}

    def answer(self) -> None:
        for wish in self.wishes:
            wish.ended()
            if not wish.answer.done():  # A caller may have given up waiting.
                wish.answer.set_result(self._failures_of(wish))

    def _failures_of(self, wish: _Wish) -> SyncFailures:
        if not self.failures:
            return []
        return [(target.path, self.failures[target.path]) for target in wish.targets if target.path in self.failures]


class Flusher:
    """Runs rounds, in the kernel or in one worker thread, for one event loop."""

    def __init__(self, root: str, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._root = root
        self._clock = clock
        # Open for as long as the flusher lives: syncfs reports the failures since its descriptor was opened.
        self._root_fd = os.open(root, os.O_RDONLY)
        self._kernel = KernelFlushes.open()
        self._kernels_loop: asyncio.AbstractEventLoop | None = None  # Where it is listened to.
        self.chooser = Chooser(can_use_syncfs=kernel.can_flush_file_system(self._root_fd), can_use_kernel=self._kernel is not None)
        self._waiting: list[_Wish] = []
        self._running: _Round | None = None
        # A plain thread and queue: an executor's futures would lengthen a small flush by a fifth.
        self._rounds: SimpleQueue[tuple[_Round, Way, list[Target]] | None] = SimpleQueue()
        self._worker = threading.Thread(target=self._run_rounds, name="flush", daemon=True)
        self._worker.start()
        self._pool = ThreadPoolExecutor(POOL_THREADS, "flush-pool")

    def flush(self, targets: Sequence[Target], ended: Callable[[], None]) -> asyncio.Future[SyncFailures]:
        """Calls `ended` when the descriptors are no longer used, which is also when a caller that gave up would have been answered."""
        loop = asyncio.get_running_loop()
        wish = _Wish(targets, loop.create_future(), ended)
        if not targets:
            wish.answer.set_result([])
            return wish.answer
        self._waiting.append(wish)
        if self._running is None:
            self._begin_round(loop)
        return wish.answer

    def close(self) -> None:
        if self._root_fd == -1:
            return
        self._rounds.put(None)
        self._worker.join()
        self._pool.shutdown()
        if self._kernel is not None:
            if self._kernels_loop is not None and not self._kernels_loop.is_closed():
                self._kernels_loop.remove_reader(self._kernel.told)
            self._kernel.close()
        os.close(self._root_fd)
        self._root_fd = -1

    def _begin_round(self, loop: asyncio.AbstractEventLoop) -> None:
        self._running, self._waiting = _Round(self._waiting, loop), []
        self._carry_out(self._running, self._running.targets)

    def _carry_out(self, gathered: _Round, targets: list[Target]) -> None:
        has_directories = any(target.fd < 0 for target in targets)
        way = self.chooser.choose(len(targets), self._clock(), has_directories=has_directories)
        if way is Way.KERNEL:
            self._begin_in_kernel(gathered)
        else:
            self._rounds.put((gathered, way, targets))

    def _end_round(self, gathered: _Round) -> None:
        self._running = None
        if gathered.failures:
            self.chooser.distrust()
        if self._waiting:
            self._begin_round(gathered.loop)
        gathered.answer()

    # In the kernel

    def _begin_in_kernel(self, gathered: _Round) -> None:
        assert self._kernel is not None
        if self._kernels_loop is not gathered.loop:
            self._kernels_loop = gathered.loop
            gathered.loop.add_reader(self._kernel.told, self._kernel_told)
        gathered.begun = gathered.under_way = self._kernel.begin([target.fd for target in gathered.targets])
        if gathered.begun < len(gathered.targets):
            self.chooser.can_use_kernel = False  # Not on this kernel, or not for this file system.
            self._go_on(gathered)

    def _kernel_told(self) -> None:
        gathered = self._running
        assert self._kernel is not None
        reports = self._kernel.ended()
        if not reports or gathered is None:
            return
        gathered.under_way -= len(reports)
        for place, code in reports:
            if code:
                gathered.failures[gathered.targets[place].path] = str(OSError(code, os.strerror(code)))
        self._go_on(gathered)

    def _go_on(self, gathered: _Round) -> None:
        """What the kernel did not take is flushed as it always was, once the kernel is through with the rest."""
        if gathered.under_way:
            return
        if rest := gathered.targets[gathered.begun :]:
            gathered.begun = len(gathered.targets)
            self._carry_out(gathered, rest)
        else:
            self._end_round(gathered)

    # In the worker thread

    def _run_rounds(self) -> None:
        while (wanted := self._rounds.get()) is not None:
            gathered, way, targets = wanted
            try:
                gathered.failures |= dict(self._flush(way, targets))
            except Exception as error:  # Whatever it was, nothing of this round may be vouched for.
                gathered.failures |= {target.path: repr(error) for target in targets}
            with suppress(RuntimeError):  # The loop is closed: nobody waits any more.
                gathered.loop.call_soon_threadsafe(self._end_round, gathered)

    def _flush(self, way: Way, targets: list[Target]) -> SyncFailures:
        began_s = self._clock()
        match way:
            case Way.POOL:
                failures = self._flush_by_pool(targets)
            case Way.FILE_SYSTEM:
                failures = self._flush_file_system(targets)
            case _:
                failures = self._flush_each(targets)
        ended_s = self._clock()
        self.chooser.learn(way, len(targets), ended_s - began_s, ended_s)
        return failures

    def _flush_each(self, targets: Sequence[Target]) -> SyncFailures:
        failures = []
        for target in targets:
            try:
                self._flush_one(target)
            except OSError as error:
                failures.append((target.path, str(error)))
        return failures

    def _flush_by_pool(self, targets: list[Target]) -> SyncFailures:
        shares = [targets[thread::POOL_THREADS] for thread in range(min(POOL_THREADS, len(targets)))]
        return [failure for failures in self._pool.map(self._flush_each, shares) for failure in failures]

    def _flush_file_system(self, targets: list[Target]) -> SyncFailures:
        """One error stands for the whole disk, so it stands for every file of the round."""
        try:
            kernel.flush_file_system(self._root_fd)
        except OSError as error:
            return [(target.path, str(error)) for target in targets]
        return []

    def _flush_one(self, target: Target) -> None:
        if target.fd >= 0:
            kernel.flush_file(target.fd)
            return
        fd = os.open(os.path.join(self._root, target.path), os.O_RDONLY | os.O_DIRECTORY)
        try:
            kernel.flush_directory(fd)
        finally:
            os.close(fd)
