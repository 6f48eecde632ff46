"""Makes the environment that every other target of the Makefile uses, and shows what it is doing: some minutes on a new machine.

    python3 scripts/set_up.py .venv [--again]

1. programs that the next steps build with (system_packages.py), 2. a virtual environment, 3. the locked packages, 4. this project in it,
5. programs that pipelines and tests run on. `--again`, in an environment that is up to date, looks only for programs that are missing, and
builds the project anew where a program has come that its last build lacked.
Needs nothing but the standard library.
"""

import itertools
import re
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import make_venv
import progress
import system_packages

LOCK = Path("requirements", "dev.lock")
LACKED = ".penstock-built-without"  # In the environment: names of programs, one in a line.
REQUIREMENT = re.compile(r"^[A-Za-z0-9][\w.-]*(\[[\w,-]+\])?==", re.MULTILINE)
DOWNLOADING = re.compile(r"\s*(?:Downloading|Using cached|Processing) (?:\S*/)?([A-Za-z0-9_.]+)-\S+(?: \(([^)]+)\))?")
PIP_INSTALL = ("-m", "pip", "--disable-pip-version-check", "install", "--progress-bar", "off")
LINES_MAX = 30


def main() -> int:
    directory, again = Path(sys.argv[1]), "--again" in sys.argv[2:]
    lacks = {program.name for program in system_packages.provide(system_packages.TO_BUILD)}
    code = 0 if again else install_packages(directory)
    if code == 0 and not (again and lacked(directory) <= lacks):
        code = install_project(directory)
        if code == 0:
            (directory / LACKED).write_text("\n".join(sorted(lacks)))
    if code == 0:
        system_packages.provide(system_packages.TO_RUN)
    return code


def lacked(directory: Path) -> set[str]:
    """Returns the programs that the project was built without."""
    file = directory / LACKED
    return set(file.read_text().splitlines()) if file.exists() else set()


def install_packages(directory: Path) -> int:
    if not make_venv.is_complete(directory):
        with progress.Progress("virtual environment"):
            make_venv.make(directory)
    forget_half_installed(directory)
    total = len(REQUIREMENT.findall(LOCK.read_text()))
    return pip_install(directory, f"{total} packages", "--require-hashes", "-r", str(LOCK))


def forget_half_installed(directory: Path) -> None:
    """Lets pip install again what an interrupted pip had begun to: it would take that for installed, or fail on it each time."""
    for package in directory.glob("lib/python*/site-packages/*.dist-info"):
        if not (package / "INSTALLER").exists():  # Written when all files of the package are there.
            shutil.rmtree(package)


def install_project(directory: Path) -> int:
    return pip_install(directory, "penstock, with its compiled parts", "--no-deps", "--no-build-isolation", "--editable", ".")


def pip_install(directory: Path, label: str, *arguments: str) -> int:
    """Returns pip's exit code. Shows the end of what it printed when it fails, and else its warnings."""
    code, lines = progress.run([str(directory / "bin" / "python"), *PIP_INSTALL, *arguments], label, steps_of_pip())
    shown = lines[-LINES_MAX:] if code != 0 else [line for line in lines if line.startswith("WARNING: ")]
    print(*shown, sep="\n", end="\n" if shown else "", file=sys.stderr)
    return code


def steps_of_pip() -> Callable[[str], str | None]:
    """Returns a function that reads a line of pip; it counts what pip fetches."""
    numbers = itertools.count(1)

    def step_in(line: str) -> str | None:
        found = DOWNLOADING.match(line)
        if found:
            return f"fetching {next(numbers)}: {found[1]}{f' ({found[2]})' if found[2] else ''}"
        return "installing" if line.startswith("Installing collected packages") else None

    return step_in


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit("interrupted; `make setup` goes on from there")
