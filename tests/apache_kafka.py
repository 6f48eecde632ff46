"""Apache Kafka on this machine, for tests that want it beside or in the place of a node: its jars are fetched once, by Maven.

`apache_kafka` is a running broker; `connector_jars` are those of Spark's own Kafka connector. Where they cannot be had, the test is skipped
with the reason. What is fetched stays in `.cache/`, as it does for the benchmarks.
"""

import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
CACHE = ROOT / ".cache"
# Each by itself: resolving the connector's own tree of dependencies fails, because its parent names another repository.
CONNECTOR = (
    "org.apache.spark:spark-sql-kafka-0-10_2.13:4.2.0",
    "org.apache.spark:spark-token-provider-kafka-0-10_2.13:4.0.0",
    "org.apache.kafka:kafka-clients:3.9.1",
    "org.apache.commons:commons-pool2:2.12.1",
)
FETCH_SECONDS_MAX = 120


@contextmanager
def apache_kafka(directory: Path) -> Iterator[str]:
    """The address of a broker in KRaft mode, as its defaults have it."""
    if str(ROOT) not in sys.path:
        sys.path.append(str(ROOT))
    from benchmarks.kafka.peer import PeerMissing, command, install
    from benchmarks.processes import Broker

    try:
        libraries = install(CACHE)
    except PeerMissing as missing:
        pytest.skip(f"needs Apache Kafka: {missing}")
    with Broker(command(libraries, directory / "kafka")) as broker:
        yield f"127.0.0.1:{broker.port}"


def connector_jars() -> list[Path]:
    """Spark's Kafka connector and what it needs."""
    place = CACHE / "spark-kafka"
    jars = [place / "{1}-{2}.jar".format(*artifact.split(":")) for artifact in CONNECTOR]
    for artifact, jar in zip(CONNECTOR, jars, strict=True):
        if not jar.exists():
            _fetch(artifact, place)
    return jars


def _fetch(artifact: str, place: Path) -> None:
    if shutil.which("mvn") is None:
        pytest.skip(f"needs Spark's Kafka connector: there is no mvn in PATH to fetch {artifact}")
    place.mkdir(parents=True, exist_ok=True)
    command = ["mvn", "-q", "dependency:copy", f"-Dartifact={artifact}", f"-DoutputDirectory={place}"]
    fetched = subprocess.run(command, capture_output=True, text=True, timeout=FETCH_SECONDS_MAX, check=False, cwd=place)
    if fetched.returncode:
        pytest.skip(f"needs Spark's Kafka connector: mvn could not fetch {artifact}: {fetched.stdout[-200:].strip()}")
