"""Apache Kafka's own admin client (the newest version of every admin API) finds in a node what it finds in Apache Kafka."""

from pathlib import Path

import pytest
from system.conftest import Broker
from system.java_clients import play

pytestmark = pytest.mark.needs("java")

PROGRAM = Path(__file__).parent / "java" / "AdminCalls.java"
SCENARIOS = [
    "settings of a topic",
    "settings that cannot be",
    "settings of a node",
    "settings of every node",
    "more partitions",
    "deleted records",
    "log directories",
    "producers",
    "reassignments",
    "config resources",
    "many topics described",
    "a position with its epoch",
]


@pytest.fixture(scope="module")
def outcomes(broker: Broker) -> dict[str, str]:
    return play(PROGRAM, broker.bootstrap, "1")


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_the_java_admin_client_plays(outcomes: dict[str, str], scenario: str) -> None:
    assert outcomes.get(scenario, "it never came to this") == "ok"
