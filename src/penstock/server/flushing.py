"""Flush rounds: how a set of dirty files becomes durable, and which of four ways is quickest.

One round at a time. What is asked for during a round is gathered into the next one, however many ask.
- A few files: fdatasync of each, side by side, by threads that never take the interpreter (flush_threads.py), where there are such.
- A single file or directory, otherwise: fdatasync in a thread.
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
from typing import NamedTuple, Protocol

from penstock.env import SyncFailures
from penstock.server import flush_threads, kernel
from penstock.server.vigil import Vigil

POOL_THREADS = 8  # Measured with 4, 8 and 16: more than 8 gain nothing until many hundreds of files.


class Way(Enum):
    EACH = "fdatasync, one after another"
    POOL = "fdatasync, by a pool"
    FILE_SYSTEM = "syncfs"


class Held(Protocol):
    """An open file whose descriptor is not given back before `release`."""

    @property
    def path(self) -> str: ...

    @property
    def fd(self) -> int: ...

    def hold(self) -> None: ...

    def release(self) -> None: ...


class Directory(NamedTuple):
    """Opened for the round."""

    path: str


Target = Held | Directory
Ended = Callable[[SyncFailures], None]


class Chooser:
    """Picks the way of each round from what earlier rounds took. Holds no clock: `now_s` is the caller's."""

    SUSPECT_RATIO = 4.0  # Syncfs may cost this much more than the pool is thought to before it is put aside.
    SUSPECT_S = 0.005  # Below this nobody would notice.
    PAUSE_S = 0.25  # How long syncfs is put aside the first time; each bad trial doubles it.
    PAUSE_S_MAX = 30.0

    def __init__(self, *, can_use_syncfs: bool) -> None:
        self.can_use_syncfs = can_use_syncfs
        self._pool_s_per_target = 0.000_1  # A guess until a pool round was measured.
        self._resume_at_s = 0.0
        self._pause_s = self.PAUSE_S

    def choose(self, targets: int, now_s: float) -> Way:
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
    files: Sequence[Held]
    directories: Sequence[Directory]
    ended: Ended


class _Round:
    __slots__ = ("directories", "failures", "files", "loop", "under_way", "wishes")

    def __init__(self, wishes: list[_Wish], loop: asyncio.AbstractEventLoop) -> None:
        self.wishes = wishes
        self.loop = loop
        # Each open file and each directory once, in the order asked for.
        files, directories, _ = wishes[0]
        if len(wishes) > 1:
            files = [file for wish in wishes for file in wish.files]
            directories = [directory for wish in wishes for directory in wish.directories]
        self.files: Sequence[Held] = files if len(files) == 1 else list(dict.fromkeys(files))
        self.directories: Sequence[Directory] = list(dict.fromkeys(directories)) if directories else ()
        self.under_way = 0  # So many files are not reported yet by those who flush them side by side.
        self.failures: dict[str, str] = {}

    def answer(self) -> None:
        for wish in self.wishes:
            files, _, ended = wish
            for file in files:
                file.release()
            ended(self._failures_of(wish) if self.failures else [])

    def _failures_of(self, wish: _Wish) -> SyncFailures:
        targets: list[Target] = [*wish.files, *wish.directories]
        return [(target.path, self.failures[target.path]) for target in targets if target.path in self.failures]


class Flusher:
    """Runs rounds, in threads, for one event loop."""

    def __init__(self, root: str, vigil: Vigil, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._root = root
        self._vigil = vigil
        self._clock = clock
        # Open for as long as the flusher lives: syncfs reports the failures since its descriptor was opened.
        self._root_fd = os.open(root, os.O_RDONLY)
        self._few = flush_threads.start()  # For a few files.
        self._fews_loop: asyncio.AbstractEventLoop | None = None  # Where they are listened to.
        self.few_max = 0 if self._few is None else flush_threads.FILES_MAX
        self.chooser = Chooser(can_use_syncfs=kernel.can_flush_file_system(self._root_fd))
        self._waiting: list[_Wish] = []
        self._running: _Round | None = None
        # A plain thread and queue: an executor's futures would lengthen a small flush by a fifth.
        self._rounds: SimpleQueue[tuple[_Round, Way, list[Target]] | None] = SimpleQueue()
        self._worker = threading.Thread(target=self._run_rounds, name="flush", daemon=True)
        self._worker.start()
        self._pool = ThreadPoolExecutor(POOL_THREADS, "flush-pool")

    def flush(self, files: Sequence[Held], directories: Sequence[str], ended: Ended) -> None:
        """Holds the descriptors until they are no longer used, and then calls `ended` with what failed of these, in the loop's thread."""
        for file in files:
            file.hold()
        self._waiting.append(_Wish(files, [Directory(path) for path in directories] if directories else (), ended))
        if self._running is None:
            self._begin_round(asyncio.get_running_loop())

    def close(self) -> None:
        if self._root_fd == -1:
            return
        self._rounds.put(None)
        self._worker.join()
        self._pool.shutdown()
        if self._few is not None:
            if self._fews_loop is not None and not self._fews_loop.is_closed():
                self._fews_loop.remove_reader(self._few.told)
            self._few.close()
            self.few_max = 0
        os.close(self._root_fd)
        self._root_fd = -1

    def _begin_round(self, loop: asyncio.AbstractEventLoop) -> None:
        gathered = _Round(self._waiting, loop)
        self._running, self._waiting = gathered, []
        if not gathered.directories and len(gathered.files) <= self.few_max:
            self._begin_few(gathered)
        else:
            targets: list[Target] = [*gathered.files, *gathered.directories]
            self._rounds.put((gathered, self.chooser.choose(len(targets), self._clock()), targets))

    def _end_round(self, gathered: _Round) -> None:
        self._running = None
        if gathered.failures:
            self.chooser.distrust()
        if self._waiting:
            self._begin_round(gathered.loop)
        gathered.answer()

    # A few files

    def _begin_few(self, gathered: _Round) -> None:
        assert self._few is not None
        if self._fews_loop is not gathered.loop:
            self._fews_loop = gathered.loop
            gathered.loop.add_reader(self._few.told, self._few_told)
        gathered.under_way = len(gathered.files)
        self._few.begin([file.fd for file in gathered.files])
        self._vigil.begin(gathered.loop)

    def _few_told(self) -> None:
        gathered = self._running
        assert self._few is not None
        reports = self._few.ended()
        if not reports or gathered is None:
            return
        gathered.under_way -= len(reports)
        for place, code in reports:
            if code:
                gathered.failures[gathered.files[place].path] = str(OSError(code, os.strerror(code)))
        if not gathered.under_way:
            self._vigil.end()
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
        if not isinstance(target, Directory):
            kernel.flush_file(target.fd)
            return
        fd = os.open(os.path.join(self._root, target.path), os.O_RDONLY | os.O_DIRECTORY)
        try:
            kernel.flush_directory(fd)
        finally:
            os.close(fd)
