"""moto's server, the peer that most tests of SQS code run against: messages in memory, in Python. It has an environment of its own."""

import subprocess
import sys
from pathlib import Path

from benchmarks.kafka.peer import PeerMissing
from benchmarks.processes import Command, free_port
from benchmarks.subjects import ROOT

VERSION = "5.2.5"


def install(cache: Path) -> Path:
    """The Python that has it, fetched on the first call."""
    home = cache / f"moto-{VERSION}"
    python = home / "bin" / "python"
    if not (home / "complete").exists():
        for step in (
            [sys.executable, str(ROOT / "scripts" / "make_venv.py"), str(home)],
            [str(python), "-m", "pip", "--disable-pip-version-check", "install", "--quiet", f"moto[server]=={VERSION}"],
        ):
            ended = subprocess.run(step, capture_output=True, text=True, check=False)
            if ended.returncode:
                raise PeerMissing(f"moto {VERSION} cannot be installed: {(ended.stderr or ended.stdout)[-400:].strip()}")
        (home / "complete").touch()
    return python


def command(python: Path, data_dir: Path) -> Command:
    port = free_port()
    return Command("moto", [str(python), "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)], port, data_dir)
