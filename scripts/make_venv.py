"""Makes a virtual environment with pip in it, on a machine that may have little more than Python.

Some distributions ship Python without `ensurepip`; then a pip that the machine already has is lent to the new environment.
Where there is none either, this says what to install. Used by the Makefile; needs nothing but the standard library.
"""

import importlib.util
import subprocess
import sys
import venv

OLDEST = (3, 11)


def make(directory: str) -> None:
    if sys.version_info < OLDEST:
        sys.exit(
            f"penstock needs Python {OLDEST[0]}.{OLDEST[1]} or newer; this is {sys.version.split()[0]}\n"
            "  name a newer one: make setup PYTHON=python3.12"
        )
    if importlib.util.find_spec("ensurepip") is not None:
        venv.create(directory, with_pip=True)
        return
    if importlib.util.find_spec("pip") is None:
        sys.exit(
            "this Python can make no virtual environment: it has neither ensurepip nor pip\n"
            "  on Debian and Ubuntu: apt-get install python3-venv; on Fedora: dnf install python3-pip"
        )
    venv.create(directory, with_pip=False)
    subprocess.run([sys.executable, "-m", "pip", "--python", f"{directory}/bin/python", "install", "--quiet", "pip"], check=True)


if __name__ == "__main__":
    make(sys.argv[1])
