"""The node that a player meets: `penstock serve` as a process, on a free port and a temporary directory, with nothing changed.

Also what can be seen of it from outside: its log, its exit code, and the codec of the batches in its files.
"""

import json
import os
import shlex
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from types import TracebackType
from typing import Self

from conformance.workshop import ROOT

STOP_SECONDS_MAX = 30.0
SIGNS_OF_TROUBLE = (" ERROR ", " CRITICAL ", "Traceback", "never retrieved", "Exception in callback")


class Node:
    def __enter__(self) -> Self:
        self._directory = tempfile.TemporaryDirectory(prefix="penstock-conformance-")
        self._data = Path(self._directory.name, "data")
        self._log = Path(self._directory.name, "log")
        command = [sys.executable, "-m", "penstock", "serve", "--data-dir", str(self._data), "--kafka", "127.0.0.1:0", "--http", "off"]
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=log, text=True, env=_environment())
        assert self._process.stdout is not None
        ready = self._process.stdout.readline()
        if not ready.startswith("penstock ready "):
            raise RuntimeError(f"the node did not start:\n{self._log.read_text()}")
        self.bootstrap = dict(pair.split("=", 1) for pair in shlex.split(ready)[2:])["kafka"]
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self._process.poll() is None:
            self._process.kill()
            self._process.wait()
        self._directory.cleanup()

    def stop(self) -> str:
        """Asks it to stop; "ok", or what was wrong with its life."""
        self._process.send_signal(signal.SIGTERM)
        try:
            code = self._process.wait(STOP_SECONDS_MAX)
        except subprocess.TimeoutExpired:
            return f"it did not stop within {STOP_SECONDS_MAX:.0f} s"
        troubles = [line for line in self._log.read_text(errors="replace").splitlines() if any(sign in line for sign in SIGNS_OF_TROUBLE)]
        if code != 0:
            return f"it ended with code {code}"
        return troubles[0] if troubles else "ok"

    def stored_codecs(self, topic: str) -> set[str]:
        """The codecs of a topic's batches, as its files have them."""
        told = self._penstock("topics", "describe", topic, "--json", "--bootstrap", self.bootstrap)
        directory = self._data / "topics" / json.loads(told)["id"]
        batches = [json.loads(line) for line in self._penstock("log", "dump", "--json", str(directory)).splitlines()]
        return {batch["codec"] for batch in batches if "codec" in batch}

    def _penstock(self, *arguments: str) -> str:
        return subprocess.run([sys.executable, "-m", "penstock", *arguments], cwd=ROOT, capture_output=True, text=True, check=True).stdout


def _environment() -> dict[str, str]:
    """Returns this process's variables without those that a node reads its settings from."""
    return {name: value for name, value in os.environ.items() if not name.startswith("PENSTOCK_")}
