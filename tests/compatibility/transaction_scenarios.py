"""What every client library must find of transactions, told once: each library's own test file brings its producer and its consumer.

A second pair of eyes (librdkafka) looks at what is visible afterwards, so that no library vouches for itself.
Not here: what only one library can do.
"""

import time
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar
from uuid import uuid4

import pytest
from announced import needs_announced
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from system.conftest import Broker

PATIENCE_SECONDS = 40.0
QUIET_SECONDS = 0.7  # After the first record: no more will come.
NIMBLE = {"fetch.wait.max.ms": 20}  # How long librdkafka waits before it tells of an end.

Place = tuple[str, int]


def unique(name: str) -> str:
    return f"{name}-{uuid4().hex[:8]}"


def new_topic(bootstrap: str, partitions: int = 1) -> str:
    topic = unique("transactions")
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(topic, partitions, 1)])[topic].result()
    deadline = time.monotonic() + PATIENCE_SECONDS
    while topic not in admin.list_topics(timeout=10).topics:
        assert time.monotonic() < deadline, f"{topic} never came"
    return topic


def write(bootstrap: str, topic: str, *contents: str, partition: int = 0) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 0})
    for content in contents:
        producer.produce(topic, content, partition=partition)
    assert producer.flush(PATIENCE_SECONDS) == 0


def visible(bootstrap: str, topic: str, partitions: int = 1, *, isolation: str = "read_committed") -> list[str]:
    """What a reader finds now, up to where it must wait."""
    config = {"bootstrap.servers": bootstrap, "group.id": "-", "enable.partition.eof": True, "isolation.level": isolation}
    consumer = Consumer(config | NIMBLE)
    consumer.assign([TopicPartition(topic, partition, OFFSET_BEGINNING) for partition in range(partitions)])
    found, ends = [], 0
    try:
        while ends < partitions:
            message = consumer.poll(PATIENCE_SECONDS)
            assert message is not None, f"after {found} neither a record nor an end came"
            error = message.error()
            assert error is None or error.code() == KafkaError._PARTITION_EOF, error
            ends += error is not None
            found += [] if error is not None else [message.value().decode()]
    finally:
        consumer.close()
    return found


def committed(bootstrap: str, group: str, topic: str, partition: int = 0) -> int:
    """What the group has committed for sure; below 0 where nothing is."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group, "isolation.level": "read_committed"})
    try:
        (found,) = consumer.committed([TopicPartition(topic, partition)], timeout=PATIENCE_SECONDS)
        assert found.error is None, found.error
        return int(found.offset)
    finally:
        consumer.close()


def eventually_visible(bootstrap: str, topic: str, wanted: Sequence[str]) -> None:
    """The marker of a transaction follows the answer to its end."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while (found := visible(bootstrap, topic)) != list(wanted):
        assert time.monotonic() < deadline, f"{found} instead of {wanted}"
        time.sleep(0.05)


class Writer(ABC):
    """A transactional producer of some library. Making one shuts earlier ones with its id out."""

    @abstractmethod
    def begin(self) -> None: ...

    @abstractmethod
    def send(self, topic: str, value: str, partition: int = 0) -> None:
        """Into the buffer."""

    @abstractmethod
    def flush(self) -> None:
        """Returns when everything sent is acknowledged. Raises what the library raises."""

    @abstractmethod
    def take_in(self, offsets: Mapping[Place, int], member: Any) -> None: ...

    @abstractmethod
    def commit(self) -> None: ...

    @abstractmethod
    def abort(self) -> None: ...

    @abstractmethod
    def close(self) -> None: ...


class TransactionScenarios(ABC):
    """Subclassed as `Test…` by each library's file."""

    FENCED: ClassVar[tuple[type[Exception], ...]]  # What a producer raises that was shut out.
    REFUSED: ClassVar[tuple[type[Exception], ...]]  # What it raises when the broker says no.
    OUT_OF_TURN: ClassVar[tuple[type[Exception], ...]]  # What it raises when it is misused, before it asks anybody.

    @abstractmethod
    def open(self, bootstrap: str, transactional_id: str, timeout_ms: int = 60_000) -> Writer: ...

    @abstractmethod
    def read(self, bootstrap: str, topic: str, count: int, isolation: str) -> list[str]:
        """The first `count` records that the library's own consumer is given, or fewer when no more come for a while."""

    @abstractmethod
    def member(self, bootstrap: str, group: str, topic: str, count: int) -> tuple[list[str], Any]:
        """A member of the group that has read so many records, and committed nothing. It must be given back with `leave`."""

    @abstractmethod
    def leave(self, member: Any) -> None: ...

    @pytest.fixture
    def bootstrap(self, broker: Broker) -> str:
        needs_announced(broker.bootstrap, "transactions")
        return broker.bootstrap

    @pytest.fixture
    def writer(self, bootstrap: str) -> Iterator[Writer]:
        writer = self.open(bootstrap, unique("writer"))
        yield writer
        writer.close()

    def test_committed_records_are_read_and_aborted_ones_are_not(self, bootstrap: str, writer: Writer) -> None:
        topic = new_topic(bootstrap)
        for number, is_kept in enumerate([True, False, True, False, True]):
            writer.begin()
            for part in "abc":
                writer.send(topic, f"{number}{part}")
            writer.flush()
            (writer.commit if is_kept else writer.abort)()
        kept = [f"{number}{part}" for number in (0, 2, 4) for part in "abc"]
        everything = [f"{number}{part}" for number in range(5) for part in "abc"]
        eventually_visible(bootstrap, topic, kept)
        assert visible(bootstrap, topic, isolation="read_uncommitted") == everything
        assert self.read(bootstrap, topic, 10, "read_committed") == kept
        assert self.read(bootstrap, topic, 15, "read_uncommitted") == everything

    def test_one_transaction_spans_partitions_and_topics(self, bootstrap: str, writer: Writer) -> None:
        wide, narrow = new_topic(bootstrap, partitions=4), new_topic(bootstrap)
        for is_kept in (False, True):
            writer.begin()
            for partition in range(4):
                for number in range(50):
                    writer.send(wide, f"{is_kept} {partition} {number}", partition)
            writer.send(narrow, f"{is_kept}")
            writer.flush()
            (writer.commit if is_kept else writer.abort)()
        eventually_visible(bootstrap, narrow, ["True"])
        assert sorted(visible(bootstrap, wide, 4)) == sorted(f"True {partition} {number}" for partition in range(4) for number in range(50))

    def test_readers_of_committed_records_wait_before_an_open_transaction(self, bootstrap: str, writer: Writer) -> None:
        topic = new_topic(bootstrap)
        write(bootstrap, topic, "before")
        writer.begin()
        writer.send(topic, "inside")
        writer.flush()
        write(bootstrap, topic, "after")
        assert visible(bootstrap, topic) == ["before"]
        assert visible(bootstrap, topic, isolation="read_uncommitted") == ["before", "inside", "after"]
        assert self.read(bootstrap, topic, 2, "read_committed") == ["before"]
        writer.commit()
        eventually_visible(bootstrap, topic, ["before", "inside", "after"])

    def test_transactions_side_by_side_end_each_for_itself(self, bootstrap: str, writer: Writer) -> None:
        topic = new_topic(bootstrap)
        other = self.open(bootstrap, unique("other"))
        try:
            for each in (writer, other):
                each.begin()
            for number in range(3):
                for name, each in (("kept", writer), ("dropped", other)):
                    each.send(topic, f"{name} {number}")
                    each.flush()
            writer.commit()
            time.sleep(0.2)
            assert visible(bootstrap, topic)[1:] == [], "the other one is open from its first record on"
            other.abort()
            eventually_visible(bootstrap, topic, ["kept 0", "kept 1", "kept 2"])
        finally:
            other.close()

    def test_what_is_in_the_buffer_goes_with_the_transaction(self, bootstrap: str, writer: Writer) -> None:
        topic = new_topic(bootstrap)
        writer.begin()
        writer.send(topic, "dropped")
        writer.abort()
        writer.begin()
        writer.send(topic, "kept")
        writer.commit()
        eventually_visible(bootstrap, topic, ["kept"])

    def test_empty_transactions_end_well(self, bootstrap: str, writer: Writer) -> None:
        topic = new_topic(bootstrap)
        for end in (writer.commit, writer.abort, writer.commit):
            writer.begin()
            end()
        writer.begin()
        writer.send(topic, "kept")
        writer.commit()
        eventually_visible(bootstrap, topic, ["kept"])

    def test_offsets_are_committed_with_the_records_or_not_at_all(self, bootstrap: str, writer: Writer) -> None:
        source, target, group = new_topic(bootstrap), new_topic(bootstrap), unique("group")
        write(bootstrap, source, *(f"{number}" for number in range(10)))
        for is_kept in (False, True):
            read, member = self.member(bootstrap, group, source, 10)
            try:
                writer.begin()
                for value in read:
                    writer.send(target, f"{is_kept} {value}")
                writer.take_in({(source, 0): 10}, member)
                (writer.commit if is_kept else writer.abort)()
            finally:
                self.leave(member)
            assert committed(bootstrap, group, source) == (10 if is_kept else -1001)
        eventually_visible(bootstrap, target, [f"True {number}" for number in range(10)])

    def test_offsets_of_an_open_transaction_are_not_stable(self, bootstrap: str, writer: Writer) -> None:
        source, group = new_topic(bootstrap), unique("group")
        write(bootstrap, source, *"abcdef")
        curious = Consumer({"bootstrap.servers": bootstrap, "group.id": group, "isolation.level": "read_uncommitted"})
        curious.commit(offsets=[TopicPartition(source, 0, 2)], asynchronous=False)
        writer.begin()
        _, member = self.member(bootstrap, group, source, 4)
        try:
            writer.take_in({(source, 0): 6}, member)
            (told,) = curious.committed([TopicPartition(source, 0)], timeout=PATIENCE_SECONDS)
            assert told.offset == 2, "one who does not care is told what holds"
            assert unstable(bootstrap, group, source), "one who does has to wait"
            writer.commit()
        finally:
            self.leave(member)
            curious.close()
        assert committed(bootstrap, group, source) == 6

    def test_the_next_producer_with_the_same_id_shuts_the_first_one_out(self, bootstrap: str) -> None:
        topic, name = new_topic(bootstrap), unique("twin")
        first = self.open(bootstrap, name)
        first.begin()
        first.send(topic, "of the first")
        first.flush()
        second = self.open(bootstrap, name)
        try:
            eventually_visible(bootstrap, topic, [])
            write(bootstrap, topic, "of nobody")
            eventually_visible(bootstrap, topic, ["of nobody"])  # What the first had open is ended.
            with pytest.raises(self.FENCED):
                first.send(topic, "of a zombie")
                first.flush()
                first.commit()
            second.begin()
            second.send(topic, "of the second")
            second.commit()
            eventually_visible(bootstrap, topic, ["of nobody", "of the second"])
        finally:
            second.close()
            first.close()

    def test_a_transaction_that_takes_too_long_is_aborted(self, bootstrap: str) -> None:
        topic = new_topic(bootstrap)
        writer = self.open(bootstrap, unique("slow"), timeout_ms=1_000)
        try:
            writer.begin()
            writer.send(topic, "slow")
            writer.flush()
            write(bootstrap, topic, "after")
            eventually_visible(bootstrap, topic, ["after"])
            with pytest.raises(self.REFUSED):
                writer.commit()
        finally:
            writer.close()

    def test_a_time_out_that_is_too_long_is_refused(self, bootstrap: str) -> None:
        with pytest.raises(self.REFUSED):
            self.open(bootstrap, unique("patient"), timeout_ms=3_600_000).close()

    def test_nothing_is_done_out_of_turn(self, bootstrap: str, writer: Writer) -> None:
        topic = new_topic(bootstrap)
        for out_of_turn in (writer.commit, writer.abort, lambda: self._send(writer, topic)):
            with pytest.raises(self.OUT_OF_TURN):
                out_of_turn()
        writer.begin()
        with pytest.raises(self.OUT_OF_TURN):
            writer.begin()
        writer.send(topic, "kept")
        writer.commit()
        eventually_visible(bootstrap, topic, ["kept"])

    def _send(self, writer: Writer, topic: str) -> None:
        writer.send(topic, "out of turn")
        writer.flush()


def unstable(bootstrap: str, group: str, topic: str) -> bool:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group, "isolation.level": "read_committed"})
    try:
        (found,) = consumer.committed([TopicPartition(topic, 0)], timeout=QUIET_SECONDS)
        return found.error is not None
    except Exception as failure:
        error = failure.args[0]
        assert error.code() in (KafkaError._TIMED_OUT, KafkaError.UNSTABLE_OFFSET_COMMIT), error
        return True
    finally:
        consumer.close()
