"""Where figures come from: machine, versions and commit, as lines of text. Figures without them mean nothing."""

import os
import platform
import subprocess
from datetime import UTC, datetime
from pathlib import Path

from penstock.server import kernel
from penstock.wire import records

SMALL_VALUES = "broker and generator share the machine; generator on loopback, 100-byte values"


def described(data_dir: Path, load: str = SMALL_VALUES) -> list[str]:
    return [
        f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC, commit {_commit()}",
        f"{os.cpu_count()} cores ({_processor()}), {_memory_gb():.0f} GB",
        f"{platform.system()} {platform.release()}, {_file_system(data_dir)}",
        f"Python {platform.python_version()}, compiled record loop: {'yes' if records.COMPILED else 'no'}",
        load,
    ]


def is_in_memory(data_dir: Path) -> bool:
    return _file_system(data_dir) in ("tmpfs", "ramfs")


def _commit() -> str:
    def git(*arguments: str) -> str:
        return subprocess.run(["git", *arguments], cwd=Path(__file__).parent, capture_output=True, text=True, check=False).stdout.strip()

    return (git("rev-parse", "--short", "HEAD") or "unknown") + (" with changes" if git("status", "--porcelain") else "")


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
