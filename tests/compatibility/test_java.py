"""Apache Kafka's Java clients, in the newest request versions: admin calls, both group protocols, transactions, share groups.

One process plays all scenes on one node, several at once, because starting one costs more than what it plays.
With PENSTOCK_PEER=host:port the same is asked of Apache Kafka, if it was told the settings below.
"""

from pathlib import Path

import pytest
from announced import is_announced, is_foreign, needs_announced
from system.conftest import Broker
from system.java_clients import SCENES, TIMEOUT_S, play
from waiting import NEVER_MS

pytestmark = [pytest.mark.needs("java"), pytest.mark.timeout(TIMEOUT_S)]

JAVA = Path(__file__).parent / "java"
# In this order they begin: what waits longest comes first.
NEEDS: dict[str, tuple[str, ...]] = {
    "ConsumerProtocol": ("the new consumer protocol",),
    "ShareGroups": ("share groups",),
    "Transactions": ("transactions", "the admin APIs of transactions"),
    "GroupLife": (),
    "AdminCalls": (),
}
PARTS = [SCENES.with_name("Waiting.java"), *(JAVA / f"{name}.java" for name in NEEDS)]
NODE_SETTINGS = {
    "group.initial.rebalance.delay.ms": 100,
    # How soon members hear of a change is the node's to say in the new protocols.
    "group.consumer.heartbeat.interval.ms": 200,
    "group.consumer.session.timeout.ms": NEVER_MS,
    "group.consumer.assignment.interval.ms": 100,
    "group.share.heartbeat.interval.ms": 200,
    "group.share.session.timeout.ms": NEVER_MS,
    # Scenes in which a lock lapses give their group a shorter one.
    "group.share.record.lock.duration.ms": NEVER_MS,
    "group.share.min.record.lock.duration.ms": 1_000,
    "group.share.max.record.lock.duration.ms": NEVER_MS,
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": 100,
}


@pytest.fixture(scope="module")
def outcomes(broker: Broker) -> dict[str, str]:
    programs = [name for name, features in NEEDS.items() if is_announced(broker.bootstrap, *features) or not is_foreign(broker.bootstrap)]
    return play(JAVA / "Clients.java", broker.bootstrap, "1", *programs, parts=PARTS)


def check(broker: Broker, outcomes: dict[str, str], program: str, scene: str) -> None:
    needs_announced(broker.bootstrap, *NEEDS[program])
    assert outcomes.get(f"{program}: {scene}", "it never came to this") == "ok"


@pytest.mark.parametrize(
    "scene",
    [
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
    ],
)
def test_the_java_admin_client_plays(broker: Broker, outcomes: dict[str, str], scene: str) -> None:
    check(broker, outcomes, "AdminCalls", scene)


@pytest.mark.parametrize(
    "scene",
    [
        "shares partitions and takes over",
        "cooperative moves only what must move",
        "static restart without rebalance",
        "second holder fences the first",
        "commit, fetch, seek",
        "admin",
    ],
)
def test_java_group_members_play(broker: Broker, outcomes: dict[str, str], scene: str) -> None:
    check(broker, outcomes, "GroupLife", scene)


@pytest.mark.parametrize(
    "scene",
    [
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
    ],
)
def test_java_members_of_the_new_protocol_play(broker: Broker, outcomes: dict[str, str], scene: str) -> None:
    """Alone, and beside members that speak the classic one."""
    if scene == "a transaction with its offsets":
        needs_announced(broker.bootstrap, "transactions")
    check(broker, outcomes, "ConsumerProtocol", scene)


@pytest.mark.parametrize(
    "scene",
    [
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
    ],
)
def test_java_transactions_play(broker: Broker, outcomes: dict[str, str], scene: str) -> None:
    """KIP-890's second part is among them."""
    check(broker, outcomes, "Transactions", scene)


@pytest.mark.invariant("share.assignment-even", "share.one-holder")
@pytest.mark.parametrize(
    "scene",
    [
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
    ],
)
def test_java_share_consumers_play(broker: Broker, outcomes: dict[str, str], scene: str) -> None:
    """KafkaShareConsumer in all its modes, and what the admin client asks."""
    check(broker, outcomes, "ShareGroups", scene)
