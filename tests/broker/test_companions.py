"""A queue's ledger as clients see it: marked as the cluster's own, readable, and nobody's to change. And settings of queues."""

import pytest
from broker.test_admin_configs import BROKER, TOPIC, change, describe, resource, values
from serving import Line, Serving
from waiting import PATIENCE_MS

from penstock.broker.node import Node
from penstock.cluster.commands import MakeCompanion
from penstock.cluster.image import Topic
from penstock.cluster.records import CompanionMade
from penstock.errors import ErrorCode
from penstock.settings import KIB, TOPIC_SETTINGS, NodeSettings, TopicConfig, node_settings
from penstock.wire.api_keys import ApiKey
from penstock.wire.batches import Record, encode_batch

ALL_LOOPS = True


def ledger_of(node: Node, name: str = "q") -> Topic:
    found = node.image.companion_of(node.image.topics[name].topic_id)
    assert found is not None
    return found


async def queue(serving: Serving) -> tuple[Node, Line]:
    node = await serving.open()
    line = await serving.line()
    await line.create("q", 2, queue_enabled="true")
    return node, line


async def test_a_ledger_is_led_where_its_queue_is_and_outlives_the_node(serving: Serving) -> None:
    node, _ = await queue(serving)
    name = ledger_of(node).name
    for _ in range(2):
        for index in range(2):
            partition = node.partitions.find(name, index)
            assert partition is not None and partition.leader is not None and partition.is_internal
            assert not partition.config.is_compacted and partition.config.retention_ms == -1
        await serving.stop()
        node = await serving.open()


async def test_a_ledger_is_made_on_demand(serving: Serving) -> None:
    node = await serving.open()
    line = await serving.line()
    await line.create("plain")
    (made,) = await node.submit(MakeCompanion(node.image.topics["plain"].topic_id))
    assert isinstance(made, CompanionMade)
    assert node.leading(ledger_of(node, "plain").name, 0).leader is not None, "it can be used when the answer is there"


async def test_clients_see_that_it_is_the_clusters_own(serving: Serving) -> None:
    node, line = await queue(serving)
    name = ledger_of(node).name
    asked = await line.ask(ApiKey.METADATA, 12, topics=None, allow_auto_topic_creation=False, include_topic_authorized_operations=False)
    assert {topic.name: topic.is_internal for topic in asked.topics} == {"q": False, name: True}
    batch = bytes(encode_batch([Record(value=b"x", timestamp_ms=1)]))
    row = {"index": 0, "records": batch}
    body = {"acks": -1, "timeout_ms": PATIENCE_MS, "topic_data": [{"name": name, "partition_data": [row]}]}
    answer = await line.ask(ApiKey.PRODUCE, 9, **body)
    assert answer.responses[0].partition_responses[0].error_code == ErrorCode.INVALID_TOPIC_EXCEPTION


async def test_clients_cannot_change_it(serving: Serving) -> None:
    node, line = await queue(serving)
    name, no = ledger_of(node).name, ErrorCode.INVALID_TOPIC_EXCEPTION
    deleted = await line.ask(ApiKey.DELETE_TOPICS, 5, topic_names=[name], timeout_ms=PATIENCE_MS)
    wish = {"name": name, "count": 9, "assignments": None}
    grown = await line.ask(ApiKey.CREATE_PARTITIONS, topics=[wish], timeout_ms=PATIENCE_MS, validate_only=False)
    rows = [{"partition_index": 0, "replicas": [1]}]
    moved = await line.ask(ApiKey.ALTER_PARTITION_REASSIGNMENTS, timeout_ms=PATIENCE_MS, topics=[{"name": name, "partitions": rows}])
    offsets = [{"partition_index": 0, "offset": 0}]
    trimmed = await line.ask(ApiKey.DELETE_RECORDS, topics=[{"name": name, "partitions": offsets}], timeout_ms=PATIENCE_MS)
    assert deleted.responses[0].error_code == grown.results[0].error_code == moved.responses[0].partitions[0].error_code == no
    assert trimmed.topics[0].partitions[0].error_code != 0
    assert await change(line, resource(TOPIC, name, ("retention.ms", "1"))) == [no]
    made = await line.ask(ApiKey.METADATA, 12, topics=[{"name": name + "x"}], allow_auto_topic_creation=True)
    assert made.topics[0].error_code == no and name + "x" not in node.image.topics


async def test_it_goes_with_its_queue(serving: Serving) -> None:
    node, line = await queue(serving)
    name = ledger_of(node).name
    grow = [{"name": "q", "count": 3, "assignments": None}]
    await line.ask(ApiKey.CREATE_PARTITIONS, topics=grow, timeout_ms=PATIENCE_MS, validate_only=False)
    assert node.leading(name, 2).leader is not None
    await line.ask(ApiKey.DELETE_TOPICS, 5, topic_names=["q"], timeout_ms=PATIENCE_MS)
    assert node.image.topics == {} and node.partitions.find(name, 0) is None


# Settings of queues


async def test_settings_of_a_queue_are_told_and_changed(serving: Serving) -> None:
    node, line = await queue(serving)
    told = await values(line, TOPIC, "q")
    assert (told["queue.enabled"], told["queue.lease.ms"]) == (("true", 1), ("30000", 5))
    assert await change(line, resource(TOPIC, "q", ("queue.lease.ms", "5000"), ("queue.backoff.factor", "1.5"))) == [0]
    config = node.partitions.config_of(node.image.topics["q"])
    assert (config.queue_lease_ms, config.queue_backoff_factor) == (5_000, 1.5)
    held = node.leading("q", 0).config
    assert held.queue_lease_ms == 5_000, "what is open follows it"


async def test_a_long_text_of_a_queue_is_left_out_of_the_older_answers(serving: Serving) -> None:
    _, line = await queue(serving)
    text = "x" * (60 * KIB)
    answer = await line.ask(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, resources=[resource(TOPIC, "q", ("queue.sqs", text))], validate_only=False)
    assert answer.responses[0].error_code == 0
    for version in range(1, 5):
        (config,) = (await describe(line, TOPIC, "q", "queue.sqs", version=version, include_synonyms=True)).configs
        assert config.value == (text if version == 4 else None)
    too_long = resource(TOPIC, "q", ("queue.sqs", "x" * (64 * KIB + 1)))
    assert await change(line, too_long) == [ErrorCode.INVALID_CONFIG]


@pytest.mark.parametrize("name", [name for name, setting in TOPIC_SETTINGS.items() if setting.is_own])
async def test_what_is_a_queues_own_is_no_default_of_nodes(name: str, serving: Serving) -> None:
    value = TopicConfig().as_texts()[name] or "x"
    with pytest.raises(ValueError, match="told to each topic by itself"):
        node_settings({}, {name: value})
    await serving.open()
    line = await serving.line()
    assert await change(line, resource(BROKER, "", ("topic." + name, value))) == [ErrorCode.INVALID_CONFIG]
    assert "topic." + name not in await values(line, BROKER, "1")


@pytest.mark.parametrize("scope", [TopicConfig(), NodeSettings()])
def test_every_default_is_what_could_be_told(scope: TopicConfig | NodeSettings) -> None:
    told = scope.as_texts()
    if isinstance(scope, TopicConfig):
        assert scope.with_overrides(told) == scope
    else:
        assert node_settings(told) == scope
