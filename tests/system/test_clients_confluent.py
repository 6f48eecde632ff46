"""confluent-kafka (librdkafka) finds in a node what it finds in Apache Kafka. PENSTOCK_PEER runs these claims against the latter."""

import time
from typing import Any

import pytest
from confluent_kafka import (
    OFFSET_END,
    TIMESTAMP_CREATE_TIME,
    TIMESTAMP_LOG_APPEND_TIME,
    IsolationLevel,
    KafkaError,
    KafkaException,
    TopicCollection,
    TopicPartition,
)
from confluent_kafka.admin import NewTopic, OffsetSpec
from system.conftest import Broker
from system.librdkafka import (
    SECONDS_MAX,
    admin,
    consumer,
    make_topic,
    poll_records,
    produce_all,
    producer,
    read_partition,
    read_topic,
    topic_list,
    unique,
    values,
    watermarks,
)
from waiting import ASK_MS, PATIENCE_MS, until

MINUTE_MS = 60_000
LOOPS = ("uvloop", "asyncio")  # The node must be the same on both.


def now_ms() -> int:
    return int(time.time() * 1000)


def numbered(count: int, **fields: Any) -> list[dict[str, Any]]:
    return [{"value": b"%06d" % number, **fields} for number in range(count)]


def refusal(bootstrap: str, topic: str, **message: Any) -> KafkaError:
    """The error that one message comes back with."""
    answers: list[KafkaError] = []
    config = {"message_max_bytes": 5_000_000, "message_timeout_ms": PATIENCE_MS}
    sender = producer(bootstrap, **config)
    sender.produce(topic, on_delivery=lambda error, _: answers.append(error), **message)
    sender.flush(SECONDS_MAX)
    assert answers and answers[0] is not None, "it was taken"
    return answers[0]


def test_a_record_comes_back_with_its_key_value_headers_time_and_place(broker: Broker) -> None:
    topic = make_topic(broker.bootstrap, unique("whole"), partitions=3)
    sent_ms = now_ms() - MINUTE_MS
    headers = [("trace", b"abc"), ("trace", b"again"), ("empty", b""), ("none", None)]
    produce_all(broker.bootstrap, topic, [{"value": b"v", "key": b"k", "headers": headers, "timestamp": sent_ms, "partition": 2}])
    (record,) = read_partition(broker.bootstrap, topic, 2)
    assert (record.key(), record.value(), record.headers()) == (b"k", b"v", headers)
    assert record.timestamp() == (TIMESTAMP_CREATE_TIME, sent_ms)
    assert (record.partition(), record.offset()) == (2, 0)


def test_null_and_empty_keys_and_values_are_kept_apart(broker: Broker) -> None:
    topic = make_topic(broker.bootstrap, unique("nulls"))
    pairs = [(None, None), (None, b""), (b"", None), (b"", b""), (b"k", None), (None, b"v")]
    produce_all(broker.bootstrap, topic, [{"key": key, "value": value} for key, value in pairs])
    assert [(record.key(), record.value()) for record in read_partition(broker.bootstrap, topic)] == pairs


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_every_codec_goes_in_and_comes_out(broker: Broker, codec: str) -> None:
    topic = make_topic(broker.bootstrap, unique(codec))
    messages = [{"key": b"key-%d" % (number % 7), "value": b"value %d " % number * 20} for number in range(2_000)]
    produce_all(broker.bootstrap, topic, messages, compression_type=codec, linger_ms=50)
    assert values(read_partition(broker.bootstrap, topic)) == [message["value"] for message in messages]


@pytest.mark.parametrize("acks", ["0", "1", "all"])
def test_every_kind_of_acknowledgement_stores_the_records_in_order(broker: Broker, acks: str) -> None:
    topic = make_topic(broker.bootstrap, unique(f"acks-{acks}"))
    produce_all(broker.bootstrap, topic, numbered(500), acks=acks, max_in_flight=1)
    until(lambda: watermarks(broker.bootstrap, topic)[1] >= 500, "all are stored: acks=0 promises nothing about when", every_s=0.05)
    assert values(read_partition(broker.bootstrap, topic)) == [b"%06d" % number for number in range(500)]


def test_an_idempotent_producer_writes_each_record_once_and_in_order(broker: Broker) -> None:
    topic = make_topic(broker.bootstrap, unique("once"), partitions=2)
    messages = [{"value": b"%06d" % number, "partition": number % 2} for number in range(4_000)]
    produce_all(broker.bootstrap, topic, messages, enable_idempotence=True, linger_ms=1)
    for partition, records in enumerate(read_topic(broker.bootstrap, topic, 2)):
        assert values(records) == [b"%06d" % number for number in range(partition, 4_000, 2)]


def test_offsets_are_dense_and_the_acknowledgement_tells_them(broker: Broker) -> None:
    topic = make_topic(broker.bootstrap, unique("dense"))
    delivered = produce_all(broker.bootstrap, topic, numbered(1_000), linger_ms=2)
    assert sorted((record.offset(), record.value()) for record in delivered) == [(number, b"%06d" % number) for number in range(1_000)]
    assert watermarks(broker.bootstrap, topic) == (0, 1_000)


def test_a_time_leads_to_the_first_record_of_that_time_or_later(broker: Broker) -> None:
    topic = make_topic(broker.bootstrap, unique("times"))
    start_ms = now_ms() - 100 * MINUTE_MS
    for number in range(5):  # One batch each, then many in one batch.
        produce_all(broker.bootstrap, topic, [{"value": b"single", "timestamp": start_ms + number * 1_000}])
    many = [{"value": b"many", "timestamp": start_ms + number * 1_000} for number in range(5, 50)]
    produce_all(broker.bootstrap, topic, many, linger_ms=200)
    with consumer(broker.bootstrap) as reader:

        def offset_at(timestamp: int) -> int:
            (found,) = reader.offsets_for_times([TopicPartition(topic, 0, timestamp)], timeout=SECONDS_MAX)
            return int(found.offset)

        assert offset_at(start_ms - 1) == 0
        assert offset_at(start_ms + 3_000) == 3
        assert offset_at(start_ms + 3_001) == 4
        assert offset_at(start_ms + 30_500) == 31, "it lies inside a batch"
        assert offset_at(start_ms + 60_000) == OFFSET_END
        reader.assign([TopicPartition(topic, 0, offset_at(start_ms + 30_500))])
        assert poll_records(reader, 1)[0].timestamp()[1] == start_ms + 31_000


def test_a_consumer_can_begin_inside_a_batch_and_seek_back_and_forth(broker: Broker) -> None:
    topic = make_topic(broker.bootstrap, unique("seek"))
    produce_all(broker.bootstrap, topic, numbered(1_000), linger_ms=200)
    with consumer(broker.bootstrap, fetch_wait_max_ms=ASK_MS) as reader:
        reader.assign([TopicPartition(topic, 0, 617)])
        assert poll_records(reader, 1)[0].value() == b"000617"
        for offset in (999, 0, 500):
            reader.seek(TopicPartition(topic, 0, offset))
            assert poll_records(reader, 1)[0].offset() == offset


def test_a_waiting_consumer_hears_of_a_new_record_at_once(broker: Broker) -> None:
    topic = make_topic(broker.bootstrap, unique("wait"))
    before = broker.fetches()
    # A fetch that the record does not end would go on for longer than this test waits for it.
    with consumer(broker.bootstrap, fetch_wait_max_ms=2 * PATIENCE_MS, socket_timeout_ms=2 * PATIENCE_MS + 10_000) as reader:
        reader.assign([TopicPartition(topic, 0, 0)])
        until(lambda: broker.has_more_fetches(before), "the consumer's fetch waits")
        assert reader.poll(0) is None
        produce_all(broker.bootstrap, topic, [{"value": b"news"}])
        assert poll_records(reader, 1)[0].value() == b"news"


def test_a_consumer_past_the_end_is_told_and_starts_again_where_it_wished(broker: Broker) -> None:
    topic = make_topic(broker.bootstrap, unique("range"))
    produce_all(broker.bootstrap, topic, numbered(3))
    with consumer(broker.bootstrap, auto_offset_reset="error", fetch_error_backoff_ms=ASK_MS) as reader:
        reader.assign([TopicPartition(topic, 0, 1_000)])
        answer = reader.poll(SECONDS_MAX)
        assert answer is not None and answer.error().code() == KafkaError._AUTO_OFFSET_RESET
    with consumer(broker.bootstrap, fetch_error_backoff_ms=ASK_MS) as reader:
        reader.assign([TopicPartition(topic, 0, 1_000)])
        assert poll_records(reader, 1)[0].offset() == 0


def test_large_messages_pass_up_to_the_limit_and_not_beyond(broker: Broker) -> None:
    topic = make_topic(broker.bootstrap, unique("large"))
    large = bytes(range(256)) * 4_000  # 1,024,000 bytes; the default limit is 1,048,588.
    produce_all(broker.bootstrap, topic, [{"value": large}], message_max_bytes=2_000_000)
    assert refusal(broker.bootstrap, topic, value=bytes(1_100_000)).code() == KafkaError.MSG_SIZE_TOO_LARGE
    assert values(read_partition(broker.bootstrap, topic)) == [large]


def test_a_topic_can_allow_less_or_more_than_the_default(broker: Broker) -> None:
    small = make_topic(broker.bootstrap, unique("small"), max_message_bytes=2_000)
    assert refusal(broker.bootstrap, small, value=bytes(3_000)).code() == KafkaError.MSG_SIZE_TOO_LARGE
    big = make_topic(broker.bootstrap, unique("big"), max_message_bytes=4_000_000)
    produce_all(broker.bootstrap, big, [{"value": bytes(3_000_000)}], message_max_bytes=4_000_000)
    assert len(read_partition(broker.bootstrap, big, fetch_max_bytes=1_000_000, message_max_bytes=1_000_000)[0].value()) == 3_000_000


def test_a_record_from_the_far_future_is_refused(broker: Broker) -> None:
    topic = make_topic(broker.bootstrap, unique("future"))
    assert refusal(broker.bootstrap, topic, value=b"x", timestamp=now_ms() + 120 * MINUTE_MS).code() == KafkaError.INVALID_TIMESTAMP
    assert watermarks(broker.bootstrap, topic) == (0, 0)


def test_a_compacted_topic_takes_no_record_without_a_key(broker: Broker) -> None:
    topic = make_topic(broker.bootstrap, unique("compact"), cleanup_policy="compact")
    assert refusal(broker.bootstrap, topic, value=b"x").code() == KafkaError.INVALID_RECORD
    produce_all(broker.bootstrap, topic, [{"key": b"k", "value": b"x"}])


def test_many_partitions_each_keep_their_keys(broker: Broker) -> None:
    topic = make_topic(broker.bootstrap, unique("wide"), partitions=64)
    messages = [{"key": b"key-%d" % (number % 500), "value": b"%d" % number} for number in range(5_000)]
    produce_all(broker.bootstrap, topic, messages, linger_ms=20)
    homes: dict[bytes, set[int]] = {}
    with consumer(broker.bootstrap) as reader:
        reader.assign([TopicPartition(topic, partition, 0) for partition in range(64)])
        records = poll_records(reader, 5_000)
    for record in records:
        homes.setdefault(record.key(), set()).add(record.partition())
    assert len(homes) == 500 and all(len(partitions) == 1 for partitions in homes.values())
    assert len({record.partition() for record in records}) > 48


def test_log_append_time_is_the_brokers_clock(broker: Broker) -> None:
    topic = make_topic(broker.bootstrap, unique("append-time"), message_timestamp_type="LogAppendTime")
    before_ms = now_ms()
    messages = [{"value": b"%d" % number, "timestamp": 1_000_000 + number} for number in range(10)]
    produce_all(broker.bootstrap, topic, messages, linger_ms=50, compression_type="gzip")
    records = read_partition(broker.bootstrap, topic)
    kinds = {record.timestamp()[0] for record in records}
    assert kinds == {TIMESTAMP_LOG_APPEND_TIME} and len(records) == 10
    assert all(before_ms - 5 <= record.timestamp()[1] <= now_ms() + 5 for record in records)
    with consumer(broker.bootstrap) as reader:
        (found,) = reader.offsets_for_times([TopicPartition(topic, 0, before_ms - 5)], timeout=SECONDS_MAX)
        assert found.offset == 0


def test_a_topic_is_made_when_somebody_writes_to_it(broker: Broker) -> None:
    topic = unique("self-made")
    produce_all(broker.bootstrap, topic, numbered(3))
    assert values(read_partition(broker.bootstrap, topic)) == [b"000000", b"000001", b"000002"]


def test_topics_are_made_listed_and_deleted(broker: Broker) -> None:
    topic = make_topic(broker.bootstrap, unique("listed"), partitions=5)
    assert len(topic_list(broker.bootstrap)[topic].partitions) == 5
    admin(broker.bootstrap).delete_topics([topic])[topic].result(SECONDS_MAX)
    assert topic not in topic_list(broker.bootstrap)


@pytest.mark.parametrize(
    ("wish", "code"),
    [
        (NewTopic("two words", num_partitions=1, replication_factor=1), KafkaError.TOPIC_EXCEPTION),
        (NewTopic("x" * 250, num_partitions=1, replication_factor=1), KafkaError.TOPIC_EXCEPTION),
        (NewTopic("many-replicas", num_partitions=1, replication_factor=3), KafkaError.INVALID_REPLICATION_FACTOR),
        (NewTopic("strange", num_partitions=1, replication_factor=1, config={"no.such.setting": "1"}), KafkaError.INVALID_CONFIG),
        (NewTopic("strange", num_partitions=1, replication_factor=1, config={"retention.ms": "soon"}), KafkaError.INVALID_CONFIG),
    ],
)
def test_a_topic_that_cannot_be_is_refused_with_the_reason(broker: Broker, wish: NewTopic, code: int) -> None:
    with pytest.raises(KafkaException) as refused:
        admin(broker.bootstrap).create_topics([wish])[wish.topic].result(SECONDS_MAX)
    assert refused.value.args[0].code() == code
    assert refused.value.args[0].str()
    assert wish.topic not in topic_list(broker.bootstrap)


def test_a_topic_exists_once_and_an_unknown_one_cannot_be_deleted(broker: Broker) -> None:
    topic = make_topic(broker.bootstrap, unique("single"))
    with pytest.raises(KafkaException) as twice:
        make_topic(broker.bootstrap, topic)
    assert twice.value.args[0].code() == KafkaError.TOPIC_ALREADY_EXISTS
    with pytest.raises(KafkaException) as unknown:
        admin(broker.bootstrap).delete_topics(["never-was"])["never-was"].result(SECONDS_MAX)
    assert unknown.value.args[0].code() == KafkaError.UNKNOWN_TOPIC_OR_PART


def test_a_topic_can_be_asked_for_without_making_it(broker: Broker) -> None:
    wish = NewTopic(unique("dry"), num_partitions=2, replication_factor=1)
    admin(broker.bootstrap).create_topics([wish], validate_only=True)[wish.topic].result(SECONDS_MAX)
    assert wish.topic not in topic_list(broker.bootstrap)


def test_a_topic_made_again_under_its_old_name_is_another_and_empty(broker: Broker) -> None:
    topic = make_topic(broker.bootstrap, unique("phoenix"))
    produce_all(broker.bootstrap, topic, numbered(10))
    first_id = topic_id(broker, topic)
    admin(broker.bootstrap).delete_topics([topic])[topic].result(SECONDS_MAX)
    make_topic(broker.bootstrap, topic)
    assert topic_id(broker, topic) != first_id
    assert watermarks(broker.bootstrap, topic) == (0, 0)
    produce_all(broker.bootstrap, topic, numbered(2), enable_idempotence=True)
    assert len(read_partition(broker.bootstrap, topic)) == 2


def topic_id(broker: Broker, topic: str) -> str:
    described = admin(broker.bootstrap).describe_topics(TopicCollection([topic]), request_timeout=SECONDS_MAX)[topic].result(SECONDS_MAX)
    assert described.topic_id is not None
    return str(described.topic_id)


def test_offsets_are_listed_first_last_by_time_and_by_newest_time(broker: Broker) -> None:
    topic = make_topic(broker.bootstrap, unique("listing"))
    start_ms = now_ms() - MINUTE_MS
    times = [start_ms, start_ms + 10, start_ms + 5]
    produce_all(broker.bootstrap, topic, [{"value": b"x", "timestamp": timestamp} for timestamp in times])

    def ask(spec: OffsetSpec) -> int:
        where = TopicPartition(topic, 0)
        answer = admin(broker.bootstrap).list_offsets({where: spec}, isolation_level=IsolationLevel.READ_UNCOMMITTED)[where]
        return int(answer.result(SECONDS_MAX).offset)

    assert ask(OffsetSpec.earliest()) == 0
    assert ask(OffsetSpec.latest()) == 3
    assert ask(OffsetSpec.max_timestamp()) == 1
    assert ask(OffsetSpec.for_timestamp(start_ms + 7)) == 1


def test_the_cluster_describes_itself(broker: Broker) -> None:
    described = admin(broker.bootstrap).describe_cluster(request_timeout=SECONDS_MAX).result(SECONDS_MAX)
    assert described.cluster_id
    assert [f"{node.host}:{node.port}" for node in described.nodes] == [broker.bootstrap]
    assert described.controller is not None
