"""A compacted log as clients read it: gaps, empty batches, rewritten compressed batches and delete horizons disturb none of them."""

import asyncio
import random
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path

import pytest
from aiokafka import AIOKafkaConsumer
from aiokafka import TopicPartition as AiokafkaPartition
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from kafka import KafkaConsumer
from kafka import TopicPartition as KafkaPythonPartition
from system import harness, librdkafka
from system.conftest import Broker
from system.librdkafka import SECONDS_MAX, produce_all, unique
from tiers import pick
from waiting import ASK_MS, ASK_S, PATIENCE_S, pause_at_random, until

SETTINGS = {"log.cleaner.backoff.ms": 50, "disk.free.bytes.min": 0}
COMPACTED = {"cleanup.policy": "compact", "segment.bytes": "4096", "min.cleanable.dirty.ratio": "0.1", "delete.retention.ms": "600000"}
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
KEYS, RECORDS_MAX = 7, 120  # So many keys of each codec, and so many records that compaction may leave.
KILLS = pick(test=3, slow=6)

Found = list[tuple[int, bytes, bytes | None, int]]  # Offset, key, value, timestamp.
Last = dict[bytes, tuple[int, bytes | None, int]]  # By key: offset, value, timestamp.


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


def write(bootstrap: str, topic: str, codecs: Sequence[str], *, rounds: int = 8) -> Last:
    """Every key once a round, in batches of a few; then some keys are deleted. The last record of each: offset, value, timestamp."""
    last: Last = {}

    def delivered(error: object, message: object) -> None:
        assert error is None, error
        last[message.key()] = (message.offset(), message.value(), message.timestamp()[1])  # type: ignore[attr-defined]

    for codec in codecs:
        producer = Producer({"bootstrap.servers": bootstrap, "compression.type": codec, "linger.ms": 5, "batch.num.messages": 3})
        for number in range(rounds):
            for key in range(KEYS):
                producer.produce(topic, key=key_of(codec, key), value=b"%d:" % number + b"x" * 150, on_delivery=delivered)
            producer.poll(0)
        for key in (1, 4):
            producer.produce(topic, key=key_of(codec, key), value=None, on_delivery=delivered)
        assert producer.flush(SECONDS_MAX) == 0
    last |= write_more(bootstrap, topic)
    return last


def write_more(bootstrap: str, topic: str) -> Last:
    """What closes the segment in which the last ones are."""
    last: Last = {}
    for message in produce_all(bootstrap, topic, [{"key": b"other", "value": b"%d" % number + b"y" * 100} for number in range(60)]):
        last[message.key()] = (message.offset(), message.value(), message.timestamp()[1])
    return last


def key_of(codec: str, key: int) -> bytes:
    return f"{codec}-{key}".encode()


def read_by_confluent(bootstrap: str, topic: str) -> Found:
    return [(record.offset(), record.key(), record.value(), record.timestamp()[1]) for record in librdkafka.read_to_end(bootstrap, topic)]


def read_by_kafka_python(bootstrap: str, topic: str) -> Found:
    where = KafkaPythonPartition(topic, 0)
    with closing(KafkaConsumer(bootstrap_servers=bootstrap, group_id=None, enable_auto_commit=False)) as consumer:
        consumer.assign([where])
        consumer.seek(where, 0)
        end, found = consumer.end_offsets([where])[where], []

        def has_come() -> bool:
            for records in consumer.poll(timeout_ms=ASK_MS).values():
                found.extend((record.offset, record.key, record.value, record.timestamp) for record in records)
            return consumer.position(where) >= end

        until(has_come, lambda: f"all before offset {end} comes, not only {len(found)} records")
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
            async with asyncio.timeout(PATIENCE_S):
                while await consumer.position(where) < end:
                    for records in (await consumer.getmany(where, timeout_ms=ASK_MS)).values():
                        found += [(record.offset, record.key, record.value, record.timestamp) for record in records]
            return found
        finally:
            await consumer.stop()

    return asyncio.run(read())


READERS = {"confluent": read_by_confluent, "kafka-python": read_by_kafka_python, "aiokafka": read_by_aiokafka}


def compacted(bootstrap: str, topic: str) -> Found:
    """What is left once compaction has come so far."""

    def few_are_left() -> Found | None:
        found = read_by_confluent(bootstrap, topic)
        return found if len(found) < RECORDS_MAX else None

    return until(few_are_left, "few records are left", every_s=ASK_S)


def check(found: Found, last: Last) -> None:
    offsets = [offset for offset, *_ in found]
    assert offsets == sorted(set(offsets))
    assert {key: (offset, value, timestamp) for offset, key, value, timestamp in found} == last


ONE_CODEC = pytest.mark.slow(stays="tests/compatibility/test_compaction.py::test_every_client_reads_what_compaction_has_left")


@pytest.mark.parametrize(
    ("codecs", "rounds"),
    [
        pytest.param(CODECS, 8, id="every codec in one log"),
        *(pytest.param((codec,), 40, id=codec, marks=ONE_CODEC) for codec in CODECS),
    ],
)
def test_every_client_reads_what_compaction_has_left(broker: Broker, codecs: Sequence[str], rounds: int) -> None:
    topic = make_topic(broker.bootstrap)
    last = write(broker.bootstrap, topic, codecs, rounds=rounds)
    check(compacted(broker.bootstrap, topic), last)
    for name, read in READERS.items():
        found = read(broker.bootstrap, topic)
        check(found, last)
        assert len(found) < RECORDS_MAX, name


def test_a_deleted_key_is_gone_when_its_time_has_come(broker: Broker) -> None:
    topic = make_topic(broker.bootstrap, delete_retention_ms="1")
    write(broker.bootstrap, topic, ["none"])

    def is_gone() -> bool:
        write_more(broker.bootstrap, topic)
        return key_of("none", 1) not in {key for _, key, *_ in read_by_confluent(broker.bootstrap, topic)}

    until(is_gone, "the deleted key is gone", every_s=ASK_S)
    found = {key for _, key, *_ in read_by_kafka_python(broker.bootstrap, topic)}
    assert key_of("none", 1) not in found and key_of("none", 2) in found


@pytest.mark.repeats
def test_a_node_that_is_killed_again_and_again_while_it_compacts_keeps_the_last_of_each_key(tmp_path: Path) -> None:
    with harness.Node(tmp_path / "data", settings=SETTINGS | {"log.cleaner.backoff.ms": 10}) as node:
        topic = make_topic(node.bootstrap)
        rng, last = random.Random(KILLS), {}
        for number in range(KILLS):
            last |= write(node.bootstrap, topic, [("none", "lz4")[number % 2]], rounds=12)
            pause_at_random(rng, 0.0, 0.1)
            node.kill()
            node.start()
            found = read_by_confluent(node.bootstrap, topic)
            assert {key: (offset, value, timestamp) for offset, key, value, timestamp in found} == last
        assert node.complaints() == []
