"""The consumer: every record at least once, in order, and committed only when the caller says so."""

import errno
import os
import signal
import socket
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from itertools import pairwise
from threading import Event
from uuid import uuid4

import pytest
from client.client_side import (
    ATTENTIVE,
    NIMBLE,
    SHORT_SESSIONS,
    hasty,
    holds_unless_the_machine_stalls,
    member,
    numbered,
    poll_count,
    silent_address,
    values,
    write,
)
from tiers import pick
from waiting import ASK_S, EXPIRES_S, PATIENCE_S, stays, until

from penstock.client import Closed, CommitFailed, Consumer, Message, Producer, ReadFailed
from penstock.client.options import Protocol
from penstock.testing import Broker, BrokerFailed, broker

SLOW_RECORDS = pick(test=10, slow=14)


@pytest.fixture
def group() -> str:
    return f"group-{uuid4().hex[:8]}"


class Clock:
    """Shows the time that the test has set."""

    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        return self.now


def is_refused(bootstrap: str) -> bool:
    """Whether nobody listens there any more."""
    host, port = bootstrap.split(":")
    with socket.socket() as asking:
        return asking.connect_ex((host, int(port))) == errno.ECONNREFUSED


def until_it_has(consumer: Consumer, count: int) -> None:
    """Polls until it has so many partitions; there must be nothing to read."""

    def has_joined() -> bool:
        assert consumer.poll(timeout=EXPIRES_S) == []
        return len(consumer.assignment()) == count

    until(has_joined, lambda: f"it has {consumer.assignment()} instead of {count} partitions")


def share(first: Consumer, second: Consumer, count: int) -> None:
    """Polls until each of the two has so many partitions; there must be nothing to read."""

    def is_shared() -> bool:
        assert first.poll(timeout=EXPIRES_S) == second.poll(timeout=EXPIRES_S) == []
        return len(first.assignment()) == len(second.assignment()) == count

    until(is_shared, lambda: f"they have {first.assignment()} and {second.assignment()}")


# Alone, without a group.


def test_without_a_group_it_reads_every_partition_from_the_start(penstock_broker: Broker):
    topic = penstock_broker.create_topic(partitions=3)
    for partition in range(3):
        write(penstock_broker, topic, *numbered(10, start=10 * partition), partition=partition)
    with Consumer(topics=[topic], bootstrap=penstock_broker.bootstrap) as consumer:
        found = poll_count(consumer, 30)
        assert consumer.assignment() == [(topic, 0), (topic, 1), (topic, 2)]
    for partition in range(3):
        assert values([message for message in found if message.partition == partition]) == numbered(10, start=10 * partition)


def test_without_a_group_there_is_nowhere_to_commit_to(penstock_broker: Broker, penstock_topic: str):
    write(penstock_broker, penstock_topic, b"v")
    with Consumer(topics=[penstock_topic], bootstrap=penstock_broker.bootstrap) as consumer:
        poll_count(consumer, 1)
        with pytest.raises(CommitFailed, match="give it a group="):
            consumer.commit()


@pytest.mark.timeout(60)
def test_poll_returns_as_soon_as_there_is_something(penstock_broker: Broker, penstock_topic: str):
    write(penstock_broker, penstock_topic, *numbered(3))
    with Consumer(topics=[penstock_topic], bootstrap=penstock_broker.bootstrap) as consumer:
        assert consumer.poll(max_records=500, timeout=3_600)


def test_poll_gives_no_more_than_asked_and_loses_nothing_of_the_rest(penstock_broker: Broker, penstock_topic: str):
    write(penstock_broker, penstock_topic, *numbered(100))
    found: list[Message] = []
    with Consumer(topics=[penstock_topic], bootstrap=penstock_broker.bootstrap) as consumer:
        while len(found) < 100:
            batch = consumer.poll(max_records=7, timeout=PATIENCE_S)
            assert 1 <= len(batch) <= 7
            found += batch
    assert values(found) == numbered(100)


def test_poll_gives_nothing_when_nothing_comes(penstock_broker: Broker, penstock_topic: str):
    with Consumer(topics=[penstock_topic], bootstrap=penstock_broker.bootstrap, start="latest") as consumer:
        assert consumer.poll(timeout=EXPIRES_S) == []
        with pytest.raises(ValueError, match="1 or more"):
            consumer.poll(max_records=0)


def test_latest_begins_at_what_comes_next(penstock_broker: Broker, penstock_topic: str, caplog: pytest.LogCaptureFixture):
    write(penstock_broker, penstock_topic, b"old")
    settings = {**NIMBLE, "enable.partition.eof": True}  # librdkafka says when it has asked for what comes next, and nothing was there.
    with Consumer(topics=[penstock_topic], bootstrap=penstock_broker.bootstrap, start="latest", settings=settings) as consumer:

        def is_at_the_end() -> bool:
            assert consumer.poll(timeout=EXPIRES_S) == []
            return "reached end of partition at offset 1 " in caplog.text

        until(is_at_the_end)
        write(penstock_broker, penstock_topic, b"new")
        assert values(poll_count(consumer, 1)) == [b"new"]


def test_seek_goes_to_an_offset_the_start_or_the_end(penstock_broker: Broker, penstock_topic: str):
    write(penstock_broker, penstock_topic, *numbered(10))
    with Consumer(topics=[penstock_topic], bootstrap=penstock_broker.bootstrap, settings=NIMBLE) as consumer:
        assert len(poll_count(consumer, 10)) == 10
        assert consumer.position(penstock_topic, 0) == 10
        consumer.seek(penstock_topic, 0, 6)
        assert consumer.position(penstock_topic, 0) == 6
        assert values(poll_count(consumer, 4)) == numbered(4, start=6)
        consumer.seek(penstock_topic, 0, "earliest")
        assert values(poll_count(consumer, 10)) == numbered(10)
        consumer.seek(penstock_topic, 0, "latest")
        write(penstock_broker, penstock_topic, b"new")
        assert values(poll_count(consumer, 1)) == [b"new"]


def test_seek_works_before_the_first_poll(penstock_broker: Broker, penstock_topic: str):
    write(penstock_broker, penstock_topic, *numbered(5))
    with Consumer(topics=[penstock_topic], bootstrap=penstock_broker.bootstrap) as consumer:
        consumer.seek(penstock_topic, 0, 3)
        assert values(poll_count(consumer, 2)) == numbered(2, start=3)


def test_seek_inside_a_loop_forgets_what_was_fetched_ahead(penstock_broker: Broker, penstock_topic: str):
    write(penstock_broker, penstock_topic, *numbered(10))
    seen: list[int] = []
    with Consumer(topics=[penstock_topic], bootstrap=penstock_broker.bootstrap, settings=NIMBLE) as consumer:
        for message in consumer:
            seen.append(message.offset)
            if seen == [0, 1, 2]:
                consumer.seek(penstock_topic, 0, 8)
            if len(seen) == 5:
                break
    assert seen == [0, 1, 2, 8, 9]


def test_a_partition_that_is_not_assigned_cannot_be_sought(penstock_broker: Broker, penstock_topic: str):
    consumer = Consumer(topics=[penstock_topic], bootstrap=penstock_broker.bootstrap)
    with consumer, pytest.raises(ReadFailed, match=f"{penstock_topic}-5 is not assigned"):
        consumer.seek(penstock_topic, 5, 0)


def test_a_topic_that_is_not_there_is_told(penstock_broker: Broker, group: str):
    for its_group in (None, group):
        consumer = Consumer(topics=["never-made"], group=its_group, bootstrap=penstock_broker.bootstrap)
        with consumer, pytest.raises(ReadFailed, match="create the topic"):
            poll_count(consumer, 1)


def test_where_nobody_listens_it_says_so(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("penstock.client.source.ASKING_SECONDS", EXPIRES_S)
    with silent_address() as address, Consumer(topics=["t"], bootstrap=address) as consumer, pytest.raises(ReadFailed, match="bootstrap="):
        consumer.poll()


def test_a_closed_consumer_does_nothing_more(penstock_broker: Broker, penstock_topic: str):
    consumer = Consumer(topics=[penstock_topic], bootstrap=penstock_broker.bootstrap)
    consumer.close()
    consumer.close()
    for call in (consumer.poll, consumer.commit, lambda: consumer.seek(penstock_topic, 0, 0), lambda: consumer.position(penstock_topic, 0)):
        with pytest.raises(Closed):
            call()
    assert list(consumer) == []


def test_one_topic_in_place_of_a_list_is_refused():
    with pytest.raises(TypeError, match=r"topics=\['orders'\]"):
        Consumer(topics="orders")


# As a member of a group.


def test_a_group_goes_on_where_it_committed(penstock_broker: Broker, penstock_topic: str, group: str):
    write(penstock_broker, penstock_topic, *numbered(20))
    with member(penstock_broker.bootstrap, group, penstock_topic) as consumer:
        assert values(poll_count(consumer, 20)) == numbered(20)
        consumer.commit()
        consumer.commit()  # Nothing new is done: nothing happens.
    write(penstock_broker, penstock_topic, *numbered(5, start=20))
    with member(penstock_broker.bootstrap, group, penstock_topic) as consumer:
        assert values(poll_count(consumer, 5)) == numbered(5, start=20)


def test_a_broker_that_went_away_is_told_by_commit_but_not_by_poll(group: str):
    def is_told(session_s: float) -> bool:
        node = broker(**SHORT_SESSIONS).start()
        options = {"group": group, "topics": ["t"], "bootstrap": node.bootstrap, "session_seconds": session_s, "settings": ATTENTIVE}
        try:
            write(node, "t", b"v")
            with Consumer(**options) as consumer:
                assert values(poll_count(consumer, 1)) == [b"v"]
                os.kill(node.pid, signal.SIGKILL)
                until(lambda: is_refused(node.bootstrap))
                assert consumer.poll(timeout=EXPIRES_S) == []
                if not consumer.assignment():
                    return False  # Its session has lapsed, and with it what there was to commit.
                with pytest.raises(CommitFailed, match="look whether the broker is up") as told:
                    consumer.commit()
                assert told.value.code == "_WAIT_COORD"
        finally:
            with suppress(BrokerFailed):
                node.stop()
        return True

    holds_unless_the_machine_stalls(is_told)


def test_what_was_not_committed_is_delivered_again(penstock_broker: Broker, penstock_topic: str, group: str):
    write(penstock_broker, penstock_topic, *numbered(10))
    for _ in range(2):
        with member(penstock_broker.bootstrap, group, penstock_topic) as consumer:
            assert values(poll_count(consumer, 10)) == numbered(10)


def test_some_messages_can_be_committed_without_the_rest(penstock_broker: Broker, penstock_topic: str, group: str):
    write(penstock_broker, penstock_topic, *numbered(10))
    with member(penstock_broker.bootstrap, group, penstock_topic) as consumer:
        found = poll_count(consumer, 10)
        consumer.commit(found[3])
        consumer.commit(found[2:6])
    with member(penstock_broker.bootstrap, group, penstock_topic) as consumer:
        assert consumer.position(penstock_topic, 0) == 6
        assert values(poll_count(consumer, 4)) == numbered(4, start=6)


def test_in_a_loop_only_what_the_caller_has_seen_is_committed(penstock_broker: Broker, penstock_topic: str, group: str):
    write(penstock_broker, penstock_topic, *numbered(10))
    with member(penstock_broker.bootstrap, group, penstock_topic) as consumer:
        for message in consumer:
            if message.offset == 6:
                break
        consumer.commit()
    with member(penstock_broker.bootstrap, group, penstock_topic) as consumer:
        assert values(poll_count(consumer, 3)) == numbered(3, start=7)


def test_automatic_commits_count_what_was_asked_beyond_as_done(penstock_broker: Broker, penstock_topic: str, group: str):
    write(penstock_broker, penstock_topic, *numbered(10))
    with member(penstock_broker.bootstrap, group, penstock_topic, auto_commit=True) as consumer:
        assert len(poll_count(consumer, 10)) == 10
    write(penstock_broker, penstock_topic, b"new")
    with member(penstock_broker.bootstrap, group, penstock_topic) as consumer:
        assert values(poll_count(consumer, 1)) == [b"new"]


def test_automatic_commits_leave_out_what_the_caller_failed_at(penstock_broker: Broker, penstock_topic: str, group: str):
    write(penstock_broker, penstock_topic, *numbered(10))
    options = {"bootstrap": penstock_broker.bootstrap, "group": group, "topic": penstock_topic, "auto_commit": True}
    with pytest.raises(RuntimeError, match="cannot bill"), member(**options) as consumer:
        first: list[Message] = []
        while len(first) < 4:
            first += consumer.poll(max_records=4 - len(first), timeout=PATIENCE_S)
        consumer.poll(max_records=3, timeout=PATIENCE_S)
        raise RuntimeError("cannot bill")
    with member(**options) as consumer:
        assert values(poll_count(consumer, 6)) == numbered(6, start=4)


def test_members_share_the_partitions_and_a_newcomer_gets_its_part(penstock_broker: Broker, group: str):
    topic = penstock_broker.create_topic(partitions=4)
    options = {"bootstrap": penstock_broker.bootstrap, "group": group, "topic": topic, "settings": ATTENTIVE}
    with member(**options) as first:
        until_it_has(first, 4)
        with member(**options) as second:
            share(first, second, 2)
            assert sorted(first.assignment() + second.assignment()) == [(topic, partition) for partition in range(4)]
        until_it_has(first, 4)


def test_what_was_taken_away_is_not_committed_by_the_one_who_lost_it(penstock_broker: Broker, group: str):
    topic = penstock_broker.create_topic(partitions=2)
    for partition in range(2):
        write(penstock_broker, topic, *numbered(5), partition=partition)
    options = {"bootstrap": penstock_broker.bootstrap, "group": group, "topic": topic, "settings": ATTENTIVE}
    with member(**options) as first:
        found = poll_count(first, 10)
        with member(**options) as second:
            theirs: list[Message] = []

            def is_taken_away() -> bool:
                first.poll(timeout=EXPIRES_S)
                theirs.extend(second.poll(timeout=EXPIRES_S))
                return len(first.assignment()) == 1 and len(theirs) == 5

            until(is_taken_away)
            (lost,) = second.assignment()
            assert {(message.topic, message.partition) for message in theirs} == {lost}
            assert values(theirs) == numbered(5)
            first.commit()
            assert second.position(*lost) == 5, "the new owner was set back or forward"
            with pytest.raises(CommitFailed, match="belongs to another member"):
                first.commit([message for message in found if (message.topic, message.partition) == lost])
            assert first.position(*first.assignment()[0]) == 5


def test_a_member_with_an_instance_comes_back_to_its_partitions(penstock_broker: Broker, group: str):
    topic = penstock_broker.create_topic(partitions=2)
    options = {"bootstrap": penstock_broker.bootstrap, "group": group, "topic": topic, "settings": ATTENTIVE}
    with member(**options, instance="one") as first:
        until_it_has(first, 2)
        with member(**options, instance="two") as second:
            share(first, second, 1)
            before = second.assignment()
            kept = first.assignment()
        with member(**options, instance="two") as second:
            until_it_has(second, 1)
            assert second.assignment() == before
            for _ in range(5):  # A heartbeat is among them, which would tell it that the group gathers anew.
                assert first.poll(timeout=ASK_S) == []
            assert first.assignment() == kept


@pytest.mark.repeats
def test_a_group_reads_on_while_records_keep_coming(penstock_broker: Broker, penstock_topic: str, group: str):
    with (
        Producer(penstock_broker.bootstrap) as producer,
        member(penstock_broker.bootstrap, group, penstock_topic) as consumer,
    ):
        for value in numbered(pick(test=12, slow=30)):
            producer.send(topic=penstock_topic, value=value).result(PATIENCE_S)
            assert values(poll_count(consumer, 1)) == [value]
            consumer.commit()


# A loop whose records take their time.


@pytest.mark.parametrize("record_s", [1 / 32, 1 / 8, 3.0])
def test_in_a_loop_the_library_has_its_turn_after_each_slow_record_and_a_tenth_of_a_second_of_fast_ones(
    penstock_broker: Broker, penstock_topic: str, monkeypatch: pytest.MonkeyPatch, record_s: float
):
    clock, turns_at = Clock(), list[float]()
    monkeypatch.setattr("penstock.client.consumer.time", clock)
    write(penstock_broker, penstock_topic, *numbered(100))

    class Watched(Consumer):
        def fill(self, max_records: int, timeout: float) -> None:
            turns_at.append(clock.now)
            super().fill(max_records, timeout)

    with Watched(topics=[penstock_topic], bootstrap=penstock_broker.bootstrap) as consumer:
        for message in consumer:
            clock.now += record_s
            if message.offset == 99:
                break
    assert max(after - before for before, after in pairwise([*turns_at, clock.now])) < 0.1 + record_s


@pytest.mark.repeats
@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_slow_loop_stays_in_its_group(short_session_broker: Broker, caplog: pytest.LogCaptureFixture, protocol: Protocol):
    """All records together take longer than max.poll.interval.ms and a classic member's session, which no single one does."""

    def stays_in(interval_s: float) -> bool:
        topic = short_session_broker.create_topic()
        write(short_session_broker, topic, *numbered(SLOW_RECORDS))
        seen: list[int] = []
        commits = 0
        caplog.clear()
        options = {"group": f"of-{topic}", "topics": [topic], "bootstrap": short_session_broker.bootstrap, "protocol": protocol}
        with suppress(CommitFailed), Consumer(**options, settings=hasty(protocol, interval_s)) as consumer:
            for message in consumer:
                stays(consumer.assignment, interval_s / 4)
                seen.append(message.offset)
                consumer.commit()
                commits += 1
                if len(seen) == SLOW_RECORDS:
                    break
        # What is delivered twice tells of a member that was thrown out and came back.
        return (seen, commits) == (list(range(SLOW_RECORDS)), SLOW_RECORDS) and "maximum poll interval" not in caplog.text

    holds_unless_the_machine_stalls(stays_in)


def test_a_slow_loop_gives_partitions_up_and_hands_out_nothing_more_of_them(penstock_broker: Broker, group: str):
    topic = penstock_broker.create_topic(partitions=2)
    for partition in range(2):
        write(penstock_broker, topic, *numbered(1_000), partition=partition)
    options = {"bootstrap": penstock_broker.bootstrap, "group": group, "topic": topic, "settings": ATTENTIVE}
    has_begun, is_over = Event(), Event()

    def take_part() -> list[Message]:
        with member(**options) as second:
            found: list[Message] = []
            while not is_over.is_set():
                found += second.poll(max_records=10, timeout=ASK_S)
                if found:
                    second.commit()
                    has_begun.set()
            return found

    ours: list[Message] = []
    with member(**options) as first, ThreadPoolExecutor(1) as thread:
        try:
            for message in first:
                assert (message.topic, message.partition) in first.assignment(), "it belongs to the other member"
                ours.append(message)
                first.commit()
                if len(ours) == 5:
                    second = thread.submit(take_part)
                if has_begun.wait(ASK_S if len(ours) > 5 else 0):
                    break
        finally:
            is_over.set()
        theirs = second.result(PATIENCE_S)
    assert theirs, "the newcomer got nothing while the loop was busy"
    for partition in range(2):
        offsets = sorted(message.offset for message in ours + theirs if message.partition == partition)
        assert offsets == list(range(len(offsets))), "something was left out, or delivered to both"
