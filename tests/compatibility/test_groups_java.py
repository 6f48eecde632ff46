"""Consumer groups through Apache Kafka's Java clients: the newest request versions of every group API."""

from pathlib import Path

import pytest
from system.conftest import Broker
from system.java_clients import play

pytestmark = pytest.mark.needs("java")

PROGRAM = Path(__file__).parent / "java" / "GroupLife.java"
SCENARIOS = [
    "shares partitions and takes over",
    "cooperative moves only what must move",
    "static restart without rebalance",
    "second holder fences the first",
    "commit, fetch, seek",
    "admin",
]


@pytest.fixture(scope="module")
def outcomes(broker: Broker) -> dict[str, str]:
    return play(PROGRAM, broker.bootstrap)


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_java_group_members_play(outcomes: dict[str, str], scenario: str) -> None:
    assert outcomes.get(scenario, "it never came to this") == "ok"
