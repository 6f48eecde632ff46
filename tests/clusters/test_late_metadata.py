"""A node whose metadata lag: what it has not heard of yet is not taken for deleted."""

import pytest
from clusters.scene import TOPIC, Scene
from clusters.test_transactions import committed_end, coordinator

from penstock.errors import ErrorCode
from penstock.transactions.views import MarkersOwed
from penstock.wire.api_keys import ApiKey
from penstock.wire.batches import Record, encode_batch

pytestmark = pytest.mark.invariant("transactions.all-or-nothing", "transactions.markers-owed-until-written")

ID = "mover-1"
LAG_S = 0.5
TWO_BROKERS = ("controller", "broker", "broker")
ONE_COPY_EACH = {"transaction_partitions": 1, "transaction_replication_factor": 1}


class Stage:
    """Two brokers. One coordinates transactions and hears of metadata late; the other leads a topic that only it knows.

    The second version of transactions: the leader of a partition adds it to the transaction.
    """

    def __init__(self, scene: Scene) -> None:
        self.scene = scene
        find = {"key_type": 1, "coordinator_keys": [ID]}
        scene.until(lambda: scene.ask_at(2, ApiKey.FIND_COORDINATOR, 4, find).coordinators[0].error_code == ErrorCode.NONE)
        self.teller = coordinator(scene)
        self.writer = 5 - self.teller
        wish = {"transactional_id": ID, "transaction_timeout_ms": 60_000, "producer_id": -1, "producer_epoch": -1}
        self._is_identified_by(scene.ask_at(self.teller, ApiKey.INIT_PRODUCER_ID, 5, wish))
        scene.do(lambda client: client.create_topic("known", assignments=[[self.writer]]))
        self.write("known")  # From here on the two brokers are connected.
        self.commit()
        scene.until(lambda: not self.owed())

    def write_unknown(self) -> None:
        self.scene.slow_link(1, self.teller, LAG_S)
        new = {"name": TOPIC, "num_partitions": -1, "replication_factor": -1}
        new["assignments"] = [{"partition_index": 0, "broker_ids": [self.writer]}]
        answer = self.scene.ask_at(self.writer, ApiKey.CREATE_TOPICS, 5, {"topics": [new], "timeout_ms": 5_000})
        assert answer.topics[0].error_code == ErrorCode.NONE
        self.write(TOPIC)

    def write(self, topic: str) -> None:
        self.scene.until(lambda: self.scene.node(self.writer).partitions.find(topic, 0) is not None)
        records = [Record(value=b"v", timestamp_ms=self.scene.world.hosts[self.scene.host(self.writer)].wall.ms())]
        batch = encode_batch(records, producer_id=self.id, producer_epoch=self.epoch, base_sequence=0, is_transactional=True)
        rows = [{"name": topic, "partition_data": [{"index": 0, "records": bytes(batch)}]}]
        body = {"transactional_id": ID, "acks": -1, "timeout_ms": 5_000, "topic_data": rows}
        answer = self.scene.ask_at(self.writer, ApiKey.PRODUCE, 12, body)
        assert answer.responses[0].partition_responses[0].error_code == ErrorCode.NONE

    def commit(self) -> None:
        body = {"transactional_id": ID, "producer_id": self.id, "producer_epoch": self.epoch, "committed": True}
        self._is_identified_by(self.scene.ask_at(self.teller, ApiKey.END_TXN, 5, body))

    def owed(self) -> list[MarkersOwed]:
        return [each for held in self.scene.node(self.teller).transactions if held.state is not None for each in held.state.owed()]

    def knows(self, topic: str = TOPIC) -> bool:
        return topic in self.scene.node(self.teller).image.topics

    def _is_identified_by(self, answer: object) -> None:
        assert answer.error_code == ErrorCode.NONE  # type: ignore[attr-defined]
        self.id, self.epoch = answer.producer_id, answer.producer_epoch  # type: ignore[attr-defined]


def test_a_topic_that_the_coordinator_has_not_heard_of_gets_its_marker() -> None:
    with Scene(TWO_BROKERS, **ONE_COPY_EACH) as scene:
        stage = Stage(scene)
        stage.write_unknown()
        stage.commit()
        assert not stage.knows()
        scene.run_for(10 * LAG_S)
        assert committed_end(scene) == 2, "readers of committed records get what was committed"
        assert not stage.owed()


def test_a_topic_that_was_deleted_before_the_coordinator_heard_of_it_is_owed_nothing() -> None:
    with Scene(TWO_BROKERS, **ONE_COPY_EACH) as scene:
        stage = Stage(scene)
        stage.write_unknown()
        stage.commit()
        body = {"topic_names": [TOPIC], "timeout_ms": 5_000}
        assert scene.ask_at(stage.writer, ApiKey.DELETE_TOPICS, 5, body).responses[0].error_code == ErrorCode.NONE
        assert not stage.knows() and stage.owed()
        scene.until(lambda: not stage.owed())


def test_nothing_counts_as_deleted_while_no_controller_answers() -> None:
    with Scene(TWO_BROKERS, **ONE_COPY_EACH) as scene:
        stage = Stage(scene)
        stage.write_unknown()
        scene.cut(1, stage.teller)
        stage.commit()
        scene.run_for(30.0)
        assert not stage.knows() and stage.owed()
        scene.heal()
        scene.slow_link(1, stage.teller, 0)
        scene.until(lambda: committed_end(scene) == 2)
        scene.until(lambda: not stage.owed())
