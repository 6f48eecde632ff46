"""Groups of the new protocol (KIP-848) with confluent-kafka: who has what as members come, leave and come back; only what moves pauses.

With PENSTOCK_PEER=host:port the same is asked of Apache Kafka.
"""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from typing import Any

import pytest
import waiting
from confluent_kafka import Consumer, ConsumerGroupState, ConsumerGroupType, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, NewPartitions
from system.conftest import Broker
from system.librdkafka import SECONDS_MAX, make_topic, produce_all, unique
from waiting import GLANCE_S, NEVER_MS

pytestmark = pytest.mark.invariant("groups.consumer-one-owner", "groups.consumer-all-assigned")

PARTITIONS = 6
NODE_SETTINGS = {
    "group.consumer.heartbeat.interval.ms": 200,
    "group.consumer.session.timeout.ms": NEVER_MS,
    "group.consumer.assignment.interval.ms": 200,
    "group.initial.rebalance.delay.ms": 100,
}


class Reader:
    """One consumer, and all that it was told of its partitions."""

    def __init__(self, bootstrap: str, group: str, topics: list[str], **config: Any) -> None:
        self.owned: set[tuple[str, int]] = set()
        self.revoked: list[tuple[str, int]] = []
        self.values: list[bytes] = []
        self.errors: list[str] = []
        protocol = {"group.protocol": "consumer"}
        if config.get("group.protocol") == "classic":
            protocol = {"session.timeout.ms": NEVER_MS, "max.poll.interval.ms": NEVER_MS, "heartbeat.interval.ms": 200}  # type: ignore[dict-item]
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap, "group.id": group, "auto.offset.reset": "earliest", "enable.auto.commit": False,
                "error_cb": lambda error: self.errors.append(str(error)), **protocol, **config,
            }
        )  # fmt: skip
        self._consumer.subscribe(topics, on_assign=self._assigned, on_revoke=self._revoked, on_lost=self._revoked)

    def poll(self) -> None:
        for message in self._consumer.consume(100, GLANCE_S):
            if message.error() is None:
                self.values.append(message.value())
            else:
                self.errors.append(str(message.error()))

    def commit(self) -> None:
        with suppress(KafkaException):  # Nothing was read since.
            self._consumer.commit(asynchronous=False)

    def committed(self, topic: str) -> list[int]:
        wanted = [TopicPartition(topic, number) for number in range(PARTITIONS)]
        return [one.offset for one in self._consumer.committed(wanted, timeout=SECONDS_MAX)]

    def close(self) -> None:
        self._consumer.close()
        self.owned.clear()

    def _assigned(self, _: Consumer, partitions: list[TopicPartition]) -> None:
        self.owned |= {(one.topic, one.partition) for one in partitions}

    def _revoked(self, _: Consumer, partitions: list[TopicPartition]) -> None:
        gone = [(one.topic, one.partition) for one in partitions]
        self.owned -= set(gone)
        self.revoked += gone


@contextmanager
def reading(broker: Broker, group: str, *topics: str, **config: Any) -> Iterator[Reader]:
    reader = Reader(broker.bootstrap, group, list(topics), **config)
    try:
        yield reader
    finally:
        reader.close()


def until(claim: Callable[[], bool], what: str, *readers: Reader) -> None:
    def polled() -> bool:
        for reader in readers:
            reader.poll()
        return claim()

    waiting.until(polled, what)


def all_of(topic: str, count: int = PARTITIONS) -> set[tuple[str, int]]:
    return {(topic, number) for number in range(count)}


def shared(topic: str, *readers: Reader, count: int = PARTITIONS) -> bool:
    """Everything is somebody's, nothing is two's, and nobody has two more than another."""
    sizes = [len(reader.owned) for reader in readers]
    return set().union(*(one.owned for one in readers)) == all_of(topic, count) and sum(sizes) == count and max(sizes) - min(sizes) <= 1


def test_members_come_and_go_and_only_what_moves_is_given_up(broker: Broker) -> None:
    topic, group = make_topic(broker.bootstrap, unique("moves"), PARTITIONS), unique("group")
    with reading(broker, group, topic) as one:
        until(lambda: one.owned == all_of(topic), "a lone member has everything", one)
        with reading(broker, group, topic) as two:
            until(lambda: shared(topic, one, two), "two have three each", one, two)
            assert len(one.revoked) == 3, "it gave up what the other got, and nothing else"
            had = set(one.owned), set(two.owned)
            with reading(broker, group, topic) as three:
                until(lambda: shared(topic, one, two, three), "three have two each", one, two, three)
                assert len(one.revoked) == 4 and len(two.revoked) == 1
                assert one.owned < had[0] and two.owned < had[1]
            until(lambda: shared(topic, one, two), "what one left is taken over", one, two)
            assert len(one.revoked) + len(two.revoked) == 5, "and nobody gave up anything for that"
        until(lambda: one.owned == all_of(topic), "the last one has everything again", one)
        assert one.errors == []


def test_records_are_read_once_each_while_members_come_and_go(broker: Broker) -> None:
    topic, group = make_topic(broker.bootstrap, unique("once"), PARTITIONS), unique("group")
    values = [b"%d" % number for number in range(600)]
    with ExitStack() as stack:
        one = stack.enter_context(reading(broker, group, topic))
        until(lambda: one.owned == all_of(topic), "a lone member has everything", one)
        produce_all(broker.bootstrap, topic, [{"value": value, "partition": at % PARTITIONS} for at, value in enumerate(values[:300])])
        until(lambda: len(one.values) == 300, "the first half is read", one)
        one.commit()
        two = stack.enter_context(reading(broker, group, topic))
        until(lambda: shared(topic, one, two), "two have three each", one, two)
        produce_all(broker.bootstrap, topic, [{"value": value, "partition": at % PARTITIONS} for at, value in enumerate(values[300:])])
        until(lambda: len(one.values) + len(two.values) >= 600, "the second half is read", one, two)
        one.commit()
        two.commit()
        assert sorted(one.values + two.values, key=int) == values
        assert one.committed(topic) == [100] * PARTITIONS


def test_a_pattern_finds_a_topic_that_is_made_later(broker: Broker) -> None:
    prefix, group = unique("pattern"), unique("group")
    first = make_topic(broker.bootstrap, f"{prefix}-a", 2)
    with reading(broker, group, f"^{prefix}-.*") as one:
        until(lambda: one.owned == all_of(first, 2), "the topic that is there is found", one)
        second = make_topic(broker.bootstrap, f"{prefix}-b", 2)
        until(lambda: one.owned == all_of(first, 2) | all_of(second, 2), "and so is the one that is made later", one)


def test_a_topic_that_grows_is_shared_out_anew(broker: Broker) -> None:
    topic, group = make_topic(broker.bootstrap, unique("grows"), 2), unique("group")
    with reading(broker, group, topic) as one, reading(broker, group, topic) as two:
        until(lambda: shared(topic, one, two, count=2), "each has one", one, two)
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        admin.create_partitions([NewPartitions(topic, 6)])[topic].result(SECONDS_MAX)
        until(lambda: shared(topic, one, two, count=6), "each has three", one, two)


@pytest.mark.parametrize(("assignor", "expected"), [("range", [{0, 1, 2}, {3, 4, 5}]), ("uniform", None)])
def test_members_may_ask_for_an_assignor(broker: Broker, assignor: str, expected: list[set[int]] | None) -> None:
    topic, group = make_topic(broker.bootstrap, unique("assignor"), PARTITIONS), unique("group")
    config = {"group.remote.assignor": assignor}
    with reading(broker, group, topic, **config) as one, reading(broker, group, topic, **config) as two:
        until(lambda: shared(topic, one, two), "two have three each", one, two)
        if expected is not None:
            halves = sorted(sorted(number for _, number in reader.owned) for reader in (one, two))
            assert [set(half) for half in halves] == expected


def test_a_static_member_that_comes_back_in_time_disturbs_nobody(broker: Broker) -> None:
    topic, group = make_topic(broker.bootstrap, unique("static"), PARTITIONS), unique("group")
    config = {"group.instance.id": "the-static-one"}
    with reading(broker, group, topic) as one:
        with reading(broker, group, topic, **config) as two:
            until(lambda: shared(topic, one, two), "two have three each", one, two)
            had, given_up = set(two.owned), len(one.revoked)
        with reading(broker, group, topic, **config) as again:
            until(lambda: again.owned == had, "it has what it had", one, again)
            assert len(one.revoked) == given_up


def test_the_group_is_told_of_as_one_of_the_new_kind(broker: Broker) -> None:
    topic, group = make_topic(broker.bootstrap, unique("told"), PARTITIONS), unique("group")
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    with reading(broker, group, topic) as one:
        until(lambda: one.owned == all_of(topic), "a lone member has everything", one)

        def listed() -> list[tuple[ConsumerGroupState, ConsumerGroupType]]:
            rows = admin.list_consumer_groups(types={ConsumerGroupType.CONSUMER}).result(SECONDS_MAX).valid
            return [(row.state, row.type) for row in rows if row.group_id == group]

        until(lambda: listed() == [(ConsumerGroupState.STABLE, ConsumerGroupType.CONSUMER)], "it is listed as stable", one)
        described = admin.describe_consumer_groups([group])[group].result(SECONDS_MAX)
        assert (described.state, described.type, described.partition_assignor) == (
            ConsumerGroupState.STABLE, ConsumerGroupType.CONSUMER, "uniform",
        )  # fmt: skip
        (member,) = described.members
        assert {(each.topic, each.partition) for each in member.assignment.topic_partitions} == all_of(topic)


@pytest.mark.invariant("groups.conversion-keeps-offsets")
@pytest.mark.parametrize("strategy", ["range", "cooperative-sticky"])
def test_a_running_classic_group_is_upgraded_and_goes_back(broker: Broker, strategy: str) -> None:
    """Members of both protocols share the topic while consumers are exchanged one by one; nothing is read twice and nothing is missed."""
    topic, group = make_topic(broker.bootstrap, unique("upgrade"), PARTITIONS), unique("group")
    classic = {"group.protocol": "classic", "partition.assignment.strategy": strategy}
    with reading(broker, group, topic, **classic) as old:
        until(lambda: old.owned == all_of(topic), "a classic member has everything", old)
        with reading(broker, group, topic) as new:
            until(lambda: shared(topic, old, new), "members of both protocols share", old, new)
            produce_all(broker.bootstrap, topic, [{"value": b"%d" % at, "partition": at % PARTITIONS} for at in range(60)])
            until(lambda: len(old.values) + len(new.values) >= 60, "everything is read", old, new)
            assert sorted(old.values + new.values, key=int) == [b"%d" % at for at in range(60)]
            old.commit()
            new.commit()
        until(lambda: old.owned == all_of(topic), "the classic one goes on alone", old)
        assert old.errors == []


def test_an_upgraded_group_goes_on_when_its_classic_members_leave(broker: Broker) -> None:
    topic, group = make_topic(broker.bootstrap, unique("upgraded"), PARTITIONS), unique("group")
    with ExitStack() as stack:
        old = stack.enter_context(ExitStack())
        classic = old.enter_context(reading(broker, group, topic, **{"group.protocol": "classic"}))
        until(lambda: classic.owned == all_of(topic), "a classic member has everything", classic)
        new = stack.enter_context(reading(broker, group, topic))
        until(lambda: shared(topic, classic, new), "members of both protocols share", classic, new)
        old.close()
        until(lambda: new.owned == all_of(topic), "the new one has everything", new)
        produce_all(broker.bootstrap, topic, [{"value": b"after"}])
        until(lambda: new.values == [b"after"], "it reads on", new)
        assert new.errors == []
