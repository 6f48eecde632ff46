"""Apache Kafka's command-line tools, as operators type them: kafka-topics, kafka-configs, kafka-delete-records, kafka-log-dirs."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from system.conftest import Broker
from system.java_clients import Tool, kafka_tools
from system.librdkafka import produce_all, unique, watermarks

pytestmark = pytest.mark.needs("java")

TOPICS, CONFIGS = "org.apache.kafka.tools.TopicCommand", "kafka.admin.ConfigCommand"
DELETE_RECORDS, LOG_DIRS = "org.apache.kafka.tools.DeleteRecordsCommand", "org.apache.kafka.tools.LogDirsCommand"


@pytest.fixture(scope="module")
def tool(broker: Broker) -> Iterator[Tool]:
    with kafka_tools() as run:
        yield lambda program, *arguments: run(program, "--bootstrap-server", broker.bootstrap, *arguments)


def test_kafka_topics_makes_widens_and_describes_a_topic(tool: Tool) -> None:
    topic = unique("tools")
    tool(TOPICS, "--create", "--topic", topic, "--partitions", "2", "--config", "retention.ms=60000")
    tool(TOPICS, "--alter", "--topic", topic, "--partitions", "3")
    told = tool(TOPICS, "--describe", "--topic", topic)
    assert "PartitionCount: 3\tReplicationFactor: 1\tConfigs:" in told
    assert "retention.ms=60000" in told
    assert told.count("Leader: 1\tReplicas: 1\tIsr: 1") == 3


def test_kafka_configs_shows_and_changes_what_holds_for_topics_and_nodes(tool: Tool, broker: Broker) -> None:
    topic = unique("tools")
    tool(TOPICS, "--create", "--topic", topic)
    whose = ["--entity-type", "topics", "--entity-name", topic]
    tool(CONFIGS, "--alter", *whose, "--add-config", "segment.ms=5000,cleanup.policy=[compact,delete]")
    told = tool(CONFIGS, "--describe", *whose)
    assert "segment.ms=5000 sensitive=false synonyms={DYNAMIC_TOPIC_CONFIG:segment.ms=5000" in told
    assert "cleanup.policy=compact,delete" in told
    tool(CONFIGS, "--alter", *whose, "--delete-config", "segment.ms")
    assert "segment.ms" not in tool(CONFIGS, "--describe", *whose)
    everyone = ["--entity-type", "brokers", "--entity-default"]
    tool(CONFIGS, "--alter", *everyone, "--add-config", "producer.id.expiration.ms=70000000")
    assert "producer.id.expiration.ms=70000000" in tool(CONFIGS, "--describe", *everyone)
    assert "node.id=1" in tool(CONFIGS, "--describe", "--entity-type", "brokers", "--entity-name", "1", "--all")
    tool(CONFIGS, "--alter", *everyone, "--delete-config", "producer.id.expiration.ms")


def test_kafka_delete_records_and_kafka_log_dirs(tool: Tool, broker: Broker, tmp_path: Path) -> None:
    topic = unique("tools")
    tool(TOPICS, "--create", "--topic", topic)
    produce_all(broker.bootstrap, topic, [{"value": b"%d" % number} for number in range(5)])
    wish = tmp_path / "wish.json"
    wish.write_text(json.dumps({"version": 1, "partitions": [{"topic": topic, "partition": 0, "offset": 3}]}))
    assert "low_watermark: 3" in tool(DELETE_RECORDS, "--offset-json-file", str(wish))
    assert watermarks(broker.bootstrap, topic) == (3, 5)
    told = tool(LOG_DIRS, "--describe", "--topic-list", topic)
    (node,) = json.loads(told[told.index("{") :])["brokers"]
    (partition,) = node["logDirs"][0]["partitions"]
    assert (partition["partition"], partition["size"] > 0) == (f"{topic}-0", True)
