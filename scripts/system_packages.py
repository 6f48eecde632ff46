"""Installs the programs that Penstock and its tests use and pip cannot bring, where the system and the user allow it.

    python scripts/system_packages.py

TO_BUILD is needed before pip runs; Java is what Spark runs on; the others are for tests, which are skipped without them. On Debian and its
children root gets them from the system's packages; elsewhere this says what to install. It never fails: without a program everything but
the named part works.
Used by `make setup` (set_up.py); needs nothing but the standard library.
"""

import importlib
import importlib.util
import os
import re
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from progress import Progress

STATUS = re.compile(rb"(?:dl|pm)status:([^:]*):([0-9.]+):")  # What apt-get tells on its status descriptor.


Probe = Callable[[], bool]


@dataclass(frozen=True, slots=True)
class Program:
    name: str
    is_there: Probe
    packages: tuple[str, ...]  # The first that the system has is installed; names that belong together have a space between them.
    without: str


def command(*names: str) -> Probe:
    """Returns a probe for any of these commands."""
    return lambda: any(shutil.which(name) for name in names)


def has_java() -> bool:
    home = os.environ.get("JAVA_HOME")
    return shutil.which("java", path=os.path.join(home, "bin") if home else None) is not None


def can_make_environments() -> bool:
    return any(importlib.util.find_spec(name) is not None for name in ("ensurepip", "pip"))


def has_headers() -> bool:
    return os.path.exists(os.path.join(sysconfig.get_path("include"), "Python.h"))


TO_BUILD = (
    Program("venv", can_make_environments, ("python3-venv",), "no virtual environment can be made"),
    Program("C compiler", command("cc", "gcc"), ("gcc libc6-dev",), "records are checked by a slower loop"),
    Program("Python.h", has_headers, ("python3-dev",), "records are checked by a slower loop"),
)
TO_RUN = (
    Program(
        "Java",
        has_java,
        ("openjdk-17-jre-headless", "openjdk-21-jre-headless", "openjdk-25-jre-headless"),  # What Spark 4 runs on.
        "pipelines cannot run and their tests are skipped",
    ),
    Program("Maven", command("mvn"), ("maven",), "the tests with Apache Kafka's own clients are skipped"),
    Program(
        "Chromium",
        command("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome", "chrome-headless-shell"),
        ("chromium-headless-shell", "chromium"),
        "the tests of pages are skipped",
    ),
    Program("ip", command("ip"), ("iproute2",), "the tests that cut a network are skipped"),
)


def main() -> None:
    provide(TO_BUILD + TO_RUN)


def provide(programs: Sequence[Program]) -> None:
    missing = [program for program in programs if not program.is_there()]
    if missing and os.geteuid() == 0 and shutil.which("apt-get"):
        install(missing)
    for program in missing:
        if not program.is_there():
            print(f"{program.name} is missing, so that {program.without}; everything else works", file=sys.stderr)
            print(f"  on Debian and Ubuntu: apt-get install {program.packages[0]}", file=sys.stderr)


def install(missing: list[Program]) -> None:
    lists_are_new = False
    for program in missing:
        if not install_one(program) and not lists_are_new:
            apt_get("lists of packages", "update")  # Images come without them.
            lists_are_new = True
            install_one(program)


def install_one(program: Program) -> bool:
    for package in program.packages:
        apt_get(f"{program.name} ({package})", "install", "--yes", "--no-install-recommends", *package.split())
        importlib.invalidate_caches()
        if program.is_there():
            return True
    return False


def apt_get(label: str, *arguments: str) -> None:
    environment = os.environ | {"DEBIAN_FRONTEND": "noninteractive"}
    command = ["apt-get", "--quiet=2", "-o", "APT::Status-Fd=1", "-o", "Dpkg::Use-Pty=0", *arguments]
    pipe, nowhere = subprocess.PIPE, subprocess.DEVNULL
    with Progress(label) as progress, subprocess.Popen(command, env=environment, stdout=pipe, stderr=nowhere) as running:
        assert running.stdout is not None
        for line in running.stdout:
            status = STATUS.match(line)
            if status:
                progress.say(f"{status[2].decode().partition('.')[0]} % {status[1].decode()}")


if __name__ == "__main__":
    main()
