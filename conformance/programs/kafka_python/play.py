"""kafka-python against a node. Prints a line for each feature: its name, a tab, and "ok" or what went wrong.

    python play.py BOOTSTRAP PREFIX    PREFIX begins the name of every topic and group, so that runs do not meet.

Runs in an environment of its own that holds an older kafka-python than the one that the suite tests; nothing of Penstock is imported.
"""

import sys
import time
from collections.abc import Callable, Iterable
from typing import Any

from kafka import KafkaConsumer, KafkaProducer, TopicPartition
from kafka.admin import ConfigResource, ConfigResourceType, KafkaAdminClient, NewPartitions, NewTopic
from kafka.errors import KafkaError, TopicAlreadyExistsError, UnknownTopicOrPartitionError
from kafka.structs import OffsetAndMetadata

PATIENCE_S = 40.0

bootstrap, prefix = sys.argv[1:3]
admin = KafkaAdminClient(bootstrap_servers=bootstrap)


def main() -> None:
    for name in ("none", "gzip", "snappy", "lz4", "zstd"):
        play("no codec" if name == "none" else name, lambda name=name: codec(name))
    play("keys, headers, times", keys_headers_times)
    play("idempotent producer", idempotent)
    play("group of two", group_of_two)
    play("resume from commit", resume)
    play("create and describe topic", create_and_describe)
    play("change settings", change_settings)
    play("add partitions", add_partitions)
    play("delete records", delete_records)
    play("offsets by time", offsets_by_time)
    play("list and describe groups", list_and_describe_groups)
    play("reset group offsets", reset_group_offsets)
    play("delete group", delete_group)
    play("delete topic", delete_topic)
    play("a proper no", proper_no)


def play(feature: str, scenario: Callable[[], None]) -> None:
    try:
        scenario()
        print(f"{feature}\tok", flush=True)
    except Exception as failure:
        print(f"{feature}\t{type(failure).__name__}: {' '.join(str(failure).split())}", flush=True)


def claim(holds: bool, what: str) -> None:
    if not holds:
        raise AssertionError(f"not so: {what}")


def new_topic(name: str, partitions: int = 1, **config: str) -> str:
    topic = prefix + name
    admin.create_topics([NewTopic(topic, partitions, 1, topic_configs={key.replace("_", "."): value for key, value in config.items()})])
    return topic


def produce(topic: str, numbers: Iterable[int], **options: Any) -> None:
    producer = KafkaProducer(bootstrap_servers=bootstrap, acks="all", linger_ms=50, **options)
    sent = [producer.send(topic, key=b"%d" % number, value=b"%05d " % number + b"penstock " * 20) for number in numbers]
    producer.flush(PATIENCE_S)
    for receipt in sent:
        receipt.get(PATIENCE_S)
    producer.close()


def consume(topic: str, count: int) -> list[Any]:
    consumer = KafkaConsumer(bootstrap_servers=bootstrap, auto_offset_reset="earliest")
    consumer.assign([TopicPartition(topic, 0)])
    got: list[Any] = []
    deadline = time.monotonic() + PATIENCE_S
    while len(got) < count and time.monotonic() < deadline:
        for records in consumer.poll(500).values():
            got += records
    consumer.close()
    claim(len(got) == count, f"{count} records, got {len(got)}")
    return got


def codec(name: str) -> None:
    topic = new_topic(f"codec.{name}")
    produce(topic, range(300), compression_type=None if name == "none" else name)
    for number, record in enumerate(consume(topic, 300)):
        claim(record.offset == number and record.value.startswith(b"%05d " % number), f"record {number} is itself")


def keys_headers_times() -> None:
    topic = new_topic("headers")
    producer = KafkaProducer(bootstrap_servers=bootstrap)
    headers = [("a", b"\x00\xff"), ("a", b"")]
    producer.send(topic, key=b"k", value=None, headers=headers, timestamp_ms=1_700_000_000_123).get(PATIENCE_S)
    producer.close()
    (record,) = consume(topic, 1)
    told = (record.key, record.value, record.timestamp, list(record.headers))
    claim(told == (b"k", None, 1_700_000_000_123, headers), f"what came back is what was sent: {told}")


def idempotent() -> None:
    topic = new_topic("idempotent")
    produce(topic, range(2_000), enable_idempotence=True, batch_size=4_096, max_in_flight_requests_per_connection=1)  # More it refuses.
    for number, record in enumerate(consume(topic, 2_000)):
        claim(record.value.startswith(b"%05d " % number), f"record {number} is itself")


def member(group: str, topic: str) -> KafkaConsumer:
    return KafkaConsumer(
        topic,
        bootstrap_servers=bootstrap,
        group_id=prefix + group,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        heartbeat_interval_ms=500,
        session_timeout_ms=10_000,
    )


def poll_until(what: str, members: list[KafkaConsumer], holds: Callable[[], bool], got: list[Any] | None = None) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not holds():
        if time.monotonic() > deadline:
            raise AssertionError(f"waited in vain until {what}")
        for consumer in members:
            for records in consumer.poll(50).values():
                if got is not None:
                    got += records


def group_of_two() -> None:
    topic = new_topic("shared", 4)
    first = member("pair", topic)
    poll_until("the first member owns all", [first], lambda: len(first.assignment()) == 4)
    second = member("pair", topic)
    both = [first, second]
    poll_until("both own two partitions", both, lambda: [len(one.assignment()) for one in both] == [2, 2])
    produce(topic, range(200))
    got: list[Any] = []
    poll_until("both together got 200 records", both, lambda: len(got) >= 200, got)
    claim(len({record.value for record in got}) == 200 == len(got), "each of them once")
    for one in both:
        one.commit()
    second.close()
    poll_until("the first took over", [first], lambda: len(first.assignment()) == 4)
    first.close()


def resume() -> None:
    topic = new_topic("resumed")
    for turn in (0, 1):
        produce(topic, range(turn * 10, turn * 10 + 10))
        consumer = member("resuming", topic)
        got: list[Any] = []
        poll_until("ten more came", [consumer], lambda got=got: len(got) >= 10, got)
        consumer.commit()
        consumer.close()
        claim([record.offset for record in got] == list(range(turn * 10, turn * 10 + 10)), f"turn {turn} begins where the last ended")


def create_and_describe() -> None:
    topic = new_topic("described", 3, retention_ms="604800000")
    (told,) = admin.describe_topics([topic])
    claim(len(told["partitions"]) == 3 and topic in admin.list_topics(), f"three partitions: {told}")
    claim(len(admin.describe_cluster()["brokers"]) == 1, "one node")


def change_settings() -> None:
    topic = new_topic("settings")
    admin.alter_configs([ConfigResource(ConfigResourceType.TOPIC, topic, {"retention.ms": "3600000"})])
    (told,) = admin.describe_configs([ConfigResource(ConfigResourceType.TOPIC, topic, {"retention.ms": None})])
    claim("3600000" in str(told), f"it has the new value: {told}")


def add_partitions() -> None:
    topic = new_topic("widened")
    admin.create_partitions({topic: NewPartitions(4)})
    (told,) = admin.describe_topics([topic])
    claim(len(told["partitions"]) == 4, f"four partitions: {told}")


def delete_records() -> None:
    topic = new_topic("trimmed")
    produce(topic, range(10))
    where = TopicPartition(topic, 0)
    admin.delete_records({where: 4})
    consumer = KafkaConsumer(bootstrap_servers=bootstrap)
    claim(consumer.beginning_offsets([where]) == {where: 4} and consumer.end_offsets([where]) == {where: 10}, "the log starts at 4")
    consumer.close()


def offsets_by_time() -> None:
    topic = new_topic("timed")
    producer = KafkaProducer(bootstrap_servers=bootstrap)
    for number in range(10):
        producer.send(topic, b"%d" % number, timestamp_ms=1_700_000_000_000 + number * 1_000).get(PATIENCE_S)
    producer.close()
    where = TopicPartition(topic, 0)
    consumer = KafkaConsumer(bootstrap_servers=bootstrap)
    found = consumer.offsets_for_times({where: 1_700_000_004_500})[where]
    consumer.close()
    claim((found.offset, found.timestamp) == (5, 1_700_000_005_000), f"the first record after that time: {found}")


def list_and_describe_groups() -> None:
    topic = new_topic("watched", 2)
    consumer = member("watched", topic)
    poll_until("the member owns all", [consumer], lambda: len(consumer.assignment()) == 2)
    listed = admin.list_consumer_groups()
    (told,) = admin.describe_consumer_groups([prefix + "watched"])
    consumer.close()
    claim((prefix + "watched", "consumer") in listed, f"it is listed: {listed}")
    claim(told.state == "Stable" and len(told.members) == 1, f"it is stable with one member: {told}")


def committed_group(name: str) -> TopicPartition:
    """Leaves a group with committed offsets and no members: offset 3 of 10."""
    topic = new_topic(name)
    produce(topic, range(10))
    commit(name, TopicPartition(topic, 0), 3)
    return TopicPartition(topic, 0)


def commit(group: str, where: TopicPartition, offset: int) -> None:
    consumer = KafkaConsumer(bootstrap_servers=bootstrap, group_id=prefix + group, enable_auto_commit=False)
    consumer.assign([where])
    consumer.commit({where: OffsetAndMetadata(offset, "by hand", -1)})
    consumer.close()


def reset_group_offsets() -> None:
    where = committed_group("reset")
    told = admin.list_consumer_group_offsets(prefix + "reset")[where]
    claim((told.offset, told.metadata) == (3, "by hand"), f"it is at 3: {told}")
    commit("reset", where, 0)
    told = admin.list_consumer_group_offsets(prefix + "reset")[where]
    claim(told.offset == 0, f"it is back at 0: {told}")


def delete_group() -> None:
    committed_group("deleted")
    ((_, error),) = admin.delete_consumer_groups([prefix + "deleted"])
    left = [group for group, _ in admin.list_consumer_groups()]
    claim(error.errno == 0 and prefix + "deleted" not in left, f"it is listed no more: {error}")


def delete_topic() -> None:
    topic = new_topic("gone")
    admin.delete_topics([topic])
    claim(topic not in admin.list_topics(), "it is listed no more")


def proper_no() -> None:
    new_topic("twice")
    refused(TopicAlreadyExistsError, lambda: new_topic("twice"))
    refused(UnknownTopicOrPartitionError, lambda: admin.delete_topics([prefix + "never-made"]))
    refused(KafkaError, lambda: new_topic("crooked", retention_ms="banana"))


def refused(kind: type[Exception], act: Callable[[], object]) -> None:
    try:
        act()
    except kind:
        return
    raise AssertionError(f"not so: it is refused with {kind.__name__}")


main()
