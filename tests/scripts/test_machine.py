"""That no skip for want of a program escapes PENSTOCK_REQUIRE or hides its package."""

import os
import subprocess
import sys
from pathlib import Path

import apache_kafka
import machine
import pytest
from system import java_clients

ROOT = Path(__file__).parents[2]


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
