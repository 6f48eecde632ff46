"""Apache Kafka's Java clients (the newest request versions, fetch sessions, topic ids) find in a node what they find in Apache Kafka."""

import subprocess
from pathlib import Path

import pytest
from system.conftest import Broker
from system.java_clients import class_path

pytestmark = pytest.mark.needs("java")

PROGRAM = Path(__file__).parent / "java" / "RoundTrip.java"
SCENARIOS = [
    "whole record",
    *(f"codec {codec}" for codec in ("none", "gzip", "snappy", "lz4", "zstd")),
    "fetch sessions over many partitions",
    "two consumers with sessions of their own",
    "seek by time",
    "log append time",
    "too large",
    "self-made topic",
    "admin",
    "topic made again",
]


@pytest.fixture(scope="module")
def outcomes(broker: Broker) -> dict[str, str]:
    """One Java process plays all scenarios: starting it costs more than they do."""
    try:
        jars = class_path()
    except LookupError as reason:
        pytest.skip(f"needs Apache Kafka's Java clients: {reason}")
    played = subprocess.run(["java", "-cp", jars, str(PROGRAM), broker.bootstrap], capture_output=True, text=True, timeout=150, check=False)
    print(played.stdout, played.stderr)
    return dict(line.split("\t", 1) for line in played.stdout.splitlines() if "\t" in line)


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_the_java_clients_play(outcomes: dict[str, str], scenario: str) -> None:
    assert outcomes.get(scenario, "it never came to this") == "ok"
