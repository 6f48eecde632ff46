"""The new consumer group protocol (KIP-848) through Apache Kafka's Java clients, alone and beside members that speak the classic one."""

from pathlib import Path

import pytest
from announced import needs_announced
from system.conftest import Broker
from system.java_clients import play

pytestmark = pytest.mark.needs("java")

PROGRAM = Path(__file__).parent / "java" / "ConsumerProtocol.java"
SCENARIOS = [
    "shares partitions and takes over",
    "only what must move moves",
    "the range assignor",
    "an assignor that is not there",
    "a regular expression",
    "a topic that grows",
    "a subscription that changes",
    "static restart",
    "second holder of an instance id",
    "commit and resume",
    "a transaction with its offsets",
    "described with epochs",
    "a classic group is upgraded while it runs",
    "and downgraded again",
]


# How soon members hear of a change is the node's to say in this protocol.
NODE_SETTINGS = {
    "group.consumer.heartbeat.interval.ms": 300,
    "group.consumer.assignment.interval.ms": 200,
    "group.initial.rebalance.delay.ms": 200,
    "group.min.session.timeout.ms": 500,
}


@pytest.fixture(scope="module")
def outcomes(broker: Broker) -> dict[str, str]:
    needs_announced(broker.bootstrap, "the new consumer protocol")
    return play(PROGRAM, broker.bootstrap)


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_java_members_of_the_new_protocol_play(broker: Broker, outcomes: dict[str, str], scenario: str) -> None:
    if scenario == "a transaction with its offsets":
        needs_announced(broker.bootstrap, "transactions")
    assert outcomes.get(scenario, "it never came to this") == "ok"
