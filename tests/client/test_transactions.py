"""Transactions of the Python face: all or nothing, for records and for the offsets of a consumer.

With PENSTOCK_PEER=host:port the tests talk to that broker instead: Apache Kafka must pass them too.
"""

import os
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor

import pytest
from client.client_side import ATTENTIVE, NIMBLE, holds_unless_the_machine_stalls, member, numbered, poll_count, values
from client.transaction_side import new_topic, read, transactional, write
from waiting import EXPIRES_S, PATIENCE_S, until

from penstock.client import (
    ClientError,
    Closed,
    Consumer,
    Fenced,
    Message,
    NotDelivered,
    Outgoing,
    Producer,
    Receipt,
    TransactionAborted,
    TransactionFailed,
    read_process_write,
)
from penstock.client.transaction_calls import TransactionCalls
from penstock.testing import broker
from penstock.testing.topics import create_topic

QUICK_ABORTS = {"transaction_abort_timed_out_transaction_cleanup_interval_ms": 200}


# Records.


def test_what_is_committed_is_read_and_what_is_aborted_is_not(bootstrap: str, topic: str, name: str):
    with transactional(bootstrap, name) as producer:
        with producer.transaction():
            receipts = [producer.send(topic=topic, value=value) for value in numbered(3)]
        assert [receipt.result(0).offset for receipt in receipts] == [0, 1, 2]
        with pytest.raises(KeyError, match="why not"), producer.transaction():
            for value in numbered(2, start=3):
                producer.send(topic=topic, value=value)
            producer.flush()
            raise KeyError("why not")
        with producer.transaction():
            producer.send(topic=topic, value=b"00005")
    assert read(bootstrap, topic) == [*numbered(3), b"00005"]
    with Consumer(topics=[topic], bootstrap=bootstrap, isolation="read_uncommitted") as curious:
        assert values(poll_count(curious, 7))[:6] == numbered(6)


def test_nothing_of_an_open_transaction_is_read_before_its_end(bootstrap: str, name: str):
    topic = new_topic(bootstrap, partitions=2)
    with (
        transactional(bootstrap, name) as producer,
        Consumer(topics=[topic], bootstrap=bootstrap, settings=NIMBLE) as consumer,
    ):
        with producer.transaction():
            producer.send(topic=topic, value=b"v", partition=0).result(PATIENCE_S)
            with Consumer(topics=[topic], bootstrap=bootstrap, isolation="read_uncommitted") as curious:
                assert values(poll_count(curious, 1)) == [b"v"]
            for value in numbered(3):
                write(bootstrap, topic, [value], partition=1)
                assert values(poll_count(consumer, 1)) == [value], "it reads both partitions"
            assert consumer.poll(timeout=EXPIRES_S) == []
        assert values(poll_count(consumer, 1)) == [b"v"]


def test_a_transaction_over_several_partitions_is_one(bootstrap: str, name: str):
    topics = [new_topic(bootstrap, partitions=3), new_topic(bootstrap)]
    with transactional(bootstrap, name) as producer:
        for is_kept in (True, False):
            with producer.transaction() as transaction:
                for topic, partition in ((topics[0], 0), (topics[0], 1), (topics[0], 2), (topics[1], 0)):
                    producer.send(topic=topic, partition=partition, value=f"{is_kept}-{partition}")
                if not is_kept:
                    producer.flush()
                    transaction.abort()
    assert sorted(map(str, read(bootstrap, topics[0], 3))) == ["b'True-0'", "b'True-1'", "b'True-2'"]
    assert read(bootstrap, topics[1]) == [b"True-0"]


def test_one_that_is_given_up_takes_what_is_in_the_buffer_with_it(bootstrap: str, topic: str, name: str):
    with transactional(bootstrap, name, linger_ms=30_000) as producer:
        with producer.transaction() as transaction:
            receipt = producer.send(topic=topic, value=b"v")
            transaction.abort()
            transaction.abort()
            with pytest.raises(NotDelivered, match="no transaction is open"):
                producer.send(topic=topic, value=b"late")
        with pytest.raises(NotDelivered, match="its transaction was aborted"):
            receipt.result(0)
        producer.flush()  # Nobody need hear of it again.
    assert read(bootstrap, topic) == []


def test_an_empty_transaction_is_nothing(bootstrap: str, topic: str, name: str):
    with transactional(bootstrap, name) as producer:
        for _ in range(2):
            with producer.transaction():
                pass
        with producer.transaction():
            producer.send(topic=topic, value=b"v")
    assert read(bootstrap, topic) == [b"v"]


def test_a_record_that_cannot_be_delivered_aborts_all_of_it(bootstrap: str, topic: str, name: str):
    settings = {"message.max.bytes": 3_000_000}
    with transactional(bootstrap, name, settings=settings) as producer:
        with pytest.raises(TransactionAborted), producer.transaction():
            producer.send(topic=topic, value=b"small")
            producer.send(topic=topic, value=os.urandom(2_500_000))
        until_through(producer, topic, b"next")
    assert read(bootstrap, topic) == [b"next"]


def until_through(producer: Producer, topic: str, value: bytes) -> None:
    """librdkafka 2.16 numbers the record after a refused one too high, once; that transaction is aborted too, and the next is well."""
    for is_last in (False, False, True):
        try:
            with producer.transaction():
                producer.send(topic=topic, value=value)
            return
        except TransactionAborted:
            if is_last:
                raise


def test_closing_in_the_middle_aborts(bootstrap: str, topic: str, name: str):
    producer = transactional(bootstrap, name)
    with pytest.raises(TransactionAborted, match="close it afterwards"), producer.transaction():
        producer.send(topic=topic, value=b"v").result(PATIENCE_S)
        producer.close()
        assert read(bootstrap, topic) == []
        with pytest.raises(Closed):
            producer.transaction()


# Misuse.


def test_what_cannot_be_is_refused_with_a_way_out(bootstrap: str, topic: str, name: str):
    with Producer(bootstrap) as plain:
        with pytest.raises(ValueError, match="transactional_id="):
            plain.transaction()
        with pytest.raises(ValueError, match="transactional_id="):
            plain.take_over()
    with pytest.raises(ValueError, match="acks='all'"):
        Producer(bootstrap, transactional_id=name, acks=1)
    with transactional(bootstrap, name) as producer:
        with pytest.raises(NotDelivered, match=r"with producer\.transaction\(\)"):
            producer.send(topic=topic, value=b"v")
        with producer.transaction():
            with pytest.raises(RuntimeError, match="one after the other"), producer.transaction():
                pass
            with pytest.raises(ValueError, match="acks='all'"):
                producer.send(topic=topic, value=b"v", acks=0)
            producer.send(topic=topic, value=b"v")
        alone = Consumer(topics=[topic], bootstrap=bootstrap)
        automatic = Consumer(topics=[topic], group=name, auto_commit=True, bootstrap=bootstrap)
        with alone, pytest.raises(ValueError, match="give it a group="):
            producer.transaction(alone)
        with automatic, pytest.raises(ValueError, match="auto_commit"):
            producer.transaction(automatic)
    assert read(bootstrap, topic) == [b"v"]


# Producers that get into each other's way.


def test_the_next_producer_with_the_same_id_shuts_the_first_one_out(bootstrap: str, topic: str, name: str):
    with transactional(bootstrap, name) as first, transactional(bootstrap, name) as second:
        with pytest.raises(Fenced, match="stop one of them"), first.transaction():
            first.send(topic=topic, value=b"first").result(PATIENCE_S)
            second.take_over()
        with pytest.raises(Fenced), first.transaction():
            pass
        with second.transaction():
            second.send(topic=topic, value=b"second")
    assert read(bootstrap, topic) == [b"second"]


def test_taking_over_ends_what_was_left_open(bootstrap: str, topic: str, name: str):
    left = transactional(bootstrap, name)
    try:
        transaction = left.transaction()
        transaction.__enter__()
        left.send(topic=topic, value=b"left").result(PATIENCE_S)
        with transactional(bootstrap, name) as next_one:
            next_one.take_over()
            next_one.take_over()
            assert read(bootstrap, topic) == [], "readers wait no longer"
        with pytest.raises(Fenced):
            transaction.__exit__(None, None, None)
    finally:
        left.close()


def test_a_transaction_that_takes_too_long_is_aborted_by_the_broker(bootstrap: str, name: str):
    if os.environ.get("PENSTOCK_PEER"):
        return take_too_long(bootstrap, name)
    with broker(**QUICK_ABORTS) as node:
        take_too_long(node.bootstrap, name)


def take_too_long(bootstrap: str, name: str) -> None:
    def is_aborted(span_s: float) -> bool:
        """The record must be stored before the time is over, which is a second at least for librdkafka."""
        topic, receipts, span_s = new_topic(bootstrap), list[Receipt](), max(1.0, span_s)
        try:
            with Producer(bootstrap, transactional_id=f"{name}-{span_s}", transaction_seconds=span_s) as producer, producer.transaction():
                receipts.append(producer.send(topic=topic, value=b"v"))
                receipts[0].result(PATIENCE_S)
                assert read(bootstrap, topic) == [], "the reader goes on by itself, because the broker has ended it"
        except ClientError as told:
            if not receipts or receipts[0].exception(0) is not None:
                return False
            assert isinstance(told, TransactionFailed) and "took longer than transaction_seconds=" in str(told)
            assert "another producer" in str(told), "the broker does not say which it was"
            return True
        raise AssertionError("the broker let it go on")

    holds_unless_the_machine_stalls(is_aborted)


def test_a_time_that_the_broker_does_not_grant_is_refused_by_the_name_of_its_setting(bootstrap: str, name: str):
    producer = Producer(bootstrap, transactional_id=name, transaction_seconds=86_400)
    with producer, pytest.raises(TransactionFailed, match=r"transaction\.max\.timeout\.ms"):
        producer.take_over()


def test_a_producer_without_a_name_is_refused_at_once(bootstrap: str):
    with pytest.raises(ValueError, match="transactional_id must not be empty"):
        Producer(bootstrap, transactional_id="")


# With a consumer.


def test_offsets_are_committed_with_the_records_or_not_at_all(bootstrap: str, name: str):
    orders, bills = new_topic(bootstrap), new_topic(bootstrap)
    write(bootstrap, orders, numbered(10))
    with (
        transactional(bootstrap, name) as producer,
        member(bootstrap, name, orders, settings=NIMBLE) as consumer,
    ):
        first = poll_count(consumer, 10)
        with pytest.raises(KeyError), producer.transaction(consumer):
            for message in first:
                producer.send(topic=bills, value=message.value)
            raise KeyError
        again = poll_count(consumer, 10)
        assert values(again) == values(first), "the consumer was set back"
        with producer.transaction(consumer):
            for message in again:
                producer.send(topic=bills, value=message.value)
        write(bootstrap, orders, [b"more"])
        assert values(poll_count(consumer, 1)) == [b"more"]
    assert read(bootstrap, bills) == numbered(10)
    with member(bootstrap, name, orders) as consumer:
        assert consumer.position(orders, 0) == 10
        assert values(poll_count(consumer, 1)) == [b"more"]


def test_rewinding_hands_out_again_what_was_not_committed(bootstrap: str, topic: str, name: str):
    write(bootstrap, topic, numbered(10))
    with member(bootstrap, name, topic, settings=NIMBLE) as consumer:
        found = poll_count(consumer, 10)
        consumer.commit(found[3])
        consumer.rewind()
        assert values(poll_count(consumer, 6)) == numbered(6, start=4)
        consumer.commit()
        consumer.rewind()
        write(bootstrap, topic, [b"new"])
        assert values(poll_count(consumer, 1)) == [b"new"], "the next thing that comes is nothing that was committed"


def test_a_partition_lost_in_the_middle_aborts_what_was_made_of_it(bootstrap: str, name: str):
    orders, bills = new_topic(bootstrap, partitions=2), new_topic(bootstrap)
    for partition in range(2):
        write(bootstrap, orders, numbered(5, start=5 * partition), partition=partition)
    with (
        transactional(bootstrap, name) as producer,
        member(bootstrap, name, orders, settings=ATTENTIVE) as first,
        member(bootstrap, name, orders, settings=ATTENTIVE) as second,
    ):
        messages = poll_count(first, 10)
        with pytest.raises(TransactionAborted, match="went to another member"), producer.transaction(first):
            for message in messages:
                producer.send(topic=bills, value=message.value)
            got: list[Message] = []

            def is_shared() -> bool:
                got.extend(second.poll(timeout=EXPIRES_S))
                assert first.poll(timeout=EXPIRES_S) == []
                return len(first.assignment()) == len(second.assignment()) == 1

            until(is_shared, "the second member got a partition")
        while len(got) < 5:
            got += second.poll(timeout=PATIENCE_S)
        mine = poll_count(first, 5)
        assert sorted(map(str, values(mine + got))) == sorted(map(str, numbered(10))), "each is delivered again, to whoever has it now"
    assert read(bootstrap, bills) == []


def test_a_library_that_does_not_come_back_ends_the_producer():
    """As librdkafka 2.16 does when a group's coordinator goes away at the wrong moment."""

    class Stuck:
        def send_offsets_to_transaction(self, *_: object) -> None:
            threading.Event().wait()

    class Wire:
        library, trouble = Stuck(), ""

    calls = TransactionCalls(Wire(), "stuck", seconds=EXPIRES_S)  # type: ignore[arg-type]
    for _ in range(2):
        with pytest.raises(TransactionFailed, match="does not come back"):
            calls.take_in({("t", 0): 1}, None)


# The whole loop.


def doubled(message: Message) -> list[Outgoing]:
    assert message.value is not None
    return [Outgoing(message.topic.replace("topic-", "out-"), key=message.key, value=message.value + half) for half in (b"a", b"b")]


def loop_topics(bootstrap: str, partitions: int = 1) -> tuple[str, str]:
    topic = new_topic(bootstrap, partitions)
    out = topic.replace("topic-", "out-")
    create_topic(bootstrap, out, 1, {})
    return topic, out


def test_the_loop_gives_each_record_its_effect_once(bootstrap: str, name: str):
    topic, out = loop_topics(bootstrap, partitions=3)
    write(bootstrap, topic, numbered(200))
    is_broken = True

    def step(message: Message) -> list[Outgoing]:
        if is_broken and message.value == b"00120":
            producer.flush(PATIENCE_S)  # librdkafka cannot abort what it has yet to register while the last commit is written out.
            raise KeyError("a defect")
        return doubled(message)

    with (
        transactional(bootstrap, name) as producer,
        member(bootstrap, name, topic, settings=NIMBLE) as consumer,
    ):
        with pytest.raises(KeyError):
            read_process_write(consumer, producer, step, max_records=30)
        is_broken = False
        with member(bootstrap, name, topic) as watching:  # It never polls, and so is no member.

            def is_done() -> bool:
                read_process_write(consumer, producer, step, max_records=30, idle_seconds=EXPIRES_S)
                return sum(watching.position(topic, partition) or 0 for partition in range(3)) == 200

            until(is_done)
    assert sorted(map(bytes, read(bootstrap, out))) == sorted(value + half for value in numbered(200) for half in (b"a", b"b"))  # type: ignore[arg-type]


def test_loops_of_one_group_share_the_work_and_double_nothing(bootstrap: str, name: str):
    topic, out = loop_topics(bootstrap, partitions=4)
    counts, at_work = [0, 0], [threading.Event(), threading.Event()]
    all_are_written, is_over, written = threading.Event(), threading.Event(), 0
    loops: list[Future[None]] = []

    def work(number: int) -> None:
        def step(message: Message) -> list[Outgoing]:
            at_work[number].set()
            return doubled(message)

        with (
            transactional(bootstrap, f"{name}-{number}") as producer,
            member(bootstrap, name, topic, settings=ATTENTIVE) as consumer,
        ):
            while not is_over.is_set() and (not all_are_written.is_set() or sum(counts) < written):
                counts[number] += read_process_write(consumer, producer, step, max_records=50, idle_seconds=EXPIRES_S)

    def raise_if_ended() -> None:
        for each in loops:
            if each.done():
                each.result()
                raise AssertionError("a loop ended before it was told to")

    def write_until(is_enough: Callable[[], bool], what: str) -> None:
        def is_enough_written() -> bool:
            nonlocal written
            raise_if_ended()
            for partition in range(4):
                write(bootstrap, topic, numbered(5, start=written), partition=partition)
                written += 5
            return is_enough()

        until(is_enough_written, what)

    with ThreadPoolExecutor(2) as pool:
        try:
            loops.append(pool.submit(work, 0))
            write_until(at_work[0].is_set, "the first loop is at work")
            loops.append(pool.submit(work, 1))
            write_until(at_work[1].is_set, "the second loop is at work")  # The first is busy meanwhile, and gives partitions up.
            write_until(lambda enough=written + 100: written >= enough, "more was written")
            all_are_written.set()
            until(lambda: all(each.done() for each in loops), lambda: f"{counts} of {written} records are done")
        finally:
            is_over.set()
        for each in loops:
            each.result()
    assert sum(counts) == written
    assert sorted(map(bytes, read(bootstrap, out))) == sorted(value + half for value in numbered(written) for half in (b"a", b"b"))  # type: ignore[arg-type]


def test_the_loop_gives_up_where_trying_again_does_not_help(bootstrap: str, topic: str, name: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("penstock.client.loops.TRIES_MAX", 2)
    _, out = loop_topics(bootstrap)
    write(bootstrap, topic, [b"v"])
    settings = {"message.max.bytes": 3_000_000}
    tries = []

    def step(message: Message) -> list[Outgoing]:
        tries.append(message.offset)
        return [Outgoing(out, value=os.urandom(2_500_000))]

    with (
        transactional(bootstrap, name, settings=settings) as producer,
        member(bootstrap, name, topic) as consumer,
        pytest.raises(TransactionAborted),
    ):
        read_process_write(consumer, producer, step)
    assert tries == [0, 0]
