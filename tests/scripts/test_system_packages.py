"""What `make setup` does where a program is missing: it installs it where it may, else says what to install, and never fails."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "scripts" / "system_packages.py"
COMMANDS = ("cc", "java", "mvn", "chromium", "ip")
# Knows of Java 21 only, and only once its lists are there.
APT_GET = """#!/bin/sh
echo "$@" >> {calls}
case "$*" in
  *" update "*) : > {lists};;
  *openjdk-21*) [ -e {lists} ] || exit 100; echo "pmstatus:openjdk:50.0:Unpacking"; printf '#!/bin/sh\\n' > {java}; /bin/chmod +x {java};;
  *) echo "pmstatus:nothing:50.0:Unpacking"; echo "E: Unable to locate a package" >&2; exit 100;;
esac
"""
only_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root may install packages")


def provide(path: Path, **environment: str) -> "subprocess.CompletedProcess[str]":
    kept = {name: value for name, value in os.environ.items() if name != "JAVA_HOME"} | {"PATH": str(path)}
    return subprocess.run([sys.executable, str(SCRIPT)], env=kept | environment, capture_output=True, text=True, check=False)


def executable(path: Path, text: str = "#!/bin/sh\n") -> None:
    path.write_text(text)
    path.chmod(0o755)


def all_but(missing: str, path: Path) -> Path:
    """Makes a machine that has every program but one, and whose apt-get is to be told apart by its calls."""
    for command in set(COMMANDS) - {missing}:
        executable(path / command)
    return path / "calls"


def packages(calls: Path) -> list[str]:
    """Returns what apt-get was asked to install, and when to update its lists."""
    return ["update" if " update " in call else call.split()[-1] for call in calls.read_text().splitlines()]


def test_without_a_way_to_install_programs_it_names_their_packages_and_goes_on(tmp_path: Path) -> None:
    ended = provide(tmp_path)
    assert ended.returncode == 0
    for package in ("gcc libc6-dev;", "openjdk-17-jre-headless (or ", "maven;", "chromium-headless-shell (or ", "iproute2;"):
        assert f"apt-get install {package}" in ended.stderr
    assert ended.stderr.count("everything else works") == len(COMMANDS)


def test_where_every_program_is_there_nothing_is_printed_or_installed(tmp_path: Path) -> None:
    calls = all_but("none", tmp_path)
    executable(tmp_path / "apt-get", f"#!/bin/sh\necho called > {calls}\n")
    ended = provide(tmp_path)
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "", "") and not calls.exists()


@only_root
def test_root_installs_the_first_package_that_the_system_has(tmp_path: Path) -> None:
    calls = all_but("java", tmp_path)
    executable(tmp_path / "apt-get", APT_GET.format(calls=calls, lists=tmp_path / "lists", java=tmp_path / "java"))
    ended = provide(tmp_path)
    assert ended.returncode == 0 and "is missing" not in ended.stderr
    assert "Java (openjdk-17-jre-headless): failed\n  E: Unable to locate a package\n" in ended.stderr
    assert "Java (openjdk-21-jre-headless): done" in ended.stderr, "each step says what it does"
    assert packages(calls) == ["update", "openjdk-17-jre-headless", "openjdk-21-jre-headless"]


@only_root
def test_what_apt_get_cannot_bring_is_shown_with_its_errors_and_not_recommended(tmp_path: Path) -> None:
    all_but("mvn", tmp_path)
    executable(tmp_path / "apt-get", "#!/bin/sh\necho 'E: Temporary failure resolving deb.debian.org' >&2\nexit 100\n")
    ended = provide(tmp_path)
    assert ended.returncode == 0 and "done" not in ended.stderr
    assert "Maven (maven): failed\n  E: Temporary failure resolving deb.debian.org\nMaven is missing" in ended.stderr
    assert "apt-get install" not in ended.stderr and "`make setup` tries again" in ended.stderr


@only_root
def test_no_further_package_is_installed_after_one_that_apt_get_did_bring(tmp_path: Path) -> None:
    calls = all_but("java", tmp_path)
    executable(tmp_path / "apt-get", f'#!/bin/sh\necho "$@" >> {calls}\n')
    assert "Java is missing" in provide(tmp_path).stderr
    assert packages(calls) == ["update", "openjdk-17-jre-headless"]


def test_a_java_home_without_java_is_named_and_nothing_is_installed(tmp_path: Path) -> None:
    calls = all_but("none", tmp_path)
    executable(tmp_path / "apt-get", f'#!/bin/sh\necho "$@" >> {calls}\n')
    ended = provide(tmp_path, JAVA_HOME=f"{tmp_path}/stale")
    assert f"JAVA_HOME is {tmp_path}/stale, and there is no bin/java in it" in ended.stderr and "apt-get" not in ended.stderr
    assert not calls.exists()
