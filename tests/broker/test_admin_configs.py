"""DescribeConfigs, IncrementalAlterConfigs, AlterConfigs: what is told, from where it comes, and what is refused with nothing stored."""

from typing import Any

import pytest
from serving import Line, Serving

from penstock.broker.node import Node
from penstock.broker.quorum_entries import encode_decision
from penstock.cluster import records
from penstock.errors import ErrorCode
from penstock.settings import INHERITED_SETTINGS, NODE_SETTINGS, TOPIC_SETTINGS
from penstock.vocabulary import NodeId, TopicId
from penstock.wire.api_keys import ApiKey

ALL_LOOPS = True

TOPIC, BROKER, BROKER_LOGGER, CLIENT_METRICS, GROUP = 2, 4, 8, 16, 32
SET, DELETE, APPEND, SUBTRACT = 0, 1, 2, 3


async def describe(line: Line, kind: int, name: str, *keys: str, version: int = 4, **options: Any) -> Any:
    wish = {"resource_type": kind, "resource_name": name, "configuration_keys": list(keys) or None}
    answer = await line.ask(ApiKey.DESCRIBE_CONFIGS, version, resources=[wish], **options)
    (result,) = answer.results
    assert (result.resource_type, result.resource_name) == (kind, name), "what was asked for is echoed"
    return result


async def values(line: Line, kind: int, name: str, *keys: str) -> dict[str, tuple[str | None, int]]:
    """Value and source by name."""
    result = await describe(line, kind, name, *keys)
    assert result.error_code == 0, result.error_message
    return {config.name: (config.value, config.config_source) for config in result.configs}


def resource(kind: int, name: str, *changes: tuple[Any, ...]) -> dict[str, Any]:
    rows = [{"name": change[0], "value": change[1], "config_operation": change[2] if len(change) > 2 else SET} for change in changes]
    return {"resource_type": kind, "resource_name": name, "configs": rows}


async def change(
    line: Line, *resources: dict[str, Any], api: ApiKey = ApiKey.INCREMENTAL_ALTER_CONFIGS, is_trial: bool = False
) -> list[int]:
    answer = await line.ask(api, resources=list(resources), validate_only=is_trial)
    echoed = [(row.resource_type, row.resource_name) for row in answer.responses]
    assert echoed == [(each["resource_type"], each["resource_name"]) for each in resources]
    for row in answer.responses:
        assert (row.error_message is None) == (row.error_code == 0), "a no says why"
    return [row.error_code for row in answer.responses]


def metadata_end(node: Node) -> int:
    return node.quorum.end


# Describing


async def test_a_value_that_was_taken_can_be_told_in_every_version(serving: Serving) -> None:
    await serving.open()
    line = await serving.line()
    await line.create("a")
    assert await change(line, resource(TOPIC, "a", ("preallocate", "ß" * 16_000))) == [0]
    for version in range(1, 5):
        (config,) = (await describe(line, TOPIC, "a", "preallocate", version=version, include_synonyms=True)).configs
        assert config.value == "ß" * 16_000


async def test_a_long_reason_fits_the_oldest_answer(serving: Serving) -> None:
    await serving.open()
    line = await serving.line()
    await line.create("a")
    wish = resource(TOPIC, "a", ("retention.ms", "\1" * 30_000))
    for api in (ApiKey.ALTER_CONFIGS, ApiKey.INCREMENTAL_ALTER_CONFIGS):
        (row,) = (await line.ask(api, 0, resources=[wish], validate_only=False)).responses
        assert row.error_code == ErrorCode.INVALID_CONFIG


@pytest.mark.parametrize("version", range(1, 5))
async def test_a_topic_tells_every_setting_with_its_value_and_source(serving: Serving, version: int) -> None:
    await serving.open(topic_defaults={"retention.ms": "5000"})
    line = await serving.line()
    await line.create("a", flush="os", preallocate="true")
    result = await describe(line, TOPIC, "a", version=version)
    told = {config.name: config for config in result.configs}
    assert set(TOPIC_SETTINGS) | {"preallocate"} == set(told)
    assert (told["flush"].value, told["flush"].config_source) == ("os", 1)
    assert (told["retention.ms"].value, told["retention.ms"].config_source) == ("5000", 4)
    assert (told["segment.bytes"].value, told["segment.bytes"].config_source) == (str(1 << 30), 5)
    assert (told["preallocate"].value, told["preallocate"].config_source) == ("true", 1), "kept for the tool that set it"
    assert not any(config.read_only or config.is_sensitive for config in result.configs)
    assert all(1 <= config.config_source <= 5 for config in result.configs), "clients refuse other numbers"


async def test_types_and_reasons_are_told_to_those_who_ask(serving: Serving) -> None:
    await serving.open()
    line = await serving.line()
    await line.create("a")
    asked = await describe(line, TOPIC, "a", include_documentation=True)
    types = {config.name: config.config_type for config in asked.configs}
    assert types["cleanup.policy"] == 7, "a list"
    assert (types["retention.ms"], types["segment.bytes"], types["flush"]) == (5, 3, 2)
    assert {config.name: config.documentation for config in asked.configs} == {name: each.reason for name, each in TOPIC_SETTINGS.items()}
    assert all(config.documentation is None for config in (await describe(line, TOPIC, "a")).configs)
    node = {config.name: config.config_type for config in (await describe(line, BROKER, "1")).configs}
    assert (node["auto.create.topics.enable"], node["num.partitions"], node["fetch.max.bytes"], node["memory.bytes.max"]) == (1, 3, 3, 5)


async def test_synonyms_are_every_layer_from_the_strongest_to_the_default(serving: Serving) -> None:
    await serving.open(topic_defaults={"retention.ms": "4"})
    line = await serving.line()
    await line.create("a", retention_ms=1)
    own = "topic.retention.ms"
    assert await change(line, resource(BROKER, "1", (own, "2")), resource(BROKER, "", (own, "3"))) == [0, 0]
    (config,) = (await describe(line, TOPIC, "a", "retention.ms", include_synonyms=True)).configs
    default = str(TOPIC_SETTINGS["retention.ms"].default)
    assert [(each.name, each.value, each.source) for each in config.synonyms] == [
        ("retention.ms", "1", 1), (own, "2", 2), (own, "3", 3), (own, "4", 4), ("retention.ms", default, 5),
    ]  # fmt: skip
    assert (await describe(line, TOPIC, "a", "retention.ms")).configs[0].synonyms == ()


async def test_a_node_tells_all_its_settings_and_which_of_them_it_takes_while_it_runs(serving: Serving) -> None:
    await serving.open(num_partitions=7)
    line = await serving.line()
    result = await describe(line, BROKER, "1")
    told = {config.name: config for config in result.configs}
    assert set(NODE_SETTINGS) | set(INHERITED_SETTINGS) == set(told)
    assert (told["num.partitions"].value, told["num.partitions"].config_source) == ("7", 4)
    assert (told["connections.max"].value, told["connections.max"].config_source) == ("10000", 5)
    assert {name for name, each in NODE_SETTINGS.items() if not each.is_dynamic} == {name for name in told if told[name].read_only}
    assert "node.id" in NODE_SETTINGS and told["node.id"].read_only and not told["topic.retention.ms"].read_only


async def test_single_names_are_told_alone_and_unknown_ones_left_out(serving: Serving) -> None:
    await serving.open()
    line = await serving.line()
    await line.create("a")
    assert list(await values(line, TOPIC, "a", "flush", "no.such.setting", "retention.ms")) == ["flush", "retention.ms"]
    (result,) = (
        await line.ask(ApiKey.DESCRIBE_CONFIGS, resources=[{"resource_type": TOPIC, "resource_name": "a", "configuration_keys": []}])
    ).results
    assert len(result.configs) == len(TOPIC_SETTINGS), "none named means all, as at Kafka"


@pytest.mark.parametrize(
    ("kind", "name", "code"),
    [
        (TOPIC, "none", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (TOPIC, "bad/name", ErrorCode.INVALID_TOPIC_EXCEPTION),
        (TOPIC, "", ErrorCode.INVALID_TOPIC_EXCEPTION),
        (BROKER, "2", ErrorCode.INVALID_REQUEST),
        (BROKER, "one", ErrorCode.INVALID_REQUEST),
        (BROKER_LOGGER, "1", ErrorCode.INVALID_REQUEST),
        (CLIENT_METRICS, "", ErrorCode.INVALID_REQUEST),
        (GROUP, "", ErrorCode.INVALID_REQUEST),
        (0, "x", ErrorCode.INVALID_REQUEST),
        (99, "x", ErrorCode.INVALID_REQUEST),
    ],
)
async def test_what_cannot_be_described_is_refused_by_its_code(serving: Serving, kind: int, name: str, code: ErrorCode) -> None:
    await serving.open()
    line = await serving.line()
    result = await describe(line, kind, name)
    assert (result.error_code, result.configs) == (code, ())
    assert result.error_message


async def test_client_metrics_have_no_settings_and_that_is_no_error(serving: Serving) -> None:
    """kafka-configs describes every subscription that it sees; one refusal would end it."""
    await serving.open()
    line = await serving.line()
    result = await describe(line, CLIENT_METRICS, "g")
    assert (result.error_code, result.error_message, result.configs) == (ErrorCode.NONE, None, ())


async def test_all_of_a_hundred_topics_are_described_in_one_request(serving: Serving) -> None:
    """As kafka-topics does; so many are encoded away from the loop."""
    await serving.open()
    line = await serving.line()
    names = [f"t{n}" for n in range(100)]
    for name in names:
        await line.create(name)
    wishes = [{"resource_type": TOPIC, "resource_name": name, "configuration_keys": None} for name in names]
    answer = await line.ask(ApiKey.DESCRIBE_CONFIGS, resources=wishes)
    assert [(result.resource_name, len(result.configs)) for result in answer.results] == [(name, len(TOPIC_SETTINGS)) for name in names]


# Altering


async def test_settings_are_set_deleted_and_kept_across_a_restart(serving: Serving) -> None:
    await serving.open()
    line = await serving.line()
    await line.create("a", flush="os")
    assert await change(line, resource(TOPIC, "a", ("retention.ms", "1000"), ("flush", None, DELETE), ("segment.ms", None, DELETE))) == [0]
    assert await change(line, resource(BROKER, "", ("num.partitions", "4")), resource(BROKER, "1", ("topic.segment.ms", "70000"))) == [0, 0]
    expected = {"retention.ms": ("1000", 1), "segment.ms": ("70000", 2)}
    assert await values(line, TOPIC, "a", *expected) == expected
    for end in (serving.stop, serving.crash):
        await end()
        await serving.open()
        line = await serving.line()
        assert await values(line, TOPIC, "a", *expected) == expected
        assert await values(line, BROKER, "", "num.partitions") == {"num.partitions": ("4", 3)}
        assert await values(line, BROKER, "1", "num.partitions") == {"num.partitions": ("4", 3)}
        await line.create(f"made-{end.__name__}", -1)
        assert len(serving.node.image.topics[f"made-{end.__name__}"].partitions) == 4


async def test_what_another_version_took_is_passed_over_and_can_be_taken_away(serving: Serving) -> None:
    node = await serving.open()
    line = await serving.line()
    topic_id = TopicId(await line.create("a"))
    told = records.TopicConfigured(topic_id, {"retention.ms": "7000", "flush": "by the moon", "tides": "1"})
    made = encode_decision([told, records.NodeConfigured(NodeId(1), {"num.partitions": "4", "tides": "1"})])
    await node.quorum._commit(made)
    for _ in range(2):
        partition = serving.node.partitions.find("a", 0)
        assert partition is not None
        assert (partition.config.retention_ms, partition.config.flush, serving.node.settings.num_partitions) == (7_000, "ack", 4)
        await serving.stop()
        await serving.open()
    line = await serving.line()
    assert await change(line, resource(TOPIC, "a", ("segment.ms", "9"))) == [ErrorCode.INVALID_CONFIG]
    gone = [("flush", None, DELETE), ("tides", None, DELETE)]
    assert await change(line, resource(TOPIC, "a", *gone), resource(BROKER, "1", ("tides", None, DELETE))) == [0, 0]
    assert await change(line, resource(TOPIC, "a", ("segment.ms", "9"))) == [0]


async def test_lists_can_be_added_to_and_taken_from(serving: Serving) -> None:
    await serving.open()
    line = await serving.line()
    await line.create("a")
    assert await change(line, resource(TOPIC, "a", ("cleanup.policy", "compact", APPEND))) == [0]
    assert (await values(line, TOPIC, "a", "cleanup.policy"))["cleanup.policy"] == ("delete,compact", 1)
    assert await change(line, resource(TOPIC, "a", ("cleanup.policy", "delete,compact", APPEND))) == [0]
    assert await change(line, resource(TOPIC, "a", ("cleanup.policy", "delete", SUBTRACT))) == [0]
    assert (await values(line, TOPIC, "a", "cleanup.policy"))["cleanup.policy"] == ("compact", 1)
    throttled = "leader.replication.throttled.replicas"
    assert await change(line, resource(TOPIC, "a", (throttled, "0:1", APPEND))) == [0]
    assert await change(line, resource(TOPIC, "a", (throttled, "1:1", APPEND))) == [0]
    assert (await values(line, TOPIC, "a", throttled))[throttled] == ("0:1,1:1", 1)
    assert await change(line, resource(BROKER, "1", ("topic.cleanup.policy", "compact", APPEND))) == [0]
    assert (await values(line, BROKER, "1", "topic.cleanup.policy"))["topic.cleanup.policy"] == ("delete,compact", 2)
    no = ErrorCode.INVALID_CONFIG
    assert await change(line, resource(TOPIC, "a", ("retention.ms", "5", APPEND)), resource(TOPIC, "a2")) == [no, 3]
    assert await change(line, resource(TOPIC, "a", ("cleanup.policy", "compact", SUBTRACT))) == [no], "no policy is no policy"


async def test_altering_all_at_once_puts_the_rest_back_to_its_default(serving: Serving) -> None:
    await serving.open()
    line = await serving.line()
    await line.create("a", flush="os", retention_ms=1000)
    assert await change(line, resource(TOPIC, "a", ("segment.ms", "7")), api=ApiKey.ALTER_CONFIGS) == [0]
    assert serving.node.image.topics["a"].overrides == {"segment.ms": "7"}
    await change(line, resource(BROKER, "1", ("num.partitions", "4")))
    assert await change(line, resource(BROKER, "1", ("partitions.max", "9")), api=ApiKey.ALTER_CONFIGS) == [0]
    assert serving.node.image.node_overrides == {1: {"partitions.max": "9"}}
    assert await change(line, resource(BROKER, "1"), resource(TOPIC, "a"), api=ApiKey.ALTER_CONFIGS) == [0, 0]
    assert (serving.node.image.topics["a"].overrides, serving.node.image.node_overrides) == ({}, {})


REFUSED = [
    (resource(TOPIC, "a", ("retention.mss", "1")), ErrorCode.INVALID_CONFIG),
    (resource(TOPIC, "a", ("retention.ms", "soon")), ErrorCode.INVALID_CONFIG),
    (resource(TOPIC, "a", ("retention.ms", "-2")), ErrorCode.INVALID_CONFIG),
    (resource(TOPIC, "a", ("flush", "never")), ErrorCode.INVALID_CONFIG),
    (resource(TOPIC, "a", ("retention.ms", "1"), ("segment.ms", "0")), ErrorCode.INVALID_CONFIG),
    (resource(TOPIC, "a", ("preallocate", "x" * 40_000)), ErrorCode.INVALID_CONFIG),
    (resource(TOPIC, "a", ("preallocate", "ß" * 20_000)), ErrorCode.INVALID_CONFIG),
    (resource(TOPIC, "a", ("x" * 40_000, "1")), ErrorCode.INVALID_CONFIG),
    (resource(TOPIC, "a", ("retention.ms", "\1" * 30_000)), ErrorCode.INVALID_CONFIG),
    (resource(TOPIC, "a", ("retention.ms", None)), ErrorCode.INVALID_REQUEST),
    (resource(TOPIC, "a", ("retention.ms", "1"), ("retention.ms", "2")), ErrorCode.INVALID_REQUEST),
    (resource(TOPIC, "none", ("retention.ms", "1")), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    (resource(TOPIC, "none", ("retention.mss", "1")), ErrorCode.INVALID_CONFIG),
    (resource(TOPIC, "bad/name", ("retention.ms", "1")), ErrorCode.INVALID_TOPIC_EXCEPTION),
    (resource(TOPIC, "", ("retention.ms", "1")), ErrorCode.INVALID_REQUEST),
    (resource(BROKER, "1", ("node.id", "2")), ErrorCode.INVALID_REQUEST),
    (resource(BROKER, "1", ("num.partitions", "0")), ErrorCode.INVALID_REQUEST),
    (resource(BROKER, "1", ("topic.flush", "never")), ErrorCode.INVALID_REQUEST),
    (resource(BROKER, "1", ("topic.flush", "interval")), ErrorCode.INVALID_CONFIG),
    (resource(BROKER, "", ("memory.bytes.max", "1")), ErrorCode.INVALID_REQUEST),
    (resource(BROKER, "1", ("log.retention.hours", "1")), ErrorCode.INVALID_CONFIG),
    (resource(BROKER, "2", ("num.partitions", "2")), ErrorCode.INVALID_REQUEST),
    (resource(BROKER, "x", ("num.partitions", "2")), ErrorCode.INVALID_REQUEST),
    (resource(BROKER_LOGGER, "1", ("root", "DEBUG")), ErrorCode.INVALID_REQUEST),
    (resource(CLIENT_METRICS, "g", ("x", "1")), ErrorCode.INVALID_REQUEST),
    (resource(77, "g", ("x", "1")), ErrorCode.INVALID_REQUEST),
]


@pytest.mark.invariant("node.admin-changes-durable")
@pytest.mark.parametrize(("asked", "code"), REFUSED, ids=lambda each: None if isinstance(each, dict) else each.name)
@pytest.mark.parametrize("api", [ApiKey.INCREMENTAL_ALTER_CONFIGS, ApiKey.ALTER_CONFIGS], ids=lambda api: api.name)
async def test_what_cannot_be_is_refused_by_its_code_and_nothing_is_stored(
    serving: Serving, api: ApiKey, asked: dict[str, Any], code: ErrorCode
) -> None:
    node = await serving.open()
    line = await serving.line()
    await line.create("a", segment_ms=9)
    end = metadata_end(node)
    assert await change(line, asked, api=api) == [code]
    assert (metadata_end(node), node.image.topics["a"].overrides, node.image.node_overrides) == (end, {"segment.ms": "9"}, {})


async def test_each_resource_stands_by_itself_and_none_is_named_twice(serving: Serving) -> None:
    await serving.open()
    line = await serving.line()
    await line.create("a")
    await line.create("b")
    good, bad = resource(TOPIC, "a", ("retention.ms", "1")), resource(TOPIC, "b", ("retention.ms", "x"))
    assert await change(line, bad, good) == [ErrorCode.INVALID_CONFIG, 0]
    assert (serving.node.image.topics["a"].overrides, serving.node.image.topics["b"].overrides) == ({"retention.ms": "1"}, {})
    twice = resource(TOPIC, "b", ("retention.ms", "5"))
    no = ErrorCode.INVALID_REQUEST
    assert await change(line, twice, good, twice) == [no, 0, no]
    assert serving.node.image.topics["b"].overrides == {}
    assert await change(line, resource(TOPIC, "b", ("retention.ms", "5", 9))) == [no], "there is no such operation"


async def test_a_trial_says_the_same_and_stores_nothing(serving: Serving) -> None:
    node = await serving.open()
    line = await serving.line()
    await line.create("a")
    end = metadata_end(node)
    asked = [resource(TOPIC, name, ("retention.ms", "1")) for name in ("a", "a2")]
    assert await change(line, *asked, resource(BROKER, "1", ("node.id", "2")), is_trial=True) == [0, 3, ErrorCode.INVALID_REQUEST]
    assert (metadata_end(node), node.image.topics["a"].overrides) == (end, {})
    assert await change(line, resource(TOPIC, "a", ("retention.ms", "1"))) == [0]
    end = metadata_end(node)
    assert await change(line, resource(TOPIC, "a", ("retention.ms", "1"))) == [0]
    assert metadata_end(node) == end, "what holds already is not written again"
