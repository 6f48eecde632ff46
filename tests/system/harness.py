"""A node as an operating system sees it: a process with a data directory, two ports, a log, and signals that end it.

Ports are chosen once, so that clients find a restarted node again. Everything a node prints is kept in one file across restarts;
conftest.py shows the end of it beside a failed test. A plain node is forked from a process that has its modules already (warm.py), unless
its memory is what the test is about. Not here: what is done to the disk below (lazy_disk.py) and the clients.
"""

import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Self
from urllib.request import urlopen

from ports import free_port
from waiting import PATIENCE_S, until
from warm import Forked, warm

ROOT = Path(__file__).parents[2]
PENSTOCK = [sys.executable, "-m", "penstock"]
READY_POLL_S = 0.01
RESERVE = {"disk.reserve.bytes": 1 << 20}  # A file system that cannot set room aside has it written block by block.

running: list["Node"] = []  # Whose logs to show when a test fails.


class Node:
    """One node process at a time on one data directory. `settings` are node settings by name, `topic_settings` the defaults of topics,
    `network` is the file of the network namespace that it runs in, where that is another than the test's."""

    def __init__(
        self,
        data_directory: Path,
        *,
        log: Path | None = None,
        settings: Mapping[str, object] | None = None,
        topic_settings: Mapping[str, object] | None = None,
        loop: str = "auto",
        host: str = "127.0.0.1",
        is_warm: bool = True,
        network: Path | None = None,
    ) -> None:
        self.data_directory = data_directory
        self.host = host
        self.kafka_port = free_port()
        self.http_port = free_port()
        self.log = log or data_directory.with_name(data_directory.name + ".log")
        self._settings = RESERVE | dict(settings or {}) | {f"topic.{name}": value for name, value in (topic_settings or {}).items()}
        self._loop = loop
        self._is_warm = is_warm
        self._network = network
        self._process: subprocess.Popen[bytes] | Forked | None = None

    @property
    def bootstrap(self) -> str:
        return f"{self.host}:{self.kafka_port}"

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self.is_alive():
            self.kill()
        self._forget()
        if error is not None:  # A fixture that fails is gone before conftest.py can show its node.
            print(f"the node on {self.data_directory} said:\n{self.last_words()}")

    # Its life.

    def spawn(self) -> Self:
        """Starts the process and does not wait for it."""
        assert not self.is_alive(), "it is running already"
        command = self.command()
        with self.log.open("ab") as log, open(os.devnull, "rb") as nothing:
            self._said_before = log.tell()
            if self._is_warm and command[: len(PENSTOCK)] == PENSTOCK:
                streams = [file.fileno() for file in (nothing, log, log)]
                network = str(self._network or "")
                self._process = warm().start(command[len(PENSTOCK) :], streams, _environment(), str(ROOT), network)
            else:
                prefix = [] if self._network is None else ["nsenter", f"--net={self._network}", "--"]
                self._process = subprocess.Popen([*prefix, *command], stdin=nothing, stdout=log, stderr=log, cwd=ROOT, env=_environment())
        if self not in running:
            running.append(self)
        return self

    def command(self) -> list[str]:
        command = [*PENSTOCK, "serve", "--data-dir", str(self.data_directory)]
        command += ["--kafka", self.bootstrap, "--http", f"{self.host}:{self.http_port}", "--loop", self._loop]
        for name, value in self._settings.items():
            command += ["--set", f"{name}={value}"]
        return command

    def start(self) -> Self:
        return self.spawn().wait_until_ready()

    def wait_until_ready(self) -> Self:
        """Returns when it has said that it is ready; fails at once if it ends before."""
        until(self._is_ready, lambda: f"the node is ready:\n{self.last_words()}", every_s=READY_POLL_S)
        return self

    def kill(self) -> None:
        """kill -9, and wait until it is gone."""
        self.signal(signal.SIGKILL)
        self.wait()

    def stop(self) -> int:
        """SIGTERM, and wait until it has stopped by itself; its exit code."""
        self.signal(signal.SIGTERM)
        return self.wait()

    def signal(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def wait(self) -> int:
        return self.process.wait(timeout=PATIENCE_S)

    def is_alive(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def process(self) -> "subprocess.Popen[bytes] | Forked":
        assert self._process is not None, "it was never started"
        return self._process

    def _forget(self) -> None:
        if self in running:
            running.remove(self)

    # What can be seen of it.

    def resident_bytes(self) -> int:
        return self._status_kib("VmRSS") * 1024

    def peak_resident_bytes(self) -> int:
        return self._status_kib("VmHWM") * 1024

    def forget_peak(self) -> None:
        """From now on `peak_resident_bytes` is the peak after this call."""
        Path(f"/proc/{self.process.pid}/clear_refs").write_text("5")

    def metric(self, name: str) -> float:
        """The value of one line of its metrics, by its name and labels as they are printed."""
        with urlopen(f"http://{self.host}:{self.http_port}/metrics", timeout=PATIENCE_S) as page:
            lines = page.read().decode().splitlines()
        return next(float(line.removeprefix(name)) for line in lines if line.startswith(f"{name} "))

    def open_files(self) -> int:
        return len(os.listdir(f"/proc/{self.process.pid}/fd"))

    def cpu_seconds(self) -> float:
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def said(self) -> str:
        """All it has printed, over all its lives."""
        return self.log.read_text(errors="replace") if self.log.exists() else ""

    def last_words(self, lines: int = 60) -> str:
        return "\n".join(self.said().splitlines()[-lines:])

    def complaints(self) -> list[str]:
        """Lines that no node should ever print, whatever clients do: exceptions that nobody expected."""
        signs = ("Traceback", "exception was never retrieved", "Exception in callback", "Unhandled", "BrokenPromise")
        return [line for line in self.said().splitlines() if any(sign in line for sign in signs)]

    def _is_ready(self) -> bool:
        is_alive = self.is_alive()  # Asked first: what the node had printed before it ended is in the log now.
        is_ready = self.has_said_ready()
        assert is_ready or is_alive, f"the node ended with code {self.wait()} before it was ready:\n{self.last_words()}"
        return is_ready

    def has_said_ready(self) -> bool:
        """Whether this process of the node has said that it is ready."""
        with self.log.open("rb") as log:
            log.seek(self._said_before)
            return any(line.startswith(b"penstock ready ") and line.endswith(b"\n") for line in log.readlines())

    def _status_kib(self, name: str) -> int:
        for line in Path(f"/proc/{self.process.pid}/status").read_text().splitlines():
            if line.startswith(name + ":"):
                return int(line.split()[1])
        raise AssertionError(f"/proc says nothing of {name}: the node is not running")


def _environment() -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PENSTOCK_")}
    paths = [str(ROOT / "src"), kept.get("PYTHONPATH", "")]
    return kept | {"PYTHONPATH": os.pathsep.join(filter(None, paths)), "PYTHONUNBUFFERED": "1"}
