"""What is verified while its transaction is open, and comes to be written when it has ended, is not written (KIP-890).

The coordinator's yes is slow on its way to the node that asked; the end of the transaction overtakes it. Producers are of the first version
of transactions: their next one has the same epoch, so that nothing but the guards tells what is late.
"""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest
from clusters.scene import TOPIC, Scene
from clusters.test_transactions import committed_end, coordinator

from penstock.errors import ErrorCode
from penstock.peers.client import Client
from penstock.vocabulary import TopicPartition
from penstock.wire.api_keys import ApiKey
from penstock.wire.batches import Record, encode_batch

pytestmark = pytest.mark.invariant("transactions.no-append-after-marker")

ID, GROUP = "mover-1", "movers"
GROUPS = "__consumer_offsets"
ONE_COPY_EACH = {
    "transaction_partitions": 1, "offsets_topic_num_partitions": 1, "transaction_replication_factor": 1, "offsets_replication_factor": 1,
}  # fmt: skip
SLOW_SECONDS = 0.5  # Long for an end to be written, and short for nodes to miss each other.
ON_ITS_WAY_SECONDS = 0.05
STRANGER = 4711  # A producer that the coordinator refuses: to refuse it, it is asked, and from then on the nodes are connected.


class Stage:
    """A producer with an open transaction that knows of a partition and of a group, and has written nothing there."""

    def __init__(self, scene: Scene) -> None:
        self.scene = scene
        for kind, key in ((1, ID), (0, GROUP)):
            scene.until(lambda kind=kind, key=key: self._is_found(kind, key))
        self.teller = coordinator(scene)
        self.writer = next(node for node in (1, 2, 3) if node not in (self.teller, scene.leads(GROUPS)))
        scene.do(lambda client: client.create_topic(TOPIC, assignments=[[self.writer]]))
        answer = self.ask(self.teller, ApiKey.INIT_PRODUCER_ID, 4, {
            "transactional_id": ID, "transaction_timeout_ms": 60_000, "producer_id": -1, "producer_epoch": -1,
        })  # fmt: skip
        self.identity = {"transactional_id": ID, "producer_id": answer.producer_id, "producer_epoch": answer.producer_epoch}
        topics = [{"name": TOPIC, "partitions": [0]}]
        self.ask(self.teller, ApiKey.ADD_PARTITIONS_TO_TXN, 3, {
            f"v3_and_below_{name}": value for name, value in {**self.identity, "topics": topics}.items()
        })  # fmt: skip
        assert self.ask(self.teller, ApiKey.ADD_OFFSETS_TO_TXN, 3, {**self.identity, "group_id": GROUP}).error_code == ErrorCode.NONE

    def ask(self, node: int, api: ApiKey, version: int, body: dict[str, Any]) -> Any:
        return self.scene.ask_at(node, api, version, body)

    def begin(self, node: int, api: ApiKey, version: int, body: dict[str, Any]) -> "asyncio.Task[Any]":
        return self.scene.begin(lambda client: self.scene.asking(node, api, version, body))

    @contextmanager
    def slow_answers(self, asker: int) -> Iterator[None]:
        """What the coordinator sends to this node meanwhile takes its time."""
        link = self.scene.world.network.link(self.scene.host(self.teller), self.scene.host(asker))
        good, link.quality = link.quality, replace(link.quality, delay_seconds=SLOW_SECONDS)
        yield
        self.scene.run_for(ON_ITS_WAY_SECONDS)
        link.quality = good

    def end(self, *, commits: bool) -> None:
        assert self.ask(self.teller, ApiKey.END_TXN, 3, {**self.identity, "committed": commits}).error_code == ErrorCode.NONE

    def has_ended(self) -> bool:
        """Its end is written everywhere."""
        answer = self.ask(self.teller, ApiKey.DESCRIBE_TRANSACTIONS, 0, {"transactional_ids": [ID]})
        return str(answer.transaction_states[0].transaction_state).startswith("Complete")

    def _is_found(self, kind: int, key: str) -> bool:
        answer = self.ask(1, ApiKey.FIND_COORDINATOR, 4, {"key_type": kind, "coordinator_keys": [key]})
        return bool(answer.coordinators[0].error_code == ErrorCode.NONE)


def a_batch(producer_id: int) -> dict[str, Any]:
    records = [Record(value=b"late", timestamp_ms=1)]
    batch = encode_batch(records, producer_id=producer_id, producer_epoch=0, base_sequence=0, is_transactional=True)
    rows = [{"name": TOPIC, "partition_data": [{"index": 0, "records": bytes(batch)}]}]
    return {"transactional_id": ID, "acks": -1, "timeout_ms": 5_000, "topic_data": rows}


def some_offsets(identity: dict[str, Any]) -> dict[str, Any]:
    row = {"partition_index": 0, "committed_offset": 42, "committed_leader_epoch": -1, "committed_metadata": ""}
    return {**identity, "group_id": GROUP, "topics": [{"name": TOPIC, "partitions": [row]}]}


def test_late_batches_are_not_appended() -> None:
    """Verified before the end of their transaction, they come after it."""
    with Scene(**ONE_COPY_EACH) as scene:
        stage = Stage(scene)
        stage.ask(stage.writer, ApiKey.PRODUCE, 9, a_batch(STRANGER))
        with stage.slow_answers(stage.writer):
            late = stage.begin(stage.writer, ApiKey.PRODUCE, 9, a_batch(stage.identity["producer_id"]))
        stage.end(commits=False)
        assert stage.has_ended() and not late.done(), "the answer is still on its way"
        scene.until(late.done)
        assert late.result().responses[0].partition_responses[0].error_code == ErrorCode.INVALID_TXN_STATE
        assert (scene.end_offset(), committed_end(scene)) == (1, 1), "readers of committed records wait for nothing"


def test_late_offsets_are_not_held() -> None:
    """As above."""
    with Scene(**ONE_COPY_EACH) as scene:
        stage = Stage(scene)
        keeper = scene.leads(GROUPS)
        assert keeper != stage.teller
        stage.ask(keeper, ApiKey.TXN_OFFSET_COMMIT, 2, some_offsets({**stage.identity, "producer_id": STRANGER}))
        with stage.slow_answers(keeper):
            late = stage.begin(keeper, ApiKey.TXN_OFFSET_COMMIT, 2, some_offsets(stage.identity))
        stage.end(commits=True)
        assert stage.has_ended() and not late.done(), "the answer is still on its way"
        scene.until(late.done)
        assert late.result().topics[0].partitions[0].error_code == ErrorCode.INVALID_TXN_STATE
        where = TopicPartition(TOPIC, 0)

        async def stable(client: Client) -> dict[TopicPartition, int]:
            return await client.stable_offsets(GROUP, [where], deadline_s=5.0)

        assert scene.do(stable) == {}, "whoever takes over waits for nothing"
