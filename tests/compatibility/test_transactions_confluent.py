"""Transactions through confluent-kafka (librdkafka)."""

import warnings
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, ClassVar

import pytest
from compatibility.transaction_scenarios import (
    NIMBLE,
    Place,
    Reader,
    TransactionScenarios,
    Writer,
    committed,
    eventually_visible,
    new_topic,
    write,
)
from confluent_kafka import Consumer as Library
from confluent_kafka import IsolationLevel, KafkaError, KafkaException, TopicPartition
from confluent_kafka import Producer as LibraryProducer
from confluent_kafka.admin import OffsetSpec
from system.librdkafka import admin, unique
from tiers import pick
from waiting import ASK_S, NEVER_MS, PATIENCE_S, until

LONG_HISTORY = pick(test=24, slow=60)
OTHER_CODECS = pytest.mark.slow(
    stays="tests/compatibility/test_transactions_confluent.py::TestConfluent::test_compressed_batches_are_kept_or_dropped_as_any"
)


class ConfluentWriter(Writer):
    def __init__(self, bootstrap: str, transactional_id: str, timeout_ms: int = NEVER_MS, **more: Any) -> None:
        config = {
            "bootstrap.servers": bootstrap,
            "transactional.id": transactional_id,
            "transaction.timeout.ms": timeout_ms,
            "linger.ms": 1,
        }
        self.library = LibraryProducer({**config, **more})
        self._failures: list[KafkaError] = []
        self.library.init_transactions(PATIENCE_S)

    def begin(self) -> None:
        self.library.begin_transaction()

    def send(self, topic: str, value: str, partition: int = 0) -> None:
        self.library.produce(topic, value, partition=partition, on_delivery=self._delivered)

    def flush(self) -> None:
        try:
            assert self.library.flush(PATIENCE_S) == 0
        except SystemError:  # What the library makes of a fatal error that is heard together with a report.
            raise KafkaException(KafkaError(KafkaError._FATAL)) from None
        if self._failures:
            raise KafkaException(self._failures[0])

    def take_in(self, offsets: Mapping[Place, int], member: Any) -> None:
        places = [TopicPartition(*place, offset) for place, offset in offsets.items()]
        self.library.send_offsets_to_transaction(places, member.consumer_group_metadata(), PATIENCE_S)

    def commit(self) -> None:
        self.library.commit_transaction(PATIENCE_S)

    def abort(self) -> None:
        self.library.abort_transaction(PATIENCE_S)

    def close(self) -> None:
        self.library.purge()
        with suppress(KafkaException, SystemError), warnings.catch_warnings():  # One that was shut out tells so here, too.
            warnings.simplefilter("ignore", RuntimeWarning)
            self.library.close(PATIENCE_S)

    def _delivered(self, error: KafkaError | None, _: Any) -> None:
        self._failures += [error] if error is not None else []


class ConfluentReader(Reader):
    def __init__(self, bootstrap: str, topic: str, isolation: str, partitions: int) -> None:
        self._library = Library({"bootstrap.servers": bootstrap, "group.id": "-", "isolation.level": isolation} | NIMBLE)
        self._library.assign([TopicPartition(topic, partition, 0) for partition in range(partitions)])

    def poll(self) -> list[str]:
        message = self._library.poll(ASK_S)
        if message is None:
            return []
        assert message.error() is None, message.error()
        return [message.value().decode()]

    def close(self) -> None:
        self._library.close()


class TestConfluent(TransactionScenarios):
    FENCED: ClassVar = (KafkaException,)
    REFUSED: ClassVar = (KafkaException,)
    OUT_OF_TURN: ClassVar = (KafkaException,)

    def open(self, bootstrap: str, transactional_id: str, timeout_ms: int = NEVER_MS) -> Writer:
        return ConfluentWriter(bootstrap, transactional_id, timeout_ms)

    def reader(self, bootstrap: str, topic: str, isolation: str, partitions: int = 1) -> Reader:
        return ConfluentReader(bootstrap, topic, isolation, partitions)

    def member(self, bootstrap: str, group: str, topic: str, count: int) -> tuple[list[str], Any]:
        config = {"bootstrap.servers": bootstrap, "group.id": group, "auto.offset.reset": "earliest", "enable.auto.commit": False}
        consumer = Library({**config, "isolation.level": "read_committed", **self.MEMBERSHIP})
        consumer.subscribe([topic])
        found: list[str] = []
        while len(found) < count:
            message = consumer.poll(PATIENCE_S)
            assert message is not None and message.error() is None, message and message.error()
            found.append(message.value().decode())
        return found, consumer

    MEMBERSHIP: ClassVar[dict[str, Any]] = {}

    def leave(self, member: Any) -> None:
        member.close()

    def test_a_producer_that_was_shut_out_is_told_by_the_right_code(self, bootstrap: str) -> None:
        topic, name = new_topic(bootstrap), unique("twin")
        first = ConfluentWriter(bootstrap, name)
        first.begin()
        first.send(topic, "v")
        first.flush()
        second = ConfluentWriter(bootstrap, name)
        with pytest.raises(KafkaException) as told:
            first.commit()
        error = told.value.args[0]
        assert (error.code(), error.fatal()) == (KafkaError._FENCED, True)
        for writer in (first, second):
            writer.close()

    def test_who_left_the_group_cannot_commit_its_offsets_in_a_transaction(self, bootstrap: str, writer: Writer) -> None:
        assert isinstance(writer, ConfluentWriter)
        source, target, group = new_topic(bootstrap), new_topic(bootstrap), unique("group")
        write(bootstrap, source, "a", "b")
        _, member = self.member(bootstrap, group, source, 2)
        membership = member.consumer_group_metadata()
        self.leave(member)
        writer.begin()
        writer.send(target, "of a zombie")
        with pytest.raises(KafkaException) as told:
            writer.library.send_offsets_to_transaction([TopicPartition(source, 0, 2)], membership, PATIENCE_S)
        error = told.value.args[0]
        assert error.txn_requires_abort(), error
        assert error.code() in (KafkaError.UNKNOWN_MEMBER_ID, KafkaError.ILLEGAL_GENERATION), error
        writer.abort()
        eventually_visible(bootstrap, target, [])
        assert committed(bootstrap, group, source) < 0

    def test_too_long_a_time_out_is_told_by_the_right_code(self, bootstrap: str) -> None:
        with pytest.raises(KafkaException) as told:
            ConfluentWriter(bootstrap, unique("patient"), timeout_ms=3_600_000)
        assert told.value.args[0].code() == KafkaError.INVALID_TRANSACTION_TIMEOUT

    @pytest.mark.parametrize("codec", ["zstd", *(pytest.param(codec, marks=OTHER_CODECS) for codec in ("none", "gzip", "snappy", "lz4"))])
    def test_compressed_batches_are_kept_or_dropped_as_any(self, bootstrap: str, codec: str) -> None:
        topic = new_topic(bootstrap)
        writer = ConfluentWriter(bootstrap, unique("codec"), **{"compression.type": codec, "batch.num.messages": 100})
        for is_kept in (True, False, True):
            writer.begin()
            for number in range(500):
                writer.send(topic, f"{is_kept} {number} " + "x" * 50)
            writer.flush()
            (writer.commit if is_kept else writer.abort)()
        eventually_visible(bootstrap, topic, [f"True {number} " + "x" * 50 for number in range(500)] * 2)
        writer.close()

    def test_the_last_stable_offset_is_told_to_who_asks_for_it(self, bootstrap: str, writer: Writer) -> None:
        topic = new_topic(bootstrap)
        write(bootstrap, topic, "a", "b")
        writer.begin()
        writer.send(topic, "c")
        writer.flush()
        write(bootstrap, topic, "d")
        assert latest(bootstrap, topic, IsolationLevel.READ_COMMITTED) == 2
        assert latest(bootstrap, topic, IsolationLevel.READ_UNCOMMITTED) == 4
        writer.commit()
        what = "the marker has the offset 4, and all before 5 is stable"
        until(lambda: latest(bootstrap, topic, IsolationLevel.READ_COMMITTED) == 5, what)

    @pytest.mark.repeats
    def test_a_long_history_of_transactions_is_read_right_from_anywhere(self, bootstrap: str, writer: Writer) -> None:
        """The list of aborted ones that comes with each fetch is for those that overlap it."""
        topic = new_topic(bootstrap)
        for number in range(LONG_HISTORY):
            writer.begin()
            writer.send(topic, f"{number}")
            writer.flush()
            (writer.abort if number % 3 == 0 else writer.commit)()
        kept = [f"{number}" for number in range(LONG_HISTORY) if number % 3]
        eventually_visible(bootstrap, topic, kept)
        for start in range(0, 2 * LONG_HISTORY, 17):
            consumer = Library({"bootstrap.servers": bootstrap, "group.id": "-", "enable.partition.eof": True} | NIMBLE)
            consumer.assign([TopicPartition(topic, 0, start)])
            found = []
            while (message := consumer.poll(PATIENCE_S)) is not None and message.error() is None:
                found.append(message.value().decode())
            consumer.close()
            assert found == [f"{number}" for number in range(LONG_HISTORY) if number % 3 and 2 * number >= start], f"from offset {start}"


def latest(bootstrap: str, topic: str, isolation: IsolationLevel) -> int:
    where = TopicPartition(topic, 0)
    return int(admin(bootstrap).list_offsets({where: OffsetSpec.latest()}, isolation_level=isolation)[where].result().offset)
