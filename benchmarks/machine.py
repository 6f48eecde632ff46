"""Where figures come from: date, commit, machine and command, as the header of a result file. Figures without them mean nothing.

scripts/results.py demands these fields of every file in benchmarks/results.
"""

import os
import platform
import shlex
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

from penstock.server import kernel
from penstock.wire import records

SMALL_VALUES = "broker and generator share the machine; generator on loopback, 100-byte values"


def described(data_dir: Path, measured: str = SMALL_VALUES) -> dict[str, str]:
    """Returns the fields of the header. To be called when a run begins: its date and its commit are those of now."""
    machine = [
        f"{os.cpu_count()} cores ({_processor()}), {_memory_gb():.0f} GB",
        f"{platform.system()} {platform.release()}, {_file_system(data_dir)}",
        f"Python {platform.python_version()}, compiled record loop: {'yes' if records.COMPILED else 'no'}",
    ]
    return {
        "date": f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC",
        "commit": _commit(),
        "machine": "; ".join(machine),
        "command": f"`{_command()}`",
        "measured": measured,
    }


def header(title: str, fields: dict[str, str]) -> str:
    """Returns the beginning of a result file, with the empty line that must follow."""
    return "\n".join([f"# {title}", "", "| | |", "|---|---|", *(f"| {name} | {text} |" for name, text in fields.items()), ""])


def is_in_memory(data_dir: Path) -> bool:
    return _file_system(data_dir) in ("tmpfs", "ramfs")


def _commit() -> str:
    def git(*arguments: str) -> str:
        return subprocess.run(["git", *arguments], cwd=Path(__file__).parent, capture_output=True, text=True, check=False).stdout.strip()

    # A result file that is being written does not change what is measured.
    changes = git("status", "--porcelain", "--", ":/", ":(top,exclude)benchmarks/results")
    return (git("rev-parse", "--short", "HEAD") or "unknown") + ("-dirty" if changes else "")


def _command() -> str:
    spec = getattr(sys.modules["__main__"], "__spec__", None)  # None in a program that was not started with `python -m`.
    program = ["-m", spec.name.removesuffix(".__main__")] if spec else sys.argv[:1]
    return shlex.join(["python", *program, *sys.argv[1:]])


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.machine()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), platform.machine())


def _memory_gb() -> float:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e9


def _file_system(data_dir: Path) -> str:
    if not kernel.IS_LINUX:
        return "file system unknown"
    mounts = (line.split() for line in Path("/proc/self/mounts").read_text().splitlines())
    held = [(len(mount[1]), mount[2]) for mount in mounts if data_dir.resolve().is_relative_to(mount[1])]
    return max(held)[1] if held else "file system unknown"
