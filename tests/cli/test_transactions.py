"""`penstock transactions` against a real node, with real producers where something must be open.

With PENSTOCK_PEER=host:port the tests talk to that broker instead: Apache Kafka must pass them too.
"""

import json
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from announced import needs_announced
from cli.running import Ended, penstock, succeed
from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import AdminClient, NewTopic
from system import harness
from system.raw import batch, record
from waiting import NEVER_MS, PATIENCE_MS, PATIENCE_S, until

TRANSACTIONAL = 0x10  # A bit in a batch's attributes.


@pytest.fixture(scope="module")
def bootstrap(request: pytest.FixtureRequest) -> str:
    peer = os.environ.get("PENSTOCK_PEER")
    if peer:
        return peer
    node: harness.Node = request.getfixturevalue("node")
    needs_announced(node.bootstrap, "transactions", "the admin APIs of transactions")
    return node.bootstrap


class Stage:
    """A producer with a transaction open in the first of a topic's two partitions."""

    def __init__(self, bootstrap: str) -> None:
        self.where = ["--bootstrap", bootstrap]
        self.topic, self.id = (f"{kind}-{uuid4().hex[:8]}" for kind in ("orders", "billing"))
        admin = AdminClient({"bootstrap.servers": bootstrap})
        admin.create_topics([NewTopic(self.topic, 2, 1)])[self.topic].result()
        self.producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": self.id, "transaction.timeout.ms": NEVER_MS})
        self.producer.init_transactions(PATIENCE_S)
        self.begin()

    def begin(self) -> None:
        self.producer.begin_transaction()
        self.producer.produce(self.topic, "v", partition=0)
        assert self.producer.flush(PATIENCE_S) == 0

    def describe(self) -> dict[str, Any]:
        return json.loads(succeed("transactions", "describe", self.id, "--json", *self.where))  # type: ignore[no-any-return]

    def listed(self, *filters: str) -> list[str]:
        return [each["id"] for each in json.loads(succeed("transactions", "list", "--json", *filters, *self.where))]

    def ask(self, *arguments: str) -> Ended:
        return penstock("transactions", *arguments, *self.where)

    def wait_for(self, state: str) -> None:
        until(lambda: self.describe()["state"] == state, lambda: f"{self.describe()['state']} instead of {state}")


@pytest.fixture
def stage(bootstrap: str) -> Iterator[Stage]:
    stage = Stage(bootstrap)
    yield stage
    stage.producer.purge()


def test_transactions_are_listed_and_filtered(stage: Stage) -> None:
    (row,) = [line.split() for line in succeed("transactions", "list", *stage.where).splitlines() if stage.id in line]
    assert row[:2] == [stage.id, "Ongoing"]
    assert stage.listed("--match", f"{stage.id[:-1]}.") == [stage.id]
    assert stage.id in stage.listed("--state", "Ongoing", "--longer-than", "0")
    assert stage.id not in stage.listed("--longer-than", "3600")
    assert stage.id not in stage.listed("--state", "Empty", "--state", "CompleteCommit")
    stage.producer.commit_transaction(PATIENCE_S)
    stage.wait_for("CompleteCommit")
    assert stage.id in stage.listed("--state", "CompleteCommit")


def test_a_pattern_that_is_none_is_refused_with_its_reason(stage: Stage) -> None:
    for pattern, reason in (("(", "missing )"), ("(?=a)", "invalid perl operator: (?="), ("a" * 1_001, "may have 1000 characters")):
        refused = stage.ask("list", "--match", pattern)
        assert (refused.code, "--match: " in refused.err, reason in refused.err) == (2, True, True), refused.err


def test_a_transaction_is_described_with_the_place_where_readers_wait(stage: Stage) -> None:
    told = stage.describe()
    assert (told["id"], told["state"], told["timeout_ms"]) == (stage.id, "Ongoing", NEVER_MS)
    assert told["partitions"] == [{"topic": stage.topic, "partition": 0, "open_since": 0}]
    assert abs(told["started_ms"] - time.time() * 1000) < PATIENCE_MS
    head, columns, cells = succeed("transactions", "describe", stage.id, *stage.where).splitlines()
    assert head.startswith(f"{stage.id}  Ongoing  open for ")
    assert f"times out after {NEVER_MS // 60_000} min 0 s" in head
    assert (columns.split(), cells.split()) == (["TOPIC", "PARTITION", "OPEN", "SINCE"], [stage.topic, "0", "0"])
    stage.producer.commit_transaction(PATIENCE_S)
    stage.wait_for("CompleteCommit")
    assert stage.describe()["partitions"] == []
    (head,) = succeed("transactions", "describe", stage.id, *stage.where).splitlines()
    assert head.startswith(f"{stage.id}  CompleteCommit  producer ")


def test_an_abort_shuts_the_producer_out_and_readers_go_on(stage: Stage) -> None:
    refused = stage.ask("abort", stage.id)
    assert (refused.code, "add --yes" in refused.err) == (1, True)
    assert stage.describe()["state"] == "Ongoing"
    done = stage.ask("abort", stage.id, "--yes")
    assert (done.code, done.out) == (0, f"{stage.id} is aborted, and its producer shut out ({stage.describe()['state']})\n"), done.err
    assert succeed("consume", stage.topic, "--committed", *stage.where) == ""
    assert succeed("consume", stage.topic, *stage.where) == "v\n"
    with pytest.raises(KafkaException):
        stage.producer.commit_transaction(PATIENCE_S)
    again = stage.ask("abort", stage.id, "--yes")
    assert (again.code, f"{stage.id} has no transaction open" in again.err) == (1, True)


def test_what_does_not_hang_is_not_aborted_in_its_partition(stage: Stage) -> None:
    producer = str(stage.describe()["producer"])
    assert stage.ask("list", "--hanging", "--topic", stage.topic).err == "no transaction hangs\n"
    told = stage.ask("abort", "--topic", stage.topic, "--partition", "0", "--producer", producer, "--yes")
    assert (told.code, "does not hang" in told.err) == (1, True), told
    told = stage.ask("abort", "--topic", stage.topic, "--partition", "1", "--producer", producer, "--yes")
    assert (told.code, "has no transaction open" in told.err) == (1, True), told
    stage.producer.commit_transaction(PATIENCE_S)


def test_what_cannot_be_is_said_with_a_way_out(bootstrap: str) -> None:
    where = ["--bootstrap", bootstrap]
    unknown = penstock("transactions", "describe", "nobody", *where)
    assert (unknown.code, "TRANSACTIONAL_ID_NOT_FOUND" in unknown.err) == (1, True)
    for arguments, sign in (
        (["abort", "--topic", "t", "--yes"], "name either an ID"),
        (["abort", "billing", "--topic", "t", "--yes"], "name either an ID"),
        (["abort", "--yes"], "name either an ID"),
        (["list", "--topic", "t"], "--topic goes with --hanging"),
        (["list", "--hanging", "--state", "Ongoing"], "leave --state"),
    ):
        told = penstock("transactions", *arguments, *where)
        assert (told.code, sign in told.err) == (2, True), told


def test_a_place_that_is_not_there_is_told_at_once(stage: Stage) -> None:
    for arguments, sign in (
        (["abort", "--topic", "nowhere", "--partition", "0", "--producer", "1", "--yes"], "there is no topic 'nowhere'"),
        (["abort", "--topic", stage.topic, "--partition", "7", "--producer", "1", "--yes"], "has no partition 7"),
        (["list", "--hanging", "--topic", "nowhere"], "there is no topic 'nowhere'"),
        (["list", "--hanging", "--topic", stage.topic, "--topic", "nowhere"], "there is no topic 'nowhere'"),
    ):
        told = stage.ask(*arguments)
        assert (told.code, sign in told.err) == (1, True), told


def test_the_coordinators_topic_is_not_deleted_by_the_way(stage: Stage) -> None:
    told = penstock("topics", "delete", "__transaction_state", "--yes", *stage.where)
    assert (told.code, "add --internal" in told.err) == (1, True), told
    assert stage.describe()["state"] == "Ongoing"


def test_what_hangs_is_found_and_aborted_in_its_partition(tmp_path: Path) -> None:
    """A node lets none come to be. This one finds, when it starts, a record of a transaction that no coordinator has heard of."""
    with harness.Node(tmp_path / "data") as node:
        needs_announced(node.bootstrap, "transactions", "the admin APIs of transactions")
        where = ["--bootstrap", node.bootstrap]
        succeed("topics", "create", "orders", *where)
        succeed("produce", "orders", *where, given="before\n")
        node.kill()
        (segment,) = (path for path in (tmp_path / "data").rglob("*.log") if b"before" in path.read_bytes())
        forged = batch(record(b"inside"), 1, attributes=TRANSACTIONAL, producer_id=4711, producer_epoch=3, base_sequence=0, base_offset=1,
                       leader_epoch=0)  # fmt: skip
        with segment.open("ab") as file:
            file.write(forged)
        node.start()
        where = ["--bootstrap", node.bootstrap]
        succeed("produce", "orders", *where, given="after\n")
        assert succeed("consume", "orders", "--committed", *where) == "before\n"
        (found,) = json.loads(succeed("transactions", "list", "--hanging", "--json", *where))
        assert (found["topic"], found["partition"], found["producer"], found["open_since"], found["id"]) == ("orders", 0, 4711, 1, None)
        table = succeed("transactions", "list", "--hanging", *where).splitlines()
        assert table[1].split() == ["orders", "0", "4711", "1", "-"]
        succeed("transactions", "abort", "--topic", "orders", "--partition", "0", "--producer", "4711", "--yes", *where)
        assert succeed("consume", "orders", "--committed", *where) == "before\nafter\n"
        assert penstock("transactions", "list", "--hanging", *where).err == "no transaction hangs\n"
        assert node.complaints() == []
