"""A compacted log as clients read it: gaps, empty batches, rewritten compressed batches and delete horizons disturb none of them."""

import asyncio
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from aiokafka import AIOKafkaConsumer
from aiokafka import TopicPartition as AiokafkaPartition
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from kafka import KafkaConsumer
from kafka import TopicPartition as KafkaPythonPartition
from system import harness
from system.conftest import Broker
from system.librdkafka import unique

SETTINGS = {"log.cleaner.backoff.ms": 50, "disk.free.bytes.min": 0}
COMPACTED = {"cleanup.policy": "compact", "segment.bytes": "4096", "min.cleanable.dirty.ratio": "0.1", "delete.retention.ms": "600000"}
SECONDS_MAX = 30.0
KEYS, ROUNDS = 7, 40

Found = list[tuple[int, bytes, bytes | None, int]]  # Offset, key, value, timestamp.


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    with harness.Node(tmp_path_factory.mktemp("node") / "data", settings=SETTINGS) as node:
        yield Broker(node.bootstrap, node)
        assert node.is_alive(), f"the node ended with code {node.wait()}"
        assert node.complaints() == []


def make_topic(bootstrap: str, **config: str) -> str:
    name = unique("compacted")
    settings = COMPACTED | {key.replace("_", "."): value for key, value in config.items()}
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(name, num_partitions=1, replication_factor=1, config=settings)])[name].result(SECONDS_MAX)
    return name


def write(bootstrap: str, topic: str, codec: str, *, rounds: int = ROUNDS) -> dict[bytes, tuple[int, bytes | None, int]]:
    """Every key once a round, in batches of a few; then some keys are deleted. The last record of each: offset, value, timestamp."""
    last: dict[bytes, tuple[int, bytes | None, int]] = {}

    def delivered(error: object, message: object) -> None:
        assert error is None, error
        last[message.key()] = (message.offset(), message.value(), message.timestamp()[1])  # type: ignore[attr-defined]

    producer = Producer({"bootstrap.servers": bootstrap, "compression.type": codec, "linger.ms": 5, "batch.num.messages": 3})
    for number in range(rounds):
        for key in range(KEYS):
            producer.produce(topic, key=b"key-%d" % key, value=b"%d:" % number + b"x" * 150, on_delivery=delivered)
        producer.poll(0)
    for key in (1, 4):
        producer.produce(topic, key=b"key-%d" % key, value=None, on_delivery=delivered)
    for number in range(60):  # What closes the segment in which those are.
        producer.produce(topic, key=b"other", value=b"%d" % number + b"y" * 100, on_delivery=delivered)
    assert producer.flush(SECONDS_MAX) == 0
    return last


def read_by_confluent(bootstrap: str, topic: str) -> Found:
    with closing(Consumer({"bootstrap.servers": bootstrap, "group.id": unique("g"), "enable.partition.eof": True})) as consumer:
        consumer.assign([TopicPartition(topic, 0, 0)])
        found: Found = []
        while True:
            message = consumer.poll(SECONDS_MAX)
            assert message is not None
            if message.error() is not None:
                return found
            found.append((message.offset(), message.key(), message.value(), message.timestamp()[1]))


def read_by_kafka_python(bootstrap: str, topic: str) -> Found:
    where = KafkaPythonPartition(topic, 0)
    with closing(KafkaConsumer(bootstrap_servers=bootstrap, group_id=None, enable_auto_commit=False)) as consumer:
        consumer.assign([where])
        consumer.seek(where, 0)
        end, found, deadline = consumer.end_offsets([where])[where], [], time.monotonic() + SECONDS_MAX
        while consumer.position(where) < end:
            assert time.monotonic() < deadline
            for records in consumer.poll(timeout_ms=500).values():
                found += [(record.offset, record.key, record.value, record.timestamp) for record in records]
        return found


def read_by_aiokafka(bootstrap: str, topic: str) -> Found:
    async def read() -> Found:
        where = AiokafkaPartition(topic, 0)
        consumer = AIOKafkaConsumer(bootstrap_servers=bootstrap, enable_auto_commit=False)
        await consumer.start()
        try:
            consumer.assign([where])
            consumer.seek(where, 0)
            end, found = (await consumer.end_offsets([where]))[where], []
            async with asyncio.timeout(SECONDS_MAX):
                while await consumer.position(where) < end:
                    for records in (await consumer.getmany(where, timeout_ms=500)).values():
                        found += [(record.offset, record.key, record.value, record.timestamp) for record in records]
            return found
        finally:
            await consumer.stop()

    return asyncio.run(read())


READERS = {"confluent": read_by_confluent, "kafka-python": read_by_kafka_python, "aiokafka": read_by_aiokafka}


def compacted(bootstrap: str, topic: str, below: int) -> Found:
    """What is left once compaction has come so far."""
    deadline = time.monotonic() + SECONDS_MAX
    while len(found := read_by_confluent(bootstrap, topic)) > below:
        assert time.monotonic() < deadline, f"{len(found)} records are left"
        time.sleep(0.1)
    return found


def check(found: Found, last: dict[bytes, tuple[int, bytes | None, int]]) -> None:
    offsets = [offset for offset, *_ in found]
    assert offsets == sorted(set(offsets))
    assert {key: (offset, value, timestamp) for offset, key, value, timestamp in found} == last


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_every_client_reads_what_compaction_has_left(broker: Broker, codec: str) -> None:
    topic = make_topic(broker.bootstrap)
    last = write(broker.bootstrap, topic, codec)
    check(compacted(broker.bootstrap, topic, below=120), last)
    for name, read in READERS.items():
        found = read(broker.bootstrap, topic)
        check(found, last)
        assert len(found) < 120, name


def test_a_deleted_key_is_gone_when_its_time_has_come(broker: Broker) -> None:
    topic = make_topic(broker.bootstrap, delete_retention_ms="1")
    write(broker.bootstrap, topic, "none")
    deadline = time.monotonic() + SECONDS_MAX
    while b"key-1" in {key for _, key, *_ in read_by_confluent(broker.bootstrap, topic)}:
        assert time.monotonic() < deadline
        write_more(broker.bootstrap, topic)
    found = {key for _, key, *_ in read_by_kafka_python(broker.bootstrap, topic)}
    assert b"key-1" not in found and b"key-2" in found


def write_more(bootstrap: str, topic: str) -> None:
    producer = Producer({"bootstrap.servers": bootstrap})
    for number in range(60):
        producer.produce(topic, key=b"other", value=b"%d" % number + b"y" * 100)
    assert producer.flush(SECONDS_MAX) == 0


def test_a_node_that_is_killed_again_and_again_while_it_compacts_keeps_the_last_of_each_key(tmp_path: Path) -> None:
    with harness.Node(tmp_path / "data", settings=SETTINGS | {"log.cleaner.backoff.ms": 10}) as node:
        topic = make_topic(node.bootstrap)
        for number in range(6):
            last = write(node.bootstrap, topic, ("none", "lz4")[number % 2], rounds=12)
            time.sleep(0.02 * number)
            node.kill()
            node.start()
            found = read_by_confluent(node.bootstrap, topic)
            assert {key: (offset, value, timestamp) for offset, key, value, timestamp in found} == last
        assert node.complaints() == []
