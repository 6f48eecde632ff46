"""confluent-kafka's admin client (librdkafka, which asserts where others complain) through the admin APIs. PENSTOCK_PEER: Kafka too."""

import pytest
from confluent_kafka import KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource, ConfigSource, NewPartitions
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
    unique,
    watermarks,
)
from waiting import until

pytestmark = pytest.mark.filterwarnings("ignore:alter_configs has been deprecated:DeprecationWarning")

SET, DELETE, APPEND, SUBTRACT = (AlterConfigOpType[name] for name in ("SET", "DELETE", "APPEND", "SUBTRACT"))


def described(broker: Broker, kind: ConfigResource.Type, name: str) -> dict[str, ConfigEntry]:
    resource = ConfigResource(kind, name)
    (answer,) = admin(broker.bootstrap).describe_configs([resource], request_timeout=SECONDS_MAX).values()
    return dict(answer.result(SECONDS_MAX))


def change(
    broker: Broker, kind: ConfigResource.Type, name: str, *changes: tuple[str, str | None, AlterConfigOpType], **options: bool
) -> None:
    entries = [ConfigEntry(setting, value, incremental_operation=operation) for setting, value, operation in changes]
    resource = ConfigResource(kind, name, incremental_configs=entries)
    (answer,) = admin(broker.bootstrap).incremental_alter_configs([resource], request_timeout=SECONDS_MAX, **options).values()
    answer.result(SECONDS_MAX)


def partition_count(broker: Broker, topic: str) -> int:
    return len(admin(broker.bootstrap).list_topics(topic, timeout=SECONDS_MAX).topics[topic].partitions)


def refusal(failure: pytest.ExceptionInfo[KafkaException]) -> int:
    return int(failure.value.args[0].code())


def test_settings_of_a_topic_are_told_and_changed(broker: Broker) -> None:
    topic = make_topic(broker.bootstrap, unique("told"), retention_ms=60_000)
    before = described(broker, ConfigResource.Type.TOPIC, topic)
    assert (before["retention.ms"].value, before["retention.ms"].source) == ("60000", ConfigSource.DYNAMIC_TOPIC_CONFIG.value)
    assert before["segment.bytes"].is_default
    assert not before["retention.ms"].is_read_only
    assert "retention.ms" in before["retention.ms"].synonyms
    change(broker, ConfigResource.Type.TOPIC, topic, ("retention.ms", None, DELETE), ("cleanup.policy", "compact", APPEND))
    until(lambda: described(broker, ConfigResource.Type.TOPIC, topic)["retention.ms"].is_default)
    after = described(broker, ConfigResource.Type.TOPIC, topic)
    assert after["cleanup.policy"].value == "delete,compact"
    change(broker, ConfigResource.Type.TOPIC, topic, ("cleanup.policy", "compact", SUBTRACT), ("segment.ms", "5000", SET))
    until(lambda: described(broker, ConfigResource.Type.TOPIC, topic)["cleanup.policy"].value == "delete")


def test_settings_of_a_group_are_told_and_changed(broker: Broker) -> None:
    group, lock = unique("group"), "share.record.lock.duration.ms"
    before = described(broker, ConfigResource.Type.GROUP, group)
    assert before[lock].value == "30000"
    change(broker, ConfigResource.Type.GROUP, group, (lock, "20000", SET), ("consumer.session.timeout.ms", "50000", SET))
    until(lambda: described(broker, ConfigResource.Type.GROUP, group)[lock].value == "20000")
    after = described(broker, ConfigResource.Type.GROUP, group)
    assert after[lock].source == ConfigSource.GROUP_CONFIG.value
    assert after["consumer.session.timeout.ms"].value == "50000"
    with pytest.raises(KafkaException) as failure:
        change(broker, ConfigResource.Type.GROUP, group, (lock, "1", SET))
    assert refusal(failure) == KafkaError.INVALID_CONFIG
    change(broker, ConfigResource.Type.GROUP, group, (lock, None, DELETE), ("consumer.session.timeout.ms", None, DELETE))
    until(lambda: described(broker, ConfigResource.Type.GROUP, group)[lock].value == "30000")


def test_a_change_that_is_only_tried_changes_nothing(broker: Broker) -> None:
    topic = make_topic(broker.bootstrap, unique("tried"))
    change(broker, ConfigResource.Type.TOPIC, topic, ("retention.ms", "1000", SET), validate_only=True)
    assert described(broker, ConfigResource.Type.TOPIC, topic)["retention.ms"].is_default


def test_the_old_way_of_altering_replaces_everything(broker: Broker) -> None:
    topic = make_topic(broker.bootstrap, unique("replaced"), retention_ms=60_000)
    resource = ConfigResource(ConfigResource.Type.TOPIC, topic, set_config={"segment.ms": "5000"})
    (answer,) = admin(broker.bootstrap).alter_configs([resource], request_timeout=SECONDS_MAX).values()
    answer.result(SECONDS_MAX)
    until(lambda: described(broker, ConfigResource.Type.TOPIC, topic)["segment.ms"].value == "5000")
    assert described(broker, ConfigResource.Type.TOPIC, topic)["retention.ms"].is_default


@pytest.mark.parametrize(
    ("setting", "value", "code"),
    [
        ("retention.mss", "1", KafkaError.INVALID_CONFIG),
        ("retention.ms", "soon", KafkaError.INVALID_CONFIG),
        ("cleanup.policy", "shred", KafkaError.INVALID_CONFIG),
        ("segment.ms", "0", KafkaError.INVALID_CONFIG),
    ],
)
def test_impossible_settings_are_refused(broker: Broker, setting: str, value: str, code: int) -> None:
    topic = make_topic(broker.bootstrap, unique("refused"))
    with pytest.raises(KafkaException) as failure:
        change(broker, ConfigResource.Type.TOPIC, topic, ("max.message.bytes", "5000", SET), (setting, value, SET))
    assert refusal(failure) == code
    assert described(broker, ConfigResource.Type.TOPIC, topic)["max.message.bytes"].is_default, "nothing of it is stored"


def test_a_topic_that_is_not_there_has_no_settings(broker: Broker) -> None:
    name = unique("nowhere")
    for ask in (
        lambda: described(broker, ConfigResource.Type.TOPIC, name),
        lambda: change(broker, ConfigResource.Type.TOPIC, name, ("retention.ms", "1000", SET)),
    ):
        with pytest.raises(KafkaException) as failure:
            ask()
        assert refusal(failure) == KafkaError.UNKNOWN_TOPIC_OR_PART


def test_a_node_tells_its_settings_and_takes_some_while_it_runs(broker: Broker) -> None:
    node = described(broker, ConfigResource.Type.BROKER, "1")
    assert (node["node.id"].value, node["node.id"].is_read_only) == ("1", True)
    with pytest.raises(KafkaException) as failure:
        change(broker, ConfigResource.Type.BROKER, "1", ("node.id", "2", SET))
    assert refusal(failure) == KafkaError.INVALID_REQUEST
    if broker.node is None:
        pytest.skip("only with a node of our own: Apache Kafka does not change num.partitions while it runs")
    change(broker, ConfigResource.Type.BROKER, "1", ("num.partitions", "3", SET))
    changed = described(broker, ConfigResource.Type.BROKER, "1")["num.partitions"]
    assert (changed.value, changed.source, changed.is_read_only) == ("3", ConfigSource.DYNAMIC_BROKER_CONFIG.value, False)
    topic = make_topic(broker.bootstrap, unique("three"), partitions=-1)
    assert partition_count(broker, topic) == 3
    change(broker, ConfigResource.Type.BROKER, "1", ("num.partitions", None, DELETE))


def test_a_smaller_bound_holds_for_the_next_record(broker: Broker) -> None:
    topic = make_topic(broker.bootstrap, unique("smaller"))
    produce_all(broker.bootstrap, topic, [{"value": bytes(2_000)}])
    change(broker, ConfigResource.Type.TOPIC, topic, ("max.message.bytes", "1000", SET))
    told: list[int] = []
    sender = producer(broker.bootstrap)
    sender.produce(topic, bytes(2_000), on_delivery=lambda error, _: told.append(error.code()))
    assert sender.flush(SECONDS_MAX) == 0
    assert told == [KafkaError.MSG_SIZE_TOO_LARGE]
    produce_all(broker.bootstrap, topic, [{"value": bytes(500)}])
    assert len(read_partition(broker.bootstrap, topic)) == 2


def test_a_topic_grows_under_a_producer(broker: Broker) -> None:
    topic = make_topic(broker.bootstrap, unique("grows"), partitions=2)
    (answer,) = admin(broker.bootstrap).create_partitions([NewPartitions(topic, 5)], request_timeout=SECONDS_MAX).values()
    answer.result(SECONDS_MAX)
    until(lambda: partition_count(broker, topic) == 5)
    produce_all(broker.bootstrap, topic, [{"value": b"v", "partition": partition} for partition in range(5)])
    assert [record.offset() for record in read_partition(broker.bootstrap, topic, 4)] == [0]
    for name, code in ((topic, KafkaError.INVALID_PARTITIONS), (unique("no"), KafkaError.UNKNOWN_TOPIC_OR_PART)):
        (answer,) = admin(broker.bootstrap).create_partitions([NewPartitions(name, 5)], request_timeout=SECONDS_MAX).values()
        with pytest.raises(KafkaException) as failure:
            answer.result(SECONDS_MAX)
        assert refusal(failure) == code


def test_records_are_deleted_up_to_an_offset(broker: Broker) -> None:
    topic = make_topic(broker.bootstrap, unique("trimmed"))
    produce_all(broker.bootstrap, topic, [{"value": b"%d" % number} for number in range(10)])
    where = TopicPartition(topic, 0, 4)
    (answer,) = admin(broker.bootstrap).delete_records([where], request_timeout=SECONDS_MAX).values()
    assert answer.result(SECONDS_MAX).low_watermark == 4
    assert watermarks(broker.bootstrap, topic) == (4, 10)
    assert [record.value() for record in read_partition(broker.bootstrap, topic)] == [b"%d" % number for number in range(4, 10)]
    (answer,) = admin(broker.bootstrap).delete_records([TopicPartition(topic, 0, 11)], request_timeout=SECONDS_MAX).values()
    with pytest.raises(KafkaException) as failure:
        answer.result(SECONDS_MAX)
    assert refusal(failure) == KafkaError.OFFSET_OUT_OF_RANGE


def test_a_reader_that_knows_its_epoch_goes_on(broker: Broker) -> None:
    """librdkafka asks where that epoch ended (OffsetForLeaderEpoch) before it fetches."""
    topic = make_topic(broker.bootstrap, unique("epochs"))
    produce_all(broker.bootstrap, topic, [{"value": b"%d" % number} for number in range(5)])
    with consumer(broker.bootstrap) as reader:
        reader.assign([TopicPartition(topic, 0, 2, leader_epoch=0)])
        assert [record.value() for record in poll_records(reader, 3)] == [b"2", b"3", b"4"]
