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
  *update) : > {lists};;
  *openjdk-21*) [ -e {lists} ] || exit 100; echo "pmstatus:openjdk:50.0:Unpacking"; printf '#!/bin/sh\\n' > {java}; /bin/chmod +x {java};;
  *) exit 100;;
esac
"""


def set_up(path: Path) -> "subprocess.CompletedProcess[str]":
    environment = {name: value for name, value in os.environ.items() if name != "JAVA_HOME"} | {"PATH": str(path)}
    return subprocess.run([sys.executable, str(SCRIPT)], env=environment, capture_output=True, text=True, check=False)


def executable(path: Path, text: str = "#!/bin/sh\n") -> None:
    path.write_text(text)
    path.chmod(0o755)


def test_without_a_way_to_install_programs_it_names_their_packages_and_goes_on(tmp_path: Path) -> None:
    ended = set_up(tmp_path)
    assert ended.returncode == 0
    for package in ("gcc libc6-dev", "openjdk-17-jre-headless", "maven", "chromium-headless-shell", "iproute2"):
        assert f"apt-get install {package}\n" in ended.stderr
    assert ended.stderr.count("everything else works") == len(COMMANDS)


def test_where_every_program_is_there_nothing_is_printed_or_installed(tmp_path: Path) -> None:
    for command in COMMANDS:
        executable(tmp_path / command)
    executable(tmp_path / "apt-get", f"#!/bin/sh\necho called > {tmp_path}/called\n")
    ended = set_up(tmp_path)
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "", "") and not (tmp_path / "called").exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may install packages")
def test_root_installs_the_first_package_that_the_system_has(tmp_path: Path) -> None:
    calls = tmp_path / "calls"
    for command in set(COMMANDS) - {"java"}:
        executable(tmp_path / command)
    executable(tmp_path / "apt-get", APT_GET.format(calls=calls, lists=tmp_path / "lists", java=tmp_path / "java"))
    ended = set_up(tmp_path)
    assert ended.returncode == 0 and "is missing" not in ended.stderr
    assert "Java (openjdk-21-jre-headless): done" in ended.stderr, "each step says what it does"
    names = [call.split()[-1] for call in calls.read_text().splitlines()]
    tried = [f"openjdk-{version}-jre-headless" for version in (17, 21, 25)]
    assert names == [*tried, "update", *tried[:2]], "the lists are fetched where nothing could be installed without"
