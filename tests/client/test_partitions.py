"""A key lives in the same partition whoever writes it: this face, Java's client, kafka-python."""

import subprocess
from collections import Counter
from pathlib import Path

import pytest
from client.client_side import numbered, read_all
from client.where_java_puts_keys import BY_JAVA, PARTITIONS
from kafka.partitioner import murmur2 as kafka_pythons_murmur2
from system.java_clients import QUICK, class_path
from waiting import PATIENCE_S

from penstock.client import NotDelivered, Producer
from penstock.testing import Broker, broker

KEYS = [f"key-{number}" for number in range(1_000)]


def test_a_thousand_keys_go_where_javas_client_and_kafka_python_put_them(penstock_broker: Broker, producer: Producer):
    topic = penstock_broker.create_topic(partitions=PARTITIONS)
    receipts = [producer.send(topic=topic, key=key, value=b"v") for key in KEYS]
    found = [receipt.result(PATIENCE_S).partition for receipt in receipts]
    assert found == BY_JAVA
    assert found == [(kafka_pythons_murmur2(key.encode()) & 0x7FFFFFFF) % PARTITIONS for key in KEYS]


@pytest.mark.slow(stays="tests/client/test_partitions.py::test_a_thousand_keys_go_where_javas_client_and_kafka_python_put_them")
@pytest.mark.needs("java")
def test_what_is_written_down_of_javas_client_is_what_it_does(penstock_broker: Broker):
    try:
        jars = class_path()
    except LookupError as reason:
        pytest.skip(f"needs java: {reason}")
    topic = penstock_broker.create_topic(partitions=PARTITIONS)
    program = Path(__file__).parent / "java" / "WhereKeysGo.java"
    command = ["java", *QUICK, "-cp", jars, str(program), penstock_broker.bootstrap, topic, str(len(KEYS))]
    played = subprocess.run(command, capture_output=True, text=True, timeout=150, check=True)
    assert [int(line) for line in played.stdout.split()] == BY_JAVA


def test_the_empty_key_is_a_key(penstock_broker: Broker, producer: Producer):
    """Java hashes it. librdkafka's own default would take it for none."""
    topic = penstock_broker.create_topic(partitions=PARTITIONS)
    receipts = [producer.send(topic=topic, key=b"", value=b"v") for _ in range(30)]
    partitions = {receipt.result(PATIENCE_S).partition for receipt in receipts}
    assert partitions == {(kafka_pythons_murmur2(b"") & 0x7FFFFFFF) % PARTITIONS}


def test_records_without_a_key_reach_every_partition(penstock_broker: Broker):
    topic = penstock_broker.create_topic(partitions=3)
    with Producer(penstock_broker.bootstrap, linger_ms=0, settings={"sticky.partitioning.linger.ms": 0}) as producer:
        receipts = [producer.send(topic=topic, value=value) for value in numbered(300)]
        shares = Counter(receipt.result(PATIENCE_S).partition for receipt in receipts)
    assert sorted(shares) == [0, 1, 2]


def test_a_partitioner_decides_where_records_go(penstock_broker: Broker):
    topic = penstock_broker.create_topic(partitions=5)
    asked = []

    def by_length(topic: str, key: bytes | None, partitions: int) -> int:
        asked.append((topic, key, partitions))
        return len(key or b"") % partitions

    with Producer(penstock_broker.bootstrap, partitioner=by_length) as producer:
        for key in (None, "a", "bb", "abcdef"):
            producer.send(topic=topic, key=key, value=b"v")
        producer.send(topic=topic, key="a", value=b"v", partition=4)
    found = {(message.key, message.partition) for message in read_all(penstock_broker, topic, 5)}
    assert found == {(None, 0), (b"a", 1), (b"bb", 2), (b"abcdef", 1), (b"a", 4)}
    assert asked == [(topic, None, 5), (topic, b"a", 5), (topic, b"bb", 5), (topic, b"abcdef", 5)]


@pytest.mark.parametrize("choice", [3, -1, None, "0"])
def test_a_partitioner_that_chooses_what_is_not_there_is_told(penstock_broker: Broker, choice):
    topic = penstock_broker.create_topic(partitions=3)
    producer = Producer(penstock_broker.bootstrap, partitioner=lambda *_: choice)
    with producer, pytest.raises(ValueError, match="partitions 0 to 2"):
        producer.send(topic=topic, value=b"v")


def test_a_partitioner_waits_for_a_topic_that_makes_itself(penstock_broker: Broker):
    with Producer(penstock_broker.bootstrap, partitioner=lambda topic, key, partitions: partitions - 1) as producer:
        assert producer.send(topic="makes-itself", value=b"v").result(PATIENCE_S).partition == 0


def test_a_partitioner_for_a_topic_that_nobody_makes_is_told():
    with broker(auto_create_topics_enable=False) as node:
        producer = Producer(node.bootstrap, partitioner=lambda topic, key, partitions: 0, block_seconds=PATIENCE_S)
        with pytest.raises(NotDelivered, match="create the topic"):
            producer.send(topic="not-there", value=b"v")
        producer.close()
