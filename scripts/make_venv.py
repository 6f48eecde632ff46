"""Makes a virtual environment with pip in it, on a machine that may have little more than Python.

    python3 scripts/make_venv.py .venv

Some distributions ship Python without `ensurepip`; then a pip that the machine already has is lent to the new environment.
Where there is none either, this says what to install. An environment that was interrupted while it was made is made anew.
Used by the Makefile; needs nothing but the standard library.
"""

import importlib.util
import subprocess
import sys
import venv
from pathlib import Path

OLDEST = (3, 11)


def is_complete(directory: Path) -> bool:
    """Looks for the command `pip`: what installs pip writes it last."""
    return all((directory / "bin" / name).exists() for name in ("python", "pip"))


def make(directory: Path) -> None:
    if is_complete(directory):
        return
    if sys.version_info < OLDEST:
        sys.exit(
            f"penstock needs Python {OLDEST[0]}.{OLDEST[1]} or newer; this is {sys.version.split()[0]}\n"
            "  name a newer one: make setup PYTHON=python3.12"
        )
    has_ensurepip = importlib.util.find_spec("ensurepip") is not None
    if not has_ensurepip and importlib.util.find_spec("pip") is None:
        sys.exit(
            "this Python can make no virtual environment: it has neither ensurepip nor pip\n"
            "  on Debian and Ubuntu: apt-get install python3-venv; on Fedora: dnf install python3-pip"
        )
    is_unfinished = (directory / "pyvenv.cfg").exists()  # No other directory may be emptied, whatever VENV names.
    venv.create(directory, with_pip=has_ensurepip, clear=is_unfinished)
    if not has_ensurepip:
        subprocess.run([sys.executable, "-m", "pip", "--python", f"{directory}/bin/python", "install", "--quiet", "pip"], check=True)


if __name__ == "__main__":
    make(Path(sys.argv[1]))
