"""Share groups (KIP-932) with confluent-kafka's ShareConsumer: records shared out, accepted, released, rejected, lapsed, over a kill.

With PENSTOCK_PEER=host:port the same is asked of Apache Kafka, but for what kills the node.
"""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest
from announced import needs_announced
from confluent_kafka import AcknowledgeType, Message, ShareConsumer
from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType
from system.conftest import Broker
from system.librdkafka import SECONDS_MAX, admin, make_topic, produce_all, silence, unique
from waiting import ASK_S, GLANCE_S, NEVER_MS, until

pytestmark = pytest.mark.invariant("share.assignment-even", "share.one-holder")

NODE_SETTINGS = {
    "group.share.heartbeat.interval.ms": 200,
    "group.share.record.lock.duration.ms": NEVER_MS,
    "group.share.min.record.lock.duration.ms": 1_000,
    "group.share.max.record.lock.duration.ms": NEVER_MS,
    "group.share.session.timeout.ms": NEVER_MS,
}
SHORT_LOCK_MS = 1_000  # The least that Apache Kafka can be told.

Open = Callable[..., ShareConsumer]


@pytest.fixture
def consumers() -> Iterator[Open]:
    with ExitStack() as stack:

        def opened(broker: Broker, topic: str, group: str, mode: str = "implicit") -> ShareConsumer:
            consumer = ShareConsumer(
                {"bootstrap.servers": broker.bootstrap, "group.id": group, "share.acknowledgement.mode": mode}, logger=silence
            )
            stack.callback(consumer.close)
            consumer.subscribe([topic])
            return consumer

        yield opened


def group_of(broker: Broker, **configs: object) -> str:
    """The name of a new group that begins with the first record."""
    needs_announced(broker.bootstrap, "share groups")
    name = unique("share")
    configure(broker, name, share_auto_offset_reset="earliest", **configs)
    return name


def configure(broker: Broker, group: str, **configs: object) -> None:
    told = {key.replace("_", "."): str(value) for key, value in configs.items()}
    entries = [ConfigEntry(key, value, incremental_operation=AlterConfigOpType.SET) for key, value in told.items()]
    resource = ConfigResource(ResourceType.GROUP, group, incremental_configs=entries)
    for future in admin(broker.bootstrap).incremental_alter_configs([resource]).values():
        future.result(SECONDS_MAX)


def written(broker: Broker, count: int, partitions: int = 1) -> str:
    topic = make_topic(broker.bootstrap, unique("shared"), partitions)
    produce_all(broker.bootstrap, topic, [{"value": b"%d" % each, "partition": each % partitions} for each in range(count)])
    return topic


def polled(consumer: ShareConsumer, count: int) -> list[Message]:
    """So many messages, however many polls that takes; in implicit mode each poll accepts what the one before it gave."""
    found: list[Message] = []

    def have_come() -> bool:
        found.extend(_whole(consumer.poll(ASK_S)))
        return len(found) >= count

    until(have_come, lambda: f"{count} messages come, not only {len(found)}")
    return found


def check_that_only_new_ones_come(broker: Broker, consumer: ShareConsumer, topic: str, partitions: int = 1) -> None:
    """What is written now is all that comes: what came before is done with."""
    produce_all(broker.bootstrap, topic, [{"value": b"new", "partition": each} for each in range(partitions)])
    assert [message.value() for message in polled(consumer, partitions)] == [b"new"] * partitions


def _whole(messages: Any) -> list[Message]:
    found = list(messages)
    assert [message.error() for message in found if message.error() is not None] == []
    return found


def test_what_was_polled_is_accepted_by_the_next_poll(broker: Broker, consumers: Open) -> None:
    topic, group = written(broker, 100, 3), group_of(broker)
    consumer = consumers(broker, topic, group)
    assert sorted(int(message.value()) for message in polled(consumer, 100)) == list(range(100))
    assert not list(consumer.poll(ASK_S))
    consumer.close()
    check_that_only_new_ones_come(broker, consumers(broker, topic, group), topic, 3)


def test_two_consumers_share_one_partition_and_no_record_comes_twice(broker: Broker, consumers: Open) -> None:
    topic, group = make_topic(broker.bootstrap, unique("shared")), group_of(broker)
    pair = [consumers(broker, topic, group) for _ in range(2)]
    seen: list[list[int]] = [[], []]
    written = 0

    def poll_both() -> None:
        for consumer, mine in zip(pair, seen, strict=True):
            mine += [int(message.value()) for message in _whole(consumer.poll(GLANCE_S))]

    def have_both_some() -> bool:
        nonlocal written
        produce_all(broker.bootstrap, topic, [{"value": b"%d" % each} for each in range(written, written + 10)])
        written += 10
        poll_both()
        return written >= 200 and all(seen)

    def have_all_come() -> bool:
        poll_both()
        return sum(map(len, seen)) >= written

    until(have_both_some, "both have some")
    until(have_all_come, "all records come")
    assert sorted(seen[0] + seen[1]) == list(range(written))


def test_each_record_is_settled_as_its_worker_says(broker: Broker, consumers: Open) -> None:
    topic, group = written(broker, 3), group_of(broker)
    consumer = consumers(broker, topic, group, "explicit")
    first = polled(consumer, 3)
    assert [message.delivery_count() for message in first] == [1, 1, 1]
    for message, kind in zip(first, (AcknowledgeType.ACCEPT, AcknowledgeType.RELEASE, AcknowledgeType.REJECT), strict=True):
        consumer.acknowledge(message, kind)
    assert list(consumer.commit_sync(SECONDS_MAX).values()) == [None]
    (again,) = polled(consumer, 1)
    assert (again.value(), again.delivery_count()) == (b"1", 2)
    consumer.acknowledge(again)
    assert list(consumer.commit_sync(SECONDS_MAX).values()) == [None]
    check_that_only_new_ones_come(broker, consumer, topic)


def test_a_record_that_fails_too_often_is_given_up(broker: Broker, consumers: Open) -> None:
    topic, group = written(broker, 1), group_of(broker, share_delivery_count_limit=2)
    consumer = consumers(broker, topic, group, "explicit")
    for count in (1, 2):
        (message,) = polled(consumer, 1)
        assert message.delivery_count() == count
        consumer.acknowledge(message, AcknowledgeType.RELEASE)
        consumer.commit_sync(SECONDS_MAX)
    check_that_only_new_ones_come(broker, consumer, topic)


def test_what_a_worker_that_hangs_has_another_gets(broker: Broker, consumers: Open) -> None:
    topic, group = written(broker, 1), group_of(broker, share_record_lock_duration_ms=SHORT_LOCK_MS)
    slow, other = consumers(broker, topic, group, "explicit"), consumers(broker, topic, group, "explicit")
    (held,) = polled(slow, 1)
    configure(broker, group, share_record_lock_duration_ms=NEVER_MS)  # The other one does not hang.
    (lapsed,) = polled(other, 1)
    assert (lapsed.value(), lapsed.delivery_count()) == (held.value(), 2)
    slow.acknowledge(held)
    (outcome,) = slow.commit_sync(SECONDS_MAX).values()
    assert outcome is not None
    assert "INVALID_RECORD_STATE" in str(outcome)
    other.acknowledge(lapsed)
    assert list(other.commit_sync(SECONDS_MAX).values()) == [None]


def test_what_a_worker_holds_when_it_closes_goes_to_others_at_once(broker: Broker, consumers: Open) -> None:
    topic, group = written(broker, 2), group_of(broker)
    one, other = consumers(broker, topic, group, "explicit"), consumers(broker, topic, group, "explicit")
    held = polled(one, 2)
    one.acknowledge(held[0])
    one.close()
    (rest,) = polled(other, 1)
    assert rest.value() == held[1].value()
    other.acknowledge(rest)


def test_acknowledgements_outlive_a_kill_of_the_node(broker: Broker, consumers: Open) -> None:
    if broker.node is None:
        pytest.skip("only a node of our own is killed")
    topic, group = written(broker, 10), group_of(broker)
    consumer = consumers(broker, topic, group, "explicit")
    held = polled(consumer, 10)
    for message in held[:5]:
        consumer.acknowledge(message)
    for message in held[5:]:
        consumer.acknowledge(message, AcknowledgeType.RELEASE)
    assert list(consumer.commit_sync(SECONDS_MAX).values()) == [None]
    broker.node.kill()
    broker.node.start()
    again = polled(consumer, 5)
    assert sorted(int(message.value()) for message in again) == list(range(5, 10))
    assert {message.delivery_count() for message in again} == {2}
    for message in again:
        consumer.acknowledge(message)
    assert all(outcome is None for outcome in consumer.commit_sync(SECONDS_MAX).values())
