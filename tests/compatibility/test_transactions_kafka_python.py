"""Transactions through kafka-python, which also has every admin call for them."""

import time
from collections.abc import Iterator, Mapping
from contextlib import closing
from typing import Any, ClassVar

import pytest
from announced import needs_announced
from compatibility.transaction_scenarios import (
    Place,
    Reader,
    TransactionScenarios,
    Writer,
    eventually_visible,
    new_topic,
    visible,
)
from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, TopicPartition
from kafka.admin import AbortTransactionSpec
from kafka.errors import KafkaError, TransactionalIdNotFoundError
from kafka.structs import OffsetAndMetadata
from system.librdkafka import unique
from waiting import ASK_MS, ASK_S, METADATA_AGE_MS, NEVER_MS, PATIENCE_MS, PATIENCE_S, until


class KafkaPythonWriter(Writer):
    def __init__(self, bootstrap: str, transactional_id: str, timeout_ms: int = NEVER_MS) -> None:
        self.name = transactional_id
        self._library = KafkaProducer(
            bootstrap_servers=bootstrap, transactional_id=transactional_id, transaction_timeout_ms=timeout_ms, max_block_ms=PATIENCE_MS
        )
        self._sent: list[Any] = []
        try:
            self._library.init_transactions()
        except BaseException:
            self._library.close(timeout=ASK_S)
            raise

    def begin(self) -> None:
        self._sent = []
        self._library.begin_transaction()

    def send(self, topic: str, value: str, partition: int = 0) -> None:
        self._sent.append(self._library.send(topic, value.encode(), partition=partition))

    def flush(self) -> None:
        self._library.flush(PATIENCE_S)
        for future in self._sent:
            future.get(0)

    def take_in(self, offsets: Mapping[Place, int], member: Any) -> None:
        places = {TopicPartition(*place): OffsetAndMetadata(offset, "", -1) for place, offset in offsets.items()}
        self._library.send_offsets_to_transaction(places, member.group_metadata())

    def commit(self) -> None:
        self._library.commit_transaction()

    def abort(self) -> None:
        self._library.abort_transaction()

    def close(self) -> None:
        self._library.close(timeout=ASK_S)


class KafkaPythonReader(Reader):
    def __init__(self, bootstrap: str, topic: str, isolation: str, partitions: int) -> None:
        self._library = KafkaConsumer(bootstrap_servers=bootstrap, isolation_level=isolation)
        self._library.assign([TopicPartition(topic, partition) for partition in range(partitions)])
        self._library.seek_to_beginning()

    def poll(self) -> list[str]:
        return [message.value.decode() for messages in self._library.poll(ASK_MS).values() for message in messages]

    def close(self) -> None:
        self._library.close()


class TestKafkaPython(TransactionScenarios):
    FENCED: ClassVar = (KafkaError,)
    REFUSED: ClassVar = (KafkaError,)
    OUT_OF_TURN: ClassVar = (KafkaError,)

    def open(self, bootstrap: str, transactional_id: str, timeout_ms: int = NEVER_MS) -> Writer:
        return KafkaPythonWriter(bootstrap, transactional_id, timeout_ms)

    def reader(self, bootstrap: str, topic: str, isolation: str, partitions: int = 1) -> Reader:
        return KafkaPythonReader(bootstrap, topic, isolation, partitions)

    def member(self, bootstrap: str, group: str, topic: str, count: int) -> tuple[list[str], Any]:
        consumer = KafkaConsumer(
            topic, bootstrap_servers=bootstrap, group_id=group, enable_auto_commit=False, auto_offset_reset="earliest",
            isolation_level="read_committed", consumer_timeout_ms=PATIENCE_MS, session_timeout_ms=NEVER_MS,
            metadata_max_age_ms=METADATA_AGE_MS,
        )  # fmt: skip
        found: list[str] = []
        while len(found) < count:
            found.append(next(consumer).value.decode())
        return found, consumer

    def leave(self, member: Any) -> None:
        member.close()


# Seen from outside.


@pytest.fixture
def admin(broker: Any) -> Iterator[KafkaAdminClient]:
    needs_announced(broker.bootstrap, "transactions", "the admin APIs of transactions")
    with closing(KafkaAdminClient(bootstrap_servers=broker.bootstrap)) as admin:
        yield admin


@pytest.fixture
def writer(broker: Any, admin: KafkaAdminClient) -> Iterator[KafkaPythonWriter]:
    writer = KafkaPythonWriter(broker.bootstrap, unique("seen"))
    yield writer
    writer.close()


def listed(admin: KafkaAdminClient, **filters: Any) -> dict[str, str]:
    return {each.transactional_id: each.state.value for found in admin.list_transactions(**filters).values() for each in found}


def wait_for_state(admin: KafkaAdminClient, name: str, state: str) -> None:
    until(lambda: admin.describe_transactions([name])[name].state.value == state, state)


def test_a_transaction_is_described_through_its_life(broker: Any, admin: KafkaAdminClient, writer: KafkaPythonWriter) -> None:
    topic = new_topic(broker.bootstrap, partitions=2)
    told = admin.describe_transactions([writer.name])[writer.name]
    assert (told.state.value, told.transaction_timeout_ms, told.topic_partitions) == ("Empty", NEVER_MS, set())
    began = int(time.time() * 1000)
    writer.begin()
    for partition in range(2):
        writer.send(topic, "v", partition)
    writer.flush()
    told = admin.describe_transactions([writer.name])[writer.name]
    assert (told.state.value, told.topic_partitions) == ("Ongoing", {TopicPartition(topic, 0), TopicPartition(topic, 1)})
    assert abs(told.transaction_start_time_ms - began) < PATIENCE_MS
    writer.commit()
    wait_for_state(admin, writer.name, "CompleteCommit")
    assert admin.describe_transactions([writer.name])[writer.name].topic_partitions == set()
    writer.begin()
    writer.send(topic, "v")
    writer.flush()
    writer.abort()
    wait_for_state(admin, writer.name, "CompleteAbort")


def test_an_id_that_nobody_used_is_not_found(admin: KafkaAdminClient) -> None:
    with pytest.raises(TransactionalIdNotFoundError):
        admin.describe_transactions([unique("nobody")])


def test_transactions_are_listed_by_state_producer_age_and_name(broker: Any, admin: KafkaAdminClient, writer: KafkaPythonWriter) -> None:
    topic = new_topic(broker.bootstrap)
    idle = KafkaPythonWriter(broker.bootstrap, unique("idle"))
    writer.begin()
    writer.send(topic, "v")
    writer.flush()
    everything = listed(admin)
    assert (everything[writer.name], everything[idle.name]) == ("Ongoing", "Empty")
    ongoing = listed(admin, state_filters=["Ongoing"])
    assert writer.name in ongoing and idle.name not in ongoing
    producer_id = admin.describe_transactions([writer.name])[writer.name].producer_id
    assert list(listed(admin, producer_id_filters=[producer_id])) == [writer.name]
    assert writer.name not in listed(admin, duration_filter_ms=3_600_000)
    assert writer.name in listed(admin, duration_filter_ms=0)
    assert list(listed(admin, transactional_id_pattern=f"{writer.name[:-1]}.")) == [writer.name]
    assert listed(admin, transactional_id_pattern=writer.name[:-1]) == {}, "the whole id must match"
    writer.abort()
    idle.close()


def test_what_is_open_in_a_partition_is_seen_and_can_be_ended_there(
    broker: Any, admin: KafkaAdminClient, writer: KafkaPythonWriter
) -> None:
    topic = new_topic(broker.bootstrap)
    where = TopicPartition(topic, 0)
    writer.begin()
    writer.send(topic, "v")
    writer.flush()
    (producer,) = admin.describe_producers([where])[where].active_producers
    assert (producer.current_transaction_start_offset, producer.last_sequence) == (0, 0)
    assert visible(broker.bootstrap, topic) == []
    admin.abort_transaction(AbortTransactionSpec(where, producer.producer_id, producer.producer_epoch, max(0, producer.coordinator_epoch)))
    (producer,) = admin.describe_producers([where])[where].active_producers
    assert producer.current_transaction_start_offset == -1
    eventually_visible(broker.bootstrap, topic, [])
    writer.abort()
