"""What `make setup` does where Java is missing: it installs it where it may, else says what to install, and never fails."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "scripts" / "java.py"
# Knows of Java 21 only, and only once its lists are there.
APT_GET = """#!/bin/sh
echo "$@" >> {calls}
case "$*" in
  *update) : > {lists};;
  *openjdk-21*) [ -e {lists} ] || exit 100; printf '#!/bin/sh\\n' > {java}; /bin/chmod +x {java};;
  *) exit 100;;
esac
"""


def set_up(path: Path) -> "subprocess.CompletedProcess[str]":
    environment = {name: value for name, value in os.environ.items() if name != "JAVA_HOME"} | {"PATH": str(path)}
    return subprocess.run([sys.executable, str(SCRIPT)], env=environment, capture_output=True, text=True, check=False)


def executable(path: Path, text: str) -> None:
    path.write_text(text)
    path.chmod(0o755)


def test_without_java_and_without_a_way_to_install_it_the_rest_goes_on(tmp_path: Path) -> None:
    told = set_up(tmp_path)
    assert told.returncode == 0
    assert "everything else works" in told.stderr and "apt-get install openjdk-17-jre-headless" in told.stderr


def test_where_java_is_nothing_is_said_or_done(tmp_path: Path) -> None:
    executable(tmp_path / "java", "#!/bin/sh\n")
    executable(tmp_path / "apt-get", f"#!/bin/sh\necho called > {tmp_path}/called\n")
    told = set_up(tmp_path)
    assert (told.returncode, told.stdout, told.stderr) == (0, "", "") and not (tmp_path / "called").exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may install packages")
def test_root_installs_the_first_java_that_the_system_has(tmp_path: Path) -> None:
    calls = tmp_path / "calls"
    executable(tmp_path / "apt-get", APT_GET.format(calls=calls, lists=tmp_path / "lists", java=tmp_path / "java"))
    told = set_up(tmp_path)
    assert told.returncode == 0 and "is missing, so that pipelines" not in told.stderr
    names = [call.split()[-1] for call in calls.read_text().splitlines()]
    tried = [f"openjdk-{version}-jre-headless" for version in (17, 21, 25)]
    assert names == [*tried, "update", *tried[:2]], "the lists are fetched where nothing could be installed without"
