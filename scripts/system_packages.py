"""Installs the programs that Penstock and its tests use and pip cannot bring, where the system and the user allow it.

    python scripts/system_packages.py

TO_BUILD is needed before pip runs; Java is what Spark runs on; the others are for tests, which are skipped without them. On Debian and its
children root gets them from the system's packages; elsewhere, and where apt-get fails, this says what is missing. It never fails: without a
program everything but the named part works.
Used by `make setup` (set_up.py), and by the suite for what it skips (tests/machine.py); needs nothing but the standard library.
"""

import importlib
import importlib.util
import os
import re
import shutil
import sys
import sysconfig
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import progress

STATUS = re.compile(r"(?:dl|pm)status:([^:]*):([0-9.]+):")  # What apt-get tells on its status descriptor.
APT_GET = ("apt-get", "--quiet=2", "--yes", "--no-install-recommends", "-o", "APT::Status-Fd=1", "-o", "Dpkg::Use-Pty=0")
LINES_MAX = 8
BROWSERS = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome", "chrome-headless-shell")

Probe = Callable[[], bool]


@dataclass(frozen=True, slots=True)
class Program:
    name: str
    is_there: Probe
    packages: tuple[str, ...]  # The first that the system has is installed; names that belong together have a space between them.
    without: str
    obstacle: Callable[[], str | None] = lambda: None  # Why no package would help.


def command(*names: str) -> Probe:
    """Returns a probe for any of these commands."""
    return lambda: any(shutil.which(name) for name in names)


def has_java() -> bool:
    """Looks where Spark and Maven do."""
    home = os.environ.get("JAVA_HOME")
    return shutil.which("java", path=os.path.join(home, "bin") if home else None) is not None


def wrong_java_home() -> str | None:
    home = os.environ.get("JAVA_HOME")
    return f"JAVA_HOME is {home}, and there is no bin/java in it: set it to where Java is, or unset it" if home and not has_java() else None


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
        wrong_java_home,
    ),
    Program("Maven", command("mvn"), ("maven",), "the tests with Apache Kafka's own clients are skipped"),
    Program("Chromium", command(*BROWSERS), ("chromium-headless-shell", "chromium"), "the tests of pages are skipped"),
    Program("ip", command("ip"), ("iproute2",), "the tests that cut a network are skipped"),
)


def main() -> None:
    provide(TO_BUILD + TO_RUN)


def lack_of(name: str) -> str | None:
    """Returns None where a program of the tables is there, else a sentence that names its packages."""
    (program,) = (each for each in TO_BUILD + TO_RUN if each.name == name)
    if program.is_there():
        return None
    return program.obstacle() or f"there is no {name} here (Debian: {' or '.join(program.packages)})"


def may_install() -> bool:
    return os.geteuid() == 0 and shutil.which("apt-get") is not None


def provide(programs: Sequence[Program]) -> list[Program]:
    """Installs those that are missing, where that is allowed. Names those that still are, and returns them."""
    missing = [program for program in programs if not program.is_there()]
    installable = [program for program in missing if program.obstacle() is None]
    if installable and may_install():
        install(installable)
    still_missing = [program for program in missing if not program.is_there()]
    for program in still_missing:
        print(f"{program.name} is missing, so that {program.without}; everything else works\n  {advice(program)}", file=sys.stderr)
    return still_missing


def advice(program: Program) -> str:
    obstacle = program.obstacle()
    if obstacle is not None:
        return obstacle
    others = f" (or {', '.join(program.packages[1:])})" if program.packages[1:] else ""
    if may_install():
        return "apt-get did not bring it, as is shown above; `make setup` tries again"
    return f"on Debian and Ubuntu: apt-get install {program.packages[0]}{others}; then `make setup`"


def install(programs: Sequence[Program]) -> None:
    """Installs for each program the first of its packages that apt-get has."""
    # Images come without the lists, and old ones name packages that are gone. Without a network apt-get would call this a success.
    apt_get("lists of packages", "update", "-o", "APT::Update::Error-Mode=any")
    for program in programs:
        for package in program.packages:
            if apt_get(f"{program.name} ({package})", "install", *package.split()):
                break
    importlib.invalidate_caches()


def apt_get(label: str, *arguments: str) -> bool:
    """Returns whether it succeeded, and shows what it said last if not."""
    code, lines = progress.run([*APT_GET, *arguments], label, step_in, os.environ | {"DEBIAN_FRONTEND": "noninteractive"})
    if code != 0:
        print(*(f"  {line}" for line in lines[-LINES_MAX:]), sep="\n", file=sys.stderr)
    return code == 0


def step_in(line: str) -> str | None:
    status = STATUS.match(line)
    return f"{status[2].partition('.')[0]} % {status[1]}" if status else None


if __name__ == "__main__":
    main()
