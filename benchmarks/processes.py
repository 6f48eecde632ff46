"""Brokers as processes: started, asked until they answer, looked at from outside, stopped.

CPU time, memory and open files come from /proc; where there is none they are reported as zero.
"""

import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.load import frames
from benchmarks.load.connection import Connection
from benchmarks.load.stopwatch import cpu_s

START_S_MAX = 120.0
STOP_S_MAX = 60.0


@dataclass(frozen=True, slots=True)
class Command:
    """How to start a broker. `environment` is added to ours."""

    name: str
    arguments: Sequence[str]
    port: int
    data_dir: Path
    environment: Mapping[str, str] = field(default_factory=dict)


class Broker:
    """A running broker. A context: leaving it stops the process."""

    def __init__(self, command: Command, *, waits: bool = True) -> None:
        """Nodes of a cluster need each other before they answer: those are started without waiting, and waited for together."""
        self.name = command.name
        self.port = command.port
        self.data_dir = command.data_dir
        command.data_dir.mkdir(parents=True, exist_ok=True)
        self.log_path = command.data_dir.parent / f"{command.data_dir.name}.out"
        self._began = time.perf_counter()
        with open(self.log_path, "ab") as log:
            self._process = subprocess.Popen(command.arguments, stdout=log, stderr=log, env={**os.environ, **command.environment})
        self.pid = self._process.pid
        self.start_s = 0.0  # From exec to the first ApiVersions reply.
        if waits:
            self.wait_for_first_reply()

    def __enter__(self) -> "Broker":
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> float:
        """Asks it to stop and returns how long that took."""
        began = time.perf_counter()
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)
            try:
                self._process.wait(STOP_S_MAX)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
        return time.perf_counter() - began

    def kill(self) -> None:
        """kill -9, and wait until it is gone."""
        self._process.kill()
        self._process.wait()

    def delete_data(self) -> None:
        shutil.rmtree(self.data_dir, ignore_errors=True)

    def cpu_s(self) -> float:
        return cpu_s(self.pid)

    def memory_bytes(self) -> int:
        return self._status_kilobytes("VmRSS:") << 10

    def memory_peak_bytes(self) -> int:
        return self._status_kilobytes("VmHWM:") << 10

    def open_files(self) -> int:
        try:
            return len(os.listdir(f"/proc/{self.pid}/fd"))
        except OSError:
            return 0

    def wait_for_first_reply(self) -> None:
        give_up = time.monotonic() + START_S_MAX
        while time.monotonic() < give_up:
            if self._process.poll() is not None:
                raise RuntimeError(f"{self.name} ended with {self._process.returncode} before it answered; see {self.log_path}")
            if _answers(self.port):
                self.start_s = time.perf_counter() - self._began
                return
            time.sleep(0.005)
        self.stop()
        raise RuntimeError(f"{self.name} did not answer in {START_S_MAX:.0f} s; see {self.log_path}")

    def _status_kilobytes(self, name: str) -> int:
        return next((int(line.split()[1]) for line in self._read("status").splitlines() if line.startswith(name)), 0)

    def _read(self, name: str) -> str:
        try:
            return Path(f"/proc/{self.pid}/{name}").read_text()
        except OSError:
            return ""


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]
        return port


def settle() -> None:
    """Lets the disk finish what was written so far, so that the next measurement does not pay for the last one."""
    os.sync()
    time.sleep(0.5)


def _answers(port: int) -> bool:
    try:
        connection = Connection("127.0.0.1", port, receive_bytes=1 << 16)
    except OSError:
        return False
    try:
        return len(connection.ask(frames.api_versions())) > 0
    except OSError:
        return False
    finally:
        connection.close()
