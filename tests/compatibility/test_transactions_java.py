"""Transactions through Apache Kafka's Java clients: the newest shape of every request, KIP-890's second part among them."""

from pathlib import Path

import pytest
from announced import needs_announced
from system.conftest import Broker
from system.java_clients import play

pytestmark = pytest.mark.needs("java")

PROGRAM = Path(__file__).parent / "java" / "Transactions.java"
SCENARIOS = [
    "committed and aborted",
    "readers wait",
    "several partitions",
    "offsets with the records",
    "offsets that are not stable",
    "offsets of one who left",
    "second producer fences the first",
    "fenced by an admin",
    "terminated by an admin",
    "too slow",
    "time-out too long",
    "out of turn",
    "listed and described",
    "aborted in a partition",
    "a producer goes on after an error",
    "the feature is announced",
]


@pytest.fixture(scope="module")
def outcomes(broker: Broker) -> dict[str, str]:
    needs_announced(broker.bootstrap, "transactions", "the admin APIs of transactions")
    return play(PROGRAM, broker.bootstrap)


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_java_transactions_play(outcomes: dict[str, str], scenario: str) -> None:
    assert outcomes.get(scenario, "it never came to this") == "ok"
