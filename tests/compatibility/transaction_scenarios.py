"""What every client library must find of transactions, told once: each library's own test file brings its producer and its consumer.

A second pair of eyes (librdkafka) looks at what is visible afterwards, so that no library vouches for itself.
Not here: what only one library can do.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from typing import Any, ClassVar

import pytest
from announced import needs_announced
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from system.conftest import Broker
from system.librdkafka import consumer, make_topic, topic_list, unique
from system.raw import Line
from waiting import EXPIRES_MS, NEVER_MS, PATIENCE_S, POLL_S, stays, until

from penstock.errors import ErrorCode
from penstock.wire.api_keys import ApiKey

NIMBLE = {"fetch.wait.max.ms": 20}  # How long librdkafka waits before it tells of an end.

Place = tuple[str, int]


def new_topic(bootstrap: str, partitions: int = 1) -> str:
    topic = make_topic(bootstrap, unique("transactions"), partitions)
    until(lambda: topic in topic_list(bootstrap), f"{topic} is there")
    return topic


def write(bootstrap: str, topic: str, *contents: str, partition: int = 0) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 0})
    for content in contents:
        producer.produce(topic, content, partition=partition)
    assert producer.flush(PATIENCE_S) == 0


def visible(bootstrap: str, topic: str, partitions: int = 1, *, isolation: str = "read_committed") -> list[str]:
    """What a reader finds now, up to where it must wait."""
    config = {"bootstrap.servers": bootstrap, "group.id": "-", "enable.partition.eof": True, "isolation.level": isolation}
    consumer = Consumer(config | NIMBLE)
    # By its number: librdkafka asks for the beginning half a second later, while it does not know who leads.
    consumer.assign([TopicPartition(topic, partition, 0) for partition in range(partitions)])
    found, ends = [], 0
    try:
        while ends < partitions:
            message = consumer.poll(PATIENCE_S)
            assert message is not None, f"after {found} neither a record nor an end came"
            error = message.error()
            assert error is None or error.code() == KafkaError._PARTITION_EOF, error
            ends += error is not None
            found += [] if error is not None else [message.value().decode()]
    finally:
        consumer.close()
    return found


def end_of(bootstrap: str, topic: str) -> int:
    """The offset after the last record or marker."""
    with consumer(bootstrap, isolation_level="read_uncommitted") as reader:
        return int(reader.get_watermark_offsets(TopicPartition(topic, 0), timeout=PATIENCE_S)[1])


def committed(bootstrap: str, group: str, topic: str, partition: int = 0) -> int:
    """What the group has committed for sure; below 0 where nothing is."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group, "isolation.level": "read_committed"})
    try:
        (found,) = consumer.committed([TopicPartition(topic, partition)], timeout=PATIENCE_S)
        assert found.error is None, found.error
        return int(found.offset)
    finally:
        consumer.close()


def eventually_visible(bootstrap: str, topic: str, wanted: Sequence[str]) -> None:
    """The marker of a transaction follows the answer to its end."""
    found: list[list[str]] = []

    def is_visible() -> bool:
        found[:] = [visible(bootstrap, topic)]
        return found == [list(wanted)]

    until(is_visible, lambda: f"{wanted} instead of {found}", every_s=4 * POLL_S)


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


class Reader(ABC):
    """A library's own consumer of all partitions of a topic, from their beginning on."""

    @abstractmethod
    def poll(self) -> list[str]:
        """What it is given now, in order; nothing when nothing comes for a moment."""

    @abstractmethod
    def close(self) -> None: ...


class TransactionScenarios(ABC):
    """Subclassed as `Test…` by each library's file."""

    FENCED: ClassVar[tuple[type[Exception], ...]]  # What a producer raises that was shut out.
    REFUSED: ClassVar[tuple[type[Exception], ...]]  # What it raises when the broker says no.
    OUT_OF_TURN: ClassVar[tuple[type[Exception], ...]]  # What it raises when it is misused, before it asks anybody.

    @abstractmethod
    def open(self, bootstrap: str, transactional_id: str, timeout_ms: int = NEVER_MS) -> Writer: ...

    @abstractmethod
    def reader(self, bootstrap: str, topic: str, isolation: str, partitions: int = 1) -> Reader: ...

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
        write(bootstrap, topic, "end")
        kept = [*(f"{number}{part}" for number in (0, 2, 4) for part in "abc"), "end"]
        everything = [*(f"{number}{part}" for number in range(5) for part in "abc"), "end"]
        eventually_visible(bootstrap, topic, kept)
        assert visible(bootstrap, topic, isolation="read_uncommitted") == everything
        for isolation, expected in (("read_committed", kept), ("read_uncommitted", everything)):
            with closing(self.reader(bootstrap, topic, isolation)) as reader:
                assert read_up_to("end", reader) == expected

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
        topic = new_topic(bootstrap, partitions=2)
        write(bootstrap, topic, "before")
        writer.begin()
        writer.send(topic, "inside")
        writer.flush()
        write(bootstrap, topic, "after")
        assert visible(bootstrap, topic) == ["before"]
        assert visible(bootstrap, topic, isolation="read_uncommitted") == ["before", "inside", "after"]
        with closing(self.reader(bootstrap, topic, "read_committed", partitions=2)) as reader:
            found = read_up_to("before", reader)
            for number in range(3):  # The reader goes on meanwhile.
                write(bootstrap, topic, f"beside {number}", partition=1)
                found += read_up_to(f"beside {number}", reader)
            assert found == ["before", "beside 0", "beside 1", "beside 2"]
            writer.commit()
            assert read_up_to("after", reader) == ["inside", "after"]
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
            until(lambda: end_of(bootstrap, topic) == 7, "the marker of its end follows six records")
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
            with ThreadPoolExecutor(1) as thread:
                patient = thread.submit(committed, bootstrap, group, source)
                (told,) = curious.committed([TopicPartition(source, 0)], timeout=PATIENCE_S)
                assert told.offset == 2, "one who does not care is told what holds"
                assert is_unstable(bootstrap, group, source), "one who does is told to wait"
                stays(lambda: not patient.done())
                writer.commit()
                assert patient.result() == 6, "and waits"
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
        """After a second: librdkafka takes no shorter time."""
        topic = new_topic(bootstrap)
        writer = self.open(bootstrap, unique("slow"), timeout_ms=20 * EXPIRES_MS)
        try:
            writer.begin()
            writer.send(topic, "slow")
            with suppress(self.REFUSED):  # It may take too long already.
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


def is_unstable(bootstrap: str, group: str, topic: str) -> bool:
    """Whether one who asks for an offset that no open transaction can change is told to ask later."""
    wanted = [{"name": topic, "partition_indexes": [0]}]
    with Line(Broker(bootstrap, None).address) as line:
        told = line.ask(ApiKey.OFFSET_FETCH, 7, group_id=group, topics=wanted, require_stable=True)
    error = told.topics[0].partitions[0].error_code
    assert error in (ErrorCode.NONE, ErrorCode.UNSTABLE_OFFSET_COMMIT), error
    return bool(error)


def read_up_to(last: str, reader: Reader) -> list[str]:
    """What the reader is given from now on, up to this record."""
    found: list[str] = []

    def has_come() -> bool:
        found.extend(reader.poll())
        return last in found

    until(has_come, lambda: f"{last} comes after {found}")
    return found
