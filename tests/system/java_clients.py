"""Apache Kafka's Java clients on this machine: found in PENSTOCK_KAFKA_JARS, or fetched once into the user's cache with Maven.

So are its command-line tools, which need ninety jars more: found in PENSTOCK_KAFKA_TOOLS_JARS, or fetched.
"""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

VERSION = "4.3.0"
QUICK = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")  # Such programs end before the better compiler and collector pay.
PLAY_SECONDS_MAX = 170
POM = """<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>penstock.tests</groupId><artifactId>java-clients</artifactId><version>1</version>
  <dependencies>
    {dependencies}
    <dependency><groupId>org.slf4j</groupId><artifactId>slf4j-nop</artifactId><version>1.7.36</version></dependency>
  </dependencies>
</project>
"""
DEPENDENCY = "<dependency><groupId>org.apache.kafka</groupId><artifactId>{artifact}</artifactId><version>{version}</version></dependency>"


def class_path() -> str:
    """What `java -cp` wants. Raises LookupError with the reason when the jars cannot be had here."""
    return _found("PENSTOCK_KAFKA_JARS", "kafka-clients")


def tools_class_path() -> str:
    """The same, with the classes behind kafka-topics.sh, kafka-configs.sh and their like."""
    return _found("PENSTOCK_KAFKA_TOOLS_JARS", "kafka-tools", "kafka_2.13")


def play(program: Path, *arguments: str) -> dict[str, str]:
    """What became of each scenario of a program. One process plays them all: starting it costs more than they do."""
    try:
        jars = class_path()
    except LookupError as reason:
        pytest.skip(f"needs Apache Kafka's Java clients: {reason}")
    command = ["java", *QUICK, "-cp", jars, str(program), *arguments]
    played = subprocess.run(command, capture_output=True, text=True, timeout=PLAY_SECONDS_MAX, check=False)
    print(played.stdout, played.stderr)
    return dict(line.split("\t", 1) for line in played.stdout.splitlines() if "\t" in line)


def _found(variable: str, *artifacts: str) -> str:
    given = os.environ.get(variable)
    if given:
        return f"{given}/*"
    cache = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "penstock" / f"{artifacts[0]}-{VERSION}"
    if not (cache / "complete").exists():
        _fetch(cache, variable, artifacts)
    return f"{cache}/*"


def _fetch(cache: Path, variable: str, artifacts: tuple[str, ...]) -> None:
    if shutil.which("mvn") is None:
        raise LookupError(f"neither {variable} nor mvn is there")
    cache.mkdir(parents=True, exist_ok=True)
    dependencies = "\n    ".join(DEPENDENCY.format(artifact=artifact, version=VERSION) for artifact in artifacts)
    (cache / "pom.xml").write_text(POM.format(dependencies=dependencies))
    command = ["mvn", "-q", "-B", "-f", str(cache / "pom.xml"), "dependency:copy-dependencies", f"-DoutputDirectory={cache}"]
    try:
        subprocess.run(command, check=True, capture_output=True, timeout=150)
    except (subprocess.CalledProcessError, subprocess.TimeoutExpired) as failure:
        raise LookupError(f"Maven could not fetch {artifacts[0]} {VERSION}: {failure}") from None
    (cache / "complete").touch()
