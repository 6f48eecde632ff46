"""kafka-python (idempotent by default) finds in a node what it finds in Apache Kafka."""

import time
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest
from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, TopicPartition
from kafka.admin import NewTopic
from kafka.errors import InvalidTopicError, MessageSizeTooLargeError, TopicAlreadyExistsError, UnknownTopicOrPartitionError
from system.conftest import Broker
from system.librdkafka import unique
from waiting import ASK_MS, PATIENCE_S, until


@pytest.fixture
def admin(broker: Broker) -> Iterator[KafkaAdminClient]:
    with closing(KafkaAdminClient(bootstrap_servers=broker.bootstrap)) as client:
        yield client


def make_topic(admin: KafkaAdminClient, partitions: int = 1, **config: str) -> str:
    name = unique("kp")
    settings = {key.replace("_", "."): value for key, value in config.items()}
    admin.create_topics([NewTopic(name, num_partitions=partitions, replication_factor=1, topic_configs=settings)])
    return name


def produce(broker: Broker, topic: str, messages: list[dict[str, Any]], **config: Any) -> list[Any]:
    with closing(KafkaProducer(bootstrap_servers=broker.bootstrap, **config)) as producer:
        answers = [producer.send(topic, **message) for message in messages]
        producer.flush(PATIENCE_S)
        return [answer.get(PATIENCE_S) for answer in answers]


def read(broker: Broker, topic: str, count: int, partition: int = 0, offset: int = 0) -> list[Any]:
    where = TopicPartition(topic, partition)
    with closing(KafkaConsumer(bootstrap_servers=broker.bootstrap, group_id=None, enable_auto_commit=False)) as consumer:
        consumer.assign([where])
        consumer.seek(where, offset)
        return poll_records(consumer, count)


def poll_records(consumer: KafkaConsumer, count: int) -> list[Any]:
    found: list[Any] = []

    def have_come() -> bool:
        for records in consumer.poll(timeout_ms=ASK_MS).values():
            found.extend(records)
        return len(found) >= count

    until(have_come, lambda: f"{count} records, and only {len(found)} came")
    return found


def test_a_record_comes_back_whole(broker: Broker, admin: KafkaAdminClient) -> None:
    topic = make_topic(admin, partitions=2)
    headers = [("trace", b"abc"), ("trace", b"again"), ("empty", b"")]
    sent_ms = int(time.time() * 1000) - 60_000
    (place,) = produce(broker, topic, [{"key": b"k", "value": b"v", "headers": headers, "timestamp_ms": sent_ms, "partition": 1}])
    assert (place.topic, place.partition, place.offset, place.timestamp) == (topic, 1, 0, sent_ms)
    (record,) = read(broker, topic, 1, partition=1)
    assert (record.key, record.value, list(record.headers), record.timestamp) == (b"k", b"v", headers, sent_ms)


def test_null_and_empty_are_kept_apart(broker: Broker, admin: KafkaAdminClient) -> None:
    topic = make_topic(admin)
    pairs = [(None, b""), (b"", None), (b"", b""), (b"k", None), (None, b"v")]
    produce(broker, topic, [{"key": key, "value": value, "partition": 0} for key, value in pairs])
    assert [(record.key, record.value) for record in read(broker, topic, len(pairs))] == pairs


@pytest.mark.parametrize("codec", [None, "gzip", "snappy", "lz4", "zstd"])
def test_every_codec_goes_in_and_comes_out(broker: Broker, admin: KafkaAdminClient, codec: str | None) -> None:
    topic = make_topic(admin)
    messages = [{"value": b"value %d " % number * 20, "partition": 0} for number in range(500)]
    produce(broker, topic, messages, compression_type=codec, linger_ms=20)
    assert [record.value for record in read(broker, topic, 500)] == [message["value"] for message in messages]


@pytest.mark.parametrize("config", [{"acks": 0, "enable_idempotence": False}, {"acks": 1, "enable_idempotence": False}, {"acks": "all"}])
def test_every_kind_of_acknowledgement_and_idempotence_keep_order(broker: Broker, admin: KafkaAdminClient, config: dict[str, Any]) -> None:
    topic = make_topic(admin)
    produce(broker, topic, [{"value": b"%06d" % number} for number in range(2_000)], max_in_flight_requests_per_connection=1, **config)
    assert [record.value for record in read(broker, topic, 2_000)] == [b"%06d" % number for number in range(2_000)]


def test_seeking_by_time_and_by_offset(broker: Broker, admin: KafkaAdminClient) -> None:
    topic = make_topic(admin)
    start_ms = int(time.time() * 1000) - 1_000_000
    produce(broker, topic, [{"value": b"%d" % number, "timestamp_ms": start_ms + number * 1_000} for number in range(100)], linger_ms=20)
    where = TopicPartition(topic, 0)
    with closing(KafkaConsumer(bootstrap_servers=broker.bootstrap, group_id=None)) as consumer:
        consumer.assign([where])
        assert consumer.beginning_offsets([where]) == {where: 0}
        assert consumer.end_offsets([where]) == {where: 100}
        found = consumer.offsets_for_times({where: start_ms + 41_500})[where]
        assert (found.offset, found.timestamp) == (42, start_ms + 42_000)
        assert consumer.offsets_for_times({where: start_ms + 999_000})[where] is None
        consumer.seek(where, found.offset)
        assert poll_records(consumer, 58)[0].value == b"42"


def test_a_message_over_the_limit_is_refused(broker: Broker, admin: KafkaAdminClient) -> None:
    topic = make_topic(admin)
    produce(broker, topic, [{"value": bytes(1_000_000)}], max_request_size=3_000_000)
    with pytest.raises(MessageSizeTooLargeError):
        produce(broker, topic, [{"value": bytes(1_500_000)}], max_request_size=3_000_000)
    assert len(read(broker, topic, 1)[0].value) == 1_000_000


def test_log_append_time(broker: Broker, admin: KafkaAdminClient) -> None:
    topic = make_topic(admin, message_timestamp_type="LogAppendTime")
    before_ms = int(time.time() * 1000) - 5
    (place,) = produce(broker, topic, [{"value": b"x", "timestamp_ms": 1_000}])
    (record,) = read(broker, topic, 1)
    assert record.timestamp_type == 1 and before_ms <= record.timestamp == place.timestamp


def test_a_topic_is_made_when_somebody_writes_to_it(broker: Broker) -> None:
    topic = unique("kp-self-made")
    produce(broker, topic, [{"value": b"x"}])
    assert read(broker, topic, 1)[0].value == b"x"


def test_topics_are_made_listed_described_and_deleted(broker: Broker, admin: KafkaAdminClient) -> None:
    topic = make_topic(admin, partitions=4)
    (described,) = admin.describe_topics([topic])
    assert len(described["partitions"]) == 4
    with pytest.raises(TopicAlreadyExistsError):
        admin.create_topics([NewTopic(topic, num_partitions=1, replication_factor=1)])
    with pytest.raises(InvalidTopicError):
        admin.create_topics([NewTopic("two words", num_partitions=1, replication_factor=1)])
    admin.delete_topics([topic])
    assert topic not in admin.list_topics()
    with pytest.raises(UnknownTopicOrPartitionError):
        admin.delete_topics([topic])


def test_the_cluster_describes_itself(broker: Broker, admin: KafkaAdminClient) -> None:
    described = admin.describe_cluster()
    assert [(node["host"], node["port"]) for node in described["brokers"]] == [broker.address]
