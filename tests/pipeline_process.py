"""A pipeline as an operating system sees it: `penstock pipeline run` with its JVM and Python workers, and signals that end some of them.

Spark's Python workers leave the process group of their driver, so its family is found by parents, not by groups.
"""

import os
import random
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from waiting import SPARK_PATIENCE_S, until

ROOT = Path(__file__).parents[1]


class PipelineProcess:
    """One process at a time; started again, it goes on from its checkpoints."""

    def __init__(self, bootstrap: str, job: str, directory: Path, *arguments: str, settings: dict[str, str]) -> None:
        self.log = directory / "pipeline.log"
        self.directory = directory
        self._command = [sys.executable, "-m", "penstock", "pipeline", "run", job, "--bootstrap", bootstrap, "--directory", str(directory)]
        self._command += [*arguments, *(part for name, value in settings.items() for part in ("--conf", f"{name}={value}"))]
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, failure: BaseException | None, trace: TracebackType | None) -> None:
        if self._process is not None:
            self.kill_all()
        if failure is not None:
            print(f"the pipeline said:\n{self.said()[-4_000:]}")

    def start(self, *more: str) -> Self:
        with self.log.open("ab") as log:
            self._process = subprocess.Popen([*self._command, *more], stdout=log, stderr=log, cwd=ROOT)
        return self

    def is_alive(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def until(self, is_so: Callable[[], bool], what: str) -> None:
        """Waits until it is so, starting it again where it has ended."""

        def is_so_at_last() -> bool:
            if is_so():
                return True
            if not self.is_alive():
                self.start()
            return False

        until(
            is_so_at_last, lambda: f"{what}; the pipeline said:\n{self.said()[-3_000:]}", every_s=0.2, patience_s=SPARK_PATIENCE_S
        )  # fmt: skip

    def wait(self) -> int:
        assert self._process is not None
        return self._process.wait(SPARK_PATIENCE_S)

    def stop(self) -> int:
        """Asks it to stop; its exit code."""
        assert self._process is not None
        self._process.send_signal(signal.SIGTERM)
        return self.wait()

    def kill_driver(self) -> None:
        """The driver and its JVM, at once. Python workers are left to find out for themselves."""
        assert self._process is not None
        javas = [pid for pid in family(self._process.pid) if "java" in command_of(pid)[0]]
        for pid in [self._process.pid, *javas]:
            kill(pid)
        self._process.wait()

    def kill_all(self) -> None:
        """As when the machine goes."""
        assert self._process is not None
        for pid in [*family(self._process.pid), self._process.pid]:
            kill(pid)
        self._process.wait()

    def kill_a_worker(self, rng: random.Random) -> str:
        """One of Spark's Python processes, of any module, as soon as there is one; what it was."""
        return self._kill_one_of(self._pythons, rng)

    def kill_a_fork(self, rng: random.Random, module: str) -> str:
        """One of the processes that a daemon of Spark forked to run tasks in this module, as soon as there is one; what it was."""

        def forks() -> dict[int, str]:
            pythons = self._pythons()
            return {pid: it for pid, it in pythons.items() if it.endswith(f" {module}") and pythons.get(parent_of(pid)) == it}

        return self._kill_one_of(forks, rng)

    def _pythons(self) -> dict[int, str]:
        assert self._process is not None
        commands = {pid: " ".join(command_of(pid)[1:4]) for pid in family(self._process.pid)}
        return {pid: command for pid, command in commands.items() if command.startswith("-m ") and "pyspark" in command}

    def _kill_one_of(self, found: Callable[[], dict[int, str]], rng: random.Random) -> str:
        killed = ""

        def is_killed() -> bool:
            nonlocal killed
            processes = found()
            chosen = rng.choice(list(processes)) if processes else 0
            killed = processes[chosen] if chosen and kill(chosen) else ""
            return killed != ""

        self.until(is_killed, "a Python process of Spark to kill")
        return killed

    def said(self) -> str:
        logs = [self.log, *self.directory.glob("*/spark.log")]
        return "\n".join(log.read_text(errors="replace") for log in logs if log.exists())


def family(pid: int) -> list[int]:
    """All that descend from it, the oldest first."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            children.setdefault(parent_of(int(entry.name)), []).append(int(entry.name))
    found: list[int] = []
    waiting = [pid]
    while waiting:
        born = sorted(children.get(waiting.pop(0), []))
        found += born
        waiting += born
    return found


def parent_of(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    except (OSError, IndexError):
        return 0


def command_of(pid: int) -> Sequence[str]:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace").split("\0") or [""]
    except OSError:
        return [""]


def kill(pid: int) -> bool:
    """Returns whether there was such a process."""
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return False
    return True
