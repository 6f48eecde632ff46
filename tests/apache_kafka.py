"""Apache Kafka on this machine, for tests that want it beside or in the place of a node: its jars are fetched once, by Maven.

`apache_kafka` is a running broker; `connector_jars` are those of Spark's own Kafka connector. Where they cannot be had, the test is skipped
with the reason. What is fetched stays in `.cache/`, as it does for the benchmarks.
"""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from machine import maven

ROOT = Path(__file__).parents[1]
CACHE = ROOT / ".cache"
if str(ROOT) not in sys.path:  # The benchmarks are a package there.
    sys.path.append(str(ROOT))


@contextmanager
def apache_kafka(directory: Path) -> Iterator[str]:
    """The address of a broker in KRaft mode, as its defaults have it."""
    from benchmarks.kafka.peer import PeerMissing, command, install
    from benchmarks.processes import Broker

    try:
        libraries = install(CACHE)
    except PeerMissing as missing:
        pytest.skip(f"needs java: {maven() or missing}")
    with Broker(command(libraries, directory / "kafka")) as broker:
        yield f"127.0.0.1:{broker.port}"


def connector_jars() -> list[Path]:
    """Spark's Kafka connector and what it needs."""
    from benchmarks.kafka import connector
    from benchmarks.kafka.peer import PeerMissing

    try:
        return connector.install(CACHE)
    except PeerMissing as missing:
        pytest.skip(f"needs java: {maven() or missing}")
