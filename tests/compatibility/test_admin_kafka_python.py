"""kafka-python's admin client (the newest versions of nearly every admin API) through the admin APIs. PENSTOCK_PEER: Kafka too."""

from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest
from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, TopicPartition
from kafka.admin import ConfigResource, ConfigResourceType, NewTopic
from kafka.errors import InvalidPartitionsError, OffsetOutOfRangeError, UnknownTopicOrPartitionError
from system.conftest import Broker
from system.librdkafka import unique
from waiting import PATIENCE_S, until


@pytest.fixture(scope="module")
def admin(broker: Broker) -> Iterator[KafkaAdminClient]:
    with closing(KafkaAdminClient(bootstrap_servers=broker.bootstrap)) as client:
        yield client


def make_topic(admin: KafkaAdminClient, partitions: int = 1, **config: str) -> str:
    name = unique("kp")
    settings = {key.replace("_", "."): value for key, value in config.items()}
    admin.create_topics([NewTopic(name, num_partitions=partitions, replication_factor=1, topic_configs=settings)])
    return name


def settings_of(admin: KafkaAdminClient, kind: str, name: str, chosen: str = "all") -> dict[str, Any]:
    told = admin.describe_configs([ConfigResource(kind, name)], include_synonyms=True, config_filter=chosen)
    return dict(told[kind][name])


def produce(broker: Broker, topic: str, *values: bytes, partition: int = 0, **config: Any) -> None:
    with closing(KafkaProducer(bootstrap_servers=broker.bootstrap, **config)) as producer:
        for answer in [producer.send(topic, value, partition=partition) for value in values]:
            answer.get(PATIENCE_S)


def test_settings_of_a_topic_are_told_changed_and_reset(admin: KafkaAdminClient) -> None:
    topic = make_topic(admin, retention_ms="60000")
    told = settings_of(admin, "topic", topic)
    assert (told["retention.ms"]["value"], told["retention.ms"]["config_source"]) == ("60000", "DYNAMIC_TOPIC_CONFIG")
    assert (told["retention.ms"]["config_type"], told["cleanup.policy"]["config_type"]) == ("LONG", "LIST")
    assert told["retention.ms"]["synonyms"][0]["source"] == "DYNAMIC_TOPIC_CONFIG"
    assert [each["source"] for each in told["segment.bytes"]["synonyms"]] == ["DEFAULT_CONFIG"]
    assert set(settings_of(admin, "topic", topic, "modified")) == {"retention.ms"}
    changes = {"segment.ms": "5000", "cleanup.policy": ("APPEND", "compact")}
    assert admin.alter_configs([ConfigResource("topic", topic, changes)]) == {"topic": {topic: "OK"}}
    until(lambda: len(settings_of(admin, "topic", topic, "modified")) == 3)
    after = settings_of(admin, "topic", topic, "modified")
    assert {name: each["value"] for name, each in after.items()} == {
        "retention.ms": "60000", "segment.ms": "5000", "cleanup.policy": "delete,compact",
    }  # fmt: skip
    admin.reset_configs([ConfigResource("topic", topic, ["segment.ms", "cleanup.policy"])])
    until(lambda: set(settings_of(admin, "topic", topic, "modified")) == {"retention.ms"})


def test_the_old_way_replaces_what_it_knows_of(admin: KafkaAdminClient) -> None:
    topic = make_topic(admin, retention_ms="60000")
    admin.alter_configs([ConfigResource("topic", topic, {"segment.ms": "5000"})], incremental=False)
    until(lambda: set(settings_of(admin, "topic", topic, "modified")) == {"retention.ms", "segment.ms"})  # It sends what it found along.


def test_what_cannot_be_is_answered_for_each_resource(admin: KafkaAdminClient) -> None:
    topic = make_topic(admin)
    wishes = [ConfigResource("topic", topic, {"retention.ms": "soon"}), ConfigResource("topic", "kp-nowhere", {"retention.ms": "1000"})]
    outcome = admin.alter_configs(wishes, raise_on_unknown=False)["topic"]
    assert "InvalidConfiguration" in outcome[topic] or "40" in outcome[topic]
    assert outcome["kp-nowhere"] != "OK"
    with pytest.raises(ValueError, match=r"no\.such\.setting"):
        admin.alter_configs([ConfigResource("topic", topic, {"no.such.setting": "1"})])


def test_a_node_tells_its_settings(admin: KafkaAdminClient) -> None:
    told = settings_of(admin, "broker", "1")
    assert (told["node.id"]["value"], told["node.id"]["read_only"]) == ("1", True)
    assert "node.id" not in settings_of(admin, "broker", "1", "dynamic")


def test_what_can_be_configured_is_listed(admin: KafkaAdminClient) -> None:
    topic = make_topic(admin)
    listed = admin.list_config_resources([ConfigResourceType.TOPIC, "broker"])
    assert topic in listed["topic"]
    assert listed["broker"] == ["1"]


def test_a_topic_grows(broker: Broker, admin: KafkaAdminClient) -> None:
    topic = make_topic(admin, partitions=2)
    admin.create_partitions({topic: 4})
    until(lambda: len(admin.describe_topics([topic])[0]["partitions"]) == 4)
    produce(broker, topic, b"v", partition=3)
    with pytest.raises(InvalidPartitionsError):
        admin.create_partitions({topic: 4})
    with pytest.raises(UnknownTopicOrPartitionError):
        admin.create_partitions({"kp-nowhere": 4})


def test_topics_are_described_in_pieces(admin: KafkaAdminClient) -> None:
    names = sorted(make_topic(admin, partitions=3) for _ in range(2))
    until(lambda: all(topic["partitions"] for topic in admin.describe_topic_partitions(names)["topics"]))
    first = admin.describe_topic_partitions(names, response_partition_limit=4)
    assert [(topic["name"], len(topic["partitions"])) for topic in first["topics"]] == [(names[0], 3), (names[1], 1)]
    rest = admin.describe_topic_partitions(names, cursor=first["next_cursor"])
    assert [[each["partition_index"] for each in topic["partitions"]] for topic in rest["topics"]] == [[1, 2]]
    assert rest["next_cursor"] is None


def test_records_are_deleted_up_to_an_offset(broker: Broker, admin: KafkaAdminClient) -> None:
    topic = make_topic(admin)
    produce(broker, topic, *(b"%d" % number for number in range(6)))
    where = TopicPartition(topic, 0)
    assert admin.delete_records({where: 4})[where]["low_watermark"] == 4
    with closing(KafkaConsumer(bootstrap_servers=broker.bootstrap, group_id=None)) as consumer:
        assert consumer.beginning_offsets([where]) == {where: 4}
    with pytest.raises(OffsetOutOfRangeError):
        admin.delete_records({where: 99})


def test_directories_producers_and_reassignments_are_told(broker: Broker, admin: KafkaAdminClient) -> None:
    topic = make_topic(admin)
    produce(broker, topic, b"v", enable_idempotence=True)
    (node,) = admin.describe_log_dirs({topic: [0]})
    (directory,) = node["log_dirs"]
    (told,) = directory["topics"]
    assert (directory["error_code"], told["name"], told["partitions"][0]["partition_size"] > 0) == (0, topic, True)
    where = TopicPartition(topic, 0)
    state = admin.describe_producers([where])[where]
    assert len(getattr(state, "active_producers", state)) == 1
    assert admin.list_partition_reassignments() == {}
