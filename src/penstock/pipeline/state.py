"""Who runs a pipeline, and how far it is, for other processes: a directory with a lock, a name card and the last progress.

    <directory>/<pipeline>/run.lock      locked for as long as somebody runs it; holds who
    <directory>/<pipeline>/status.json   its last progress, replaced as a whole

Rules: only the lock says that a pipeline runs: it goes with its process, however that ends. A signal is sent only to a process that holds
the lock *and* began when the card says, so that a number which the system has given to somebody else is never signalled.
Not here: checkpoints, which Spark keeps beside these files.
"""

import fcntl
import json
import os
import signal
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from penstock.pipeline.complaints import PipelineComplaint
from penstock.pipeline.progress import PipelineProgress

LOCK, STATUS = "run.lock", "status.json"
LOOK_SECONDS = 0.05
TAKE_SECONDS = 1.0  # Whoever only looks holds the lock for a moment too.


@dataclass(frozen=True, slots=True)
class Runner:
    """The process that runs a pipeline."""

    pid: int
    host: str
    born: str  # When the process began, as the kernel counts; empty where that is not told.
    started_ms: int
    metrics: str = ""  # HOST:PORT

    def is_alive_here(self) -> bool:
        return self.host == socket.gethostname() and self.born == _born(self.pid)


class RunDirectory:
    """One pipeline's place in the directory of all."""

    def __init__(self, directory: str | os.PathLike[str], pipeline: str) -> None:
        self.pipeline = pipeline
        self.path = Path(directory, pipeline)

    @contextmanager
    def taken(self, *, metrics: str = "") -> Iterator[Runner]:
        """Holds the lock; refused while somebody else does."""
        self.path.mkdir(parents=True, exist_ok=True)
        with open(self.path / LOCK, "a+") as lock:
            if not _lock(lock.fileno(), TAKE_SECONDS):
                raise PipelineComplaint(self._says_who_runs_it(), f"stop it first: penstock pipeline stop {self.pipeline}")
            runner = Runner(os.getpid(), socket.gethostname(), _born(os.getpid()), time.time_ns() // 1_000_000, metrics)
            lock.truncate(0)
            lock.write(json.dumps(asdict(runner)))
            lock.flush()
            yield runner

    def is_running(self) -> bool:
        try:
            with open(self.path / LOCK) as lock:
                return not _try_lock(lock.fileno())
        except FileNotFoundError:
            return False

    def runner(self) -> Runner | None:
        """Who runs it, where somebody does and his card can be read."""
        if not self.is_running():
            return None
        with suppress(ValueError, TypeError):
            return Runner(**json.loads((self.path / LOCK).read_text()))
        return None

    def write(self, progress: PipelineProgress) -> None:
        scratch = self.path / f"{STATUS}.new"
        scratch.write_text(json.dumps(progress.as_json()))
        scratch.replace(self.path / STATUS)

    def progress(self) -> PipelineProgress | None:
        """The last that was written, by whoever runs it or ran it last."""
        try:
            return PipelineProgress.from_json(json.loads((self.path / STATUS).read_text()))
        except (FileNotFoundError, ValueError, KeyError, TypeError):
            return None

    def stop(self, seconds: float) -> None:
        """Asks whoever runs it to stop, and waits until that has happened."""
        if not self.is_running():
            raise PipelineComplaint(f"the pipeline {self.pipeline!r} does not run", "see which do: penstock pipeline list")
        runner = self.runner()
        if runner is None or not runner.is_alive_here():
            where = f" on {runner.host}" if runner is not None and runner.host != socket.gethostname() else ""
            raise PipelineComplaint(
                f"the pipeline {self.pipeline!r} is run by a process{where} that cannot be reached from here", "stop it there"
            )
        try:
            os.kill(runner.pid, signal.SIGTERM)
        except PermissionError:
            raise PipelineComplaint(
                f"the pipeline {self.pipeline!r} is run by another user (pid {runner.pid})", "stop it as that user"
            ) from None
        self._wait_until_free(runner, seconds)

    def _wait_until_free(self, runner: Runner, seconds: float) -> None:
        deadline = time.monotonic() + seconds
        while self.is_running():
            if time.monotonic() > deadline:
                raise PipelineComplaint(
                    f"the pipeline {self.pipeline!r} was told to stop and still runs after {seconds:g} s (pid {runner.pid})",
                    f"wait a while longer, or end it at once, which loses nothing either: kill -9 {runner.pid}",
                )
            time.sleep(LOOK_SECONDS)

    def _says_who_runs_it(self) -> str:
        runner = self.runner()
        return f"the pipeline {self.pipeline!r} runs already" + (f" (pid {runner.pid} on {runner.host})" if runner else "")


def run_directories(directory: str | os.PathLike[str]) -> list[RunDirectory]:
    """Every pipeline that was ever run there."""
    return [RunDirectory(directory, lock.parent.name) for lock in sorted(Path(directory).glob(f"*/{LOCK}"))]


def _lock(descriptor: int, seconds: float) -> bool:
    deadline = time.monotonic() + seconds
    while not _try_lock(descriptor):
        if time.monotonic() > deadline:
            return False
        time.sleep(LOOK_SECONDS)
    return True


def _try_lock(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _born(pid: int) -> str:
    """Field 22 of /proc/PID/stat, counted behind the name, which may hold anything."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]
    except (OSError, IndexError):
        return ""
