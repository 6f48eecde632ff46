"""Share groups (KIP-932) through Apache Kafka's Java clients: KafkaShareConsumer in all its modes, and what its admin client asks.

With PENSTOCK_PEER=host:port the same is asked of Apache Kafka, if it was told the settings below.
"""

from pathlib import Path

import pytest
from announced import needs_announced
from system.conftest import Broker
from system.java_clients import play

pytestmark = pytest.mark.needs("java")

PROGRAM = Path(__file__).parent / "java" / "ShareGroups.java"
SCENARIOS = [
    "accepted by the next poll",
    "two share one partition",
    "accept, release, reject",
    "renewed while it works",
    "lapsed and given to another",
    "delivered so often and no more",
    "no more records than asked for",
    "closed and given to another",
    "compressed batches",
    "listed and described",
    "offsets listed, altered and deleted",
]
NODE_SETTINGS = {
    "group.share.heartbeat.interval.ms": 200,
    "group.share.record.lock.duration.ms": 1_500,
    "group.share.min.record.lock.duration.ms": 1_000,
}


@pytest.fixture(scope="module")
def outcomes(broker: Broker) -> dict[str, str]:
    needs_announced(broker.bootstrap, "share groups")
    return play(PROGRAM, broker.bootstrap)


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_java_share_consumers_play(outcomes: dict[str, str], scenario: str) -> None:
    assert outcomes.get(scenario, "it never came to this") == "ok"
