"""What a machine must be able to test, and that no skip for want of a program escapes PENSTOCK_REQUIRE or hides its package."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import apache_kafka
import machine
import pytest
from system import java_clients

ROOT = Path(__file__).parents[2]
INSTALLED = ["java", "spark", "cc", "browser", "pycurl"]  # By `make setup`, as root with apt-get.
only_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root may install packages")


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """PATH, in which there is nothing; no Java anywhere, and no jars."""
    directory = tmp_path / "bin"
    directory.mkdir()
    monkeypatch.setenv("PATH", str(directory))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    for name in ("JAVA_HOME", "PENSTOCK_REQUIRE", "PENSTOCK_KAFKA_JARS", "PENSTOCK_KAFKA_TOOLS_JARS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(apache_kafka, "CACHE", tmp_path / "cache")
    return directory


def executable(path: Path, text: str = "#!/bin/sh\n") -> None:
    path.write_text(text)
    path.chmod(0o755)


@pytest.mark.parametrize(
    ("probe", "packages"),
    [
        (machine.java, "openjdk-17-jre-headless or openjdk-21-jre-headless or openjdk-25-jre-headless"),
        (machine.maven, "maven"),
        (machine.cc, "gcc libc6-dev"),
        (machine.browser, "chromium-headless-shell or chromium"),
        (machine.netns, "iproute2"),
        (machine.network_namespaces, "util-linux"),
        (lambda: machine.unbuilt("the loops"), "gcc libc6-dev"),
    ],
)
def test_a_reason_names_the_package(path: Path, probe, packages):
    assert probe().endswith(f" (Debian: {packages})")


def probed(environment: dict[str, str]) -> str:
    code = "import machine, shutil; print(machine.java() or shutil.which('java'))"
    kept = os.environ | {"PYTHONPATH": str(ROOT / "tests")} | environment
    return subprocess.run([sys.executable, "-c", code], env=kept, capture_output=True, text=True, check=True).stdout.strip()


def test_java_of_java_home_is_the_one_that_tests_start(path: Path, tmp_path: Path):
    executable(path / "java")
    (tmp_path / "jdk" / "bin").mkdir(parents=True)
    executable(tmp_path / "jdk" / "bin" / "java")
    assert probed({"JAVA_HOME": str(tmp_path / "jdk")}) == f"{tmp_path}/jdk/bin/java"
    assert probed({"JAVA_HOME": "/stale"}).startswith("JAVA_HOME is /stale, and there is no bin/java in it")
    assert probed({}) == f"{path}/java"


@pytest.mark.parametrize("fetch", ["play", "kafka_tools", "apache_kafka", "connector_jars"])
@pytest.mark.parametrize(("mvn", "reason"), [(None, r"\(Debian: maven\)"), ("#!/bin/sh\nexit 1\n", "could not fetch")])
def test_jars_that_cannot_be_had_are_a_lack_of_java(path: Path, tmp_path: Path, fetch: str, mvn: str | None, reason: str):
    executable(path / "java")
    if mvn is not None:
        executable(path / "mvn", mvn)
    with pytest.raises(pytest.skip.Exception, match=f"^needs java: .*{reason}"):
        match fetch:
            case "play":
                java_clients.play(tmp_path / "Program.java")
            case "kafka_tools":
                with java_clients.kafka_tools():
                    pass
            case "apache_kafka":
                with apache_kafka.apache_kafka(tmp_path):
                    pass
            case "connector_jars":
                apache_kafka.connector_jars()


@pytest.mark.parametrize("file", ["server/test_flush_threads.py", "server/test_vigil.py"])
def test_compiled_parts_that_are_not_there_fail_where_a_compiler_is_required(tmp_path: Path, file: str):
    (tmp_path / "unbuilt.py").write_text("import sys\n\nsys.modules['penstock.server._flush_threads'] = None\n")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PENSTOCK_", "PYTEST_"))}
    command = [sys.executable, "-m", "pytest", "-q", "-p", "unbuilt", "-p", "no:cacheprovider", f"tests/{file}"]
    environment = kept | {"PYTHONPATH": str(tmp_path), "PENSTOCK_REQUIRE": "cc"}
    ended = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert ended.returncode == 1
    assert "this machine must have cc (PENSTOCK_REQUIRE): " in ended.stdout and " skipped" not in ended.stdout


@pytest.fixture
def ci_run(path: Path, tmp_path: Path) -> Path:
    """.ci/run in a checkout whose `make test` writes down what is required."""
    project = tmp_path / "checkout"
    for file in (".ci/run", "tests/machine.py", "scripts/system_packages.py", "scripts/progress.py"):
        (project / file).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / file, project / file)
    (project / ".venv" / "bin").mkdir(parents=True)
    executable(project / ".venv" / "bin" / "python", f'#!/bin/sh\nexec "{sys.executable}" "$@"\n')
    executable(path / "make", f'#!/bin/sh\n[ "$1" != test ] || echo "$PENSTOCK_REQUIRE" > "{project}/required"\n')
    for directory in ("/usr/bin", "/bin"):
        if Path(directory, "dirname").exists():
            executable(path / "dirname", f'#!/bin/sh\nexec {directory}/dirname "$@"\n')
    return project


def required(project: Path) -> list[str]:
    subprocess.run([shutil.which("bash", path=os.defpath) or "bash", str(project / ".ci" / "run")], check=True)
    return [name for name in (project / "required").read_text().strip().split(",") if name]


@only_root
def test_ci_requires_all_that_may_be_installed_though_none_of_it_could_be(ci_run: Path, path: Path):
    executable(path / "apt-get", "#!/bin/sh\nexit 100\n")
    assert [name for name in required(ci_run) if name not in machine.OF_THE_KERNEL] == INSTALLED


def test_ci_requires_elsewhere_what_the_machine_has(ci_run: Path, path: Path, capfd: pytest.CaptureFixture[str]):
    executable(path / "java")
    assert "java" not in required(ci_run), "its tests want jars, which Maven fetches"
    assert "not required here: java: there is no Maven here (Debian: maven)\n" in capfd.readouterr().err
    for name in ("mvn", "chromium"):
        executable(path / name)
    assert {"java", "browser"} <= set(required(ci_run)) and "cc" not in required(ci_run)


@pytest.mark.parametrize("wanted", [[], ["cc", "fuse"]])
def test_ci_requires_what_it_is_told_to(ci_run: Path, path: Path, monkeypatch: pytest.MonkeyPatch, wanted: list[str]):
    executable(path / "java")
    monkeypatch.setenv("PENSTOCK_REQUIRE", ",".join(wanted))
    assert required(ci_run) == wanted
