"""Apache Kafka's Java clients on this machine: found in PENSTOCK_KAFKA_JARS, or fetched once into the user's cache with Maven.

So are its command-line tools, which need ninety jars more: found in PENSTOCK_KAFKA_TOOLS_JARS, or fetched. Programs that play scenes with
the clients stand on java/Scenes.java; they are compiled once, into the same cache.
"""

import hashlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest
from machine import maven

VERSION = "4.3.0"
QUICK = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")  # Such programs end before the better compiler and collector pay.
COMPILE_SECONDS_MAX, PLAY_SECONDS_MAX = 150, 420
TIMEOUT_S = 600  # Of a test that waits for both.
JAVA = Path(__file__).parent / "java"
SCENES, TOOLS = JAVA / "Scenes.java", JAVA / "Tools.java"
COMPILER = "jdk.compiler/com.sun.tools.javac.Main"  # By its name in Java: `java` may be on the path without `javac`.
POM = """<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>penstock.tests</groupId><artifactId>java-clients</artifactId><version>1</version>
  <dependencies>
    {dependencies}
    <dependency><groupId>org.slf4j</groupId><artifactId>slf4j-nop</artifactId><version>1.7.36</version></dependency>
  </dependencies>
</project>
"""
Tool = Callable[..., str]
DEPENDENCY = "<dependency><groupId>org.apache.kafka</groupId><artifactId>{artifact}</artifactId><version>{version}</version></dependency>"


def class_path() -> str:
    """What `java -cp` wants. Raises LookupError with the reason when the jars cannot be had here."""
    return _found("PENSTOCK_KAFKA_JARS", "kafka-clients")


def tools_class_path() -> str:
    """The same, with the classes behind kafka-topics.sh, kafka-configs.sh and their like."""
    return _found("PENSTOCK_KAFKA_TOOLS_JARS", "kafka-tools", "kafka_2.13")


@contextmanager
def kafka_tools() -> Iterator[Tool]:
    """Runs a tool, by its class, with arguments as an operator types them; what it printed. All of them run in one process."""
    try:
        jars = tools_class_path()
    except LookupError as reason:
        pytest.skip(f"needs java: {reason}")
    command = ["java", *QUICK, "-cp", f"{_compiled([TOOLS], jars)}{os.pathsep}{jars}", TOOLS.stem]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdin is not None and process.stdout is not None
    asked, answers = process.stdin, process.stdout

    def run(program: str, *arguments: str) -> str:
        asked.write("\t".join([program, *arguments]) + "\n")
        asked.flush()
        code, size = answers.readline().split()
        told = answers.read(int(size))
        assert code == "0", told
        return told

    with process:
        try:
            yield run
        finally:
            process.kill()


def play(program: Path, *arguments: str, parts: Sequence[Path] = ()) -> dict[str, str]:
    """What became of each scene of a program, which may have other sources as its parts. One process plays them all: starting it costs more
    than they do. A scene that hangs has no outcome, and those beside it have theirs."""
    try:
        jars = class_path()
    except LookupError as reason:
        pytest.skip(f"needs java: {reason}")
    command = ["java", *QUICK, "-cp", f"{_compiled([SCENES, *parts, program], jars)}{os.pathsep}{jars}", program.stem, *arguments]
    try:
        played = subprocess.run(command, capture_output=True, timeout=PLAY_SECONDS_MAX, check=False)
        said, errors = played.stdout, played.stderr
    except subprocess.TimeoutExpired as hung:
        said, errors = hung.stdout or b"", hung.stderr or b""
    told = said.decode(errors="replace")
    print(told, errors.decode(errors="replace"))
    return dict(line.split("\t", 1) for line in told.splitlines() if "\t" in line)


def _compiled(sources: list[Path], jars: str) -> Path:
    """Where the classes are. They go by what they were made of; of two who make them at once, the first wins."""
    mark = hashlib.sha256(b"".join([jars.encode(), *(source.read_bytes() for source in sources)])).hexdigest()[:16]
    home = _cache() / f"{sources[-1].stem}-{mark}"
    if not home.exists():
        home.parent.mkdir(parents=True, exist_ok=True)
        made = Path(tempfile.mkdtemp(dir=home.parent))
        every = os.pathsep.join(map(str, Path(jars).parent.glob("*.jar")))  # The compiler itself knows no stars.
        command = ["java", *QUICK, "--module", COMPILER, "-proc:none", "-cp", every, "-d", str(made), *map(str, sources)]
        subprocess.run(command, check=True, timeout=COMPILE_SECONDS_MAX)
        try:
            made.rename(home)
        except OSError:
            shutil.rmtree(made)
    return home


def _cache() -> Path:
    """For all checkouts of this user; the checkout's own where the user has no home to write to."""
    common = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "penstock"
    try:
        common.mkdir(parents=True, exist_ok=True)
    except OSError:
        return Path(__file__).parents[2] / ".cache"
    return common


def _found(variable: str, *artifacts: str) -> str:
    given = os.environ.get(variable)
    if given:
        return f"{given}/*"
    cache = _cache() / f"{artifacts[0]}-{VERSION}"
    if not (cache / "complete").exists():
        _fetch(cache, variable, artifacts)
    return f"{cache}/*"


def _fetch(cache: Path, variable: str, artifacts: tuple[str, ...]) -> None:
    without_maven = maven()
    if without_maven is not None:
        raise LookupError(f"{variable} is not set, and {without_maven}")
    cache.mkdir(parents=True, exist_ok=True)
    dependencies = "\n    ".join(DEPENDENCY.format(artifact=artifact, version=VERSION) for artifact in artifacts)
    (cache / "pom.xml").write_text(POM.format(dependencies=dependencies))
    command = ["mvn", "-q", "-B", "-f", str(cache / "pom.xml"), "dependency:copy-dependencies", f"-DoutputDirectory={cache}"]
    try:
        subprocess.run(command, check=True, capture_output=True, timeout=150)
    except (subprocess.CalledProcessError, subprocess.TimeoutExpired) as failure:
        raise LookupError(f"Maven could not fetch {artifacts[0]} {VERSION}: {failure}") from None
    (cache / "complete").touch()
