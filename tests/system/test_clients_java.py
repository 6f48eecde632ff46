"""Apache Kafka's Java clients (the newest request versions, fetch sessions, topic ids) find in a node what they find in Apache Kafka."""

from pathlib import Path

import pytest
from system.conftest import Broker
from system.java_clients import TIMEOUT_S, play

pytestmark = [pytest.mark.needs("java"), pytest.mark.timeout(TIMEOUT_S)]

JAVA = Path(__file__).parent / "java"
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
    return play(JAVA / "RoundTrip.java", broker.bootstrap, parts=[JAVA / "Waiting.java"])


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_the_java_clients_play(outcomes: dict[str, str], scenario: str) -> None:
    assert outcomes.get(scenario, "it never came to this") == "ok"
