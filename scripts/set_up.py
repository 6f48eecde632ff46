"""Makes the environment that every other target of the Makefile uses, and shows what it is doing: some minutes on a new machine.

    python3 scripts/set_up.py .venv

1. programs that the next steps build with (system_packages.py), 2. a virtual environment, 3. the locked packages, 4. this project in it,
5. programs that pipelines and tests run on.
Needs nothing but the standard library.
"""

import re
import subprocess
import sys
from pathlib import Path

import make_venv
import system_packages
from progress import Progress

LOCK = Path("requirements", "dev.lock")
REQUIREMENT = re.compile(r"^[A-Za-z0-9][\w.-]*(\[[\w,-]+\])?==", re.MULTILINE)
DOWNLOADING = re.compile(r"\s*(?:Downloading|Using cached|Processing) (?:\S*/)?([A-Za-z0-9_.]+)-\S+(?: \(([^)]+)\))?")
LAST_LINES = 30


def main() -> int:
    directory = Path(sys.argv[1])
    python = directory / "bin" / "python"
    system_packages.provide(system_packages.TO_BUILD)
    if not python.exists():
        with Progress("virtual environment"):
            make_venv.make(str(directory))
    pip = [str(python), "-m", "pip", "--disable-pip-version-check", "install", "--progress-bar", "off"]
    total = len(REQUIREMENT.findall(LOCK.read_text()))
    code = run([*pip, "--require-hashes", "-r", str(LOCK)], f"{total} packages")
    code = code or run([*pip, "--no-deps", "--no-build-isolation", "--editable", "."], "penstock, with its compiled parts")
    if code == 0:
        system_packages.provide(system_packages.TO_RUN)
    return code


def run(command: list[str], label: str) -> int:
    """Runs pip; what it said is shown when it fails, or when it warns."""
    lines: list[str] = []
    fetched = 0
    with Progress(label) as progress, subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as running:
        assert running.stdout is not None
        for line in running.stdout:
            lines.append(line)
            found = DOWNLOADING.match(line)
            if found:
                fetched += 1
                progress.say(f"fetching {fetched}: {found[1]}{f' ({found[2]})' if found[2] else ''}")
            elif line.startswith("Installing collected packages"):
                progress.say("installing")
        running.wait()
    if running.returncode != 0:
        print(*lines[-LAST_LINES:], sep="", file=sys.stderr)
    return running.returncode


if __name__ == "__main__":
    sys.exit(main())
