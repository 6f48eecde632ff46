"""Settings of groups (resource type GROUP): told, kept, bounded by what the nodes were told, and taken away again."""

import pytest
from broker.test_admin_configs import BROKER, DELETE, GROUP, SET, change, describe, metadata_end, resource, values
from broker.test_consumer_groups import Consumer, opened
from serving import Serving

from penstock.cluster.image import ClusterImage
from penstock.errors import ErrorCode
from penstock.settings import GROUP_SETTINGS, GroupConfig, NodeSettings
from penstock.settings.group import check_reset
from penstock.wire.api_keys import ApiKey

ALL_LOOPS = True

LOCK, LIMIT, SESSION = "share.record.lock.duration.ms", "share.delivery.count.limit", "share.session.timeout.ms"


async def test_a_group_is_told_something_before_it_is_there(serving: Serving) -> None:
    node = await serving.open(group_share_record_lock_ms=20_000)
    line = await serving.line()
    before = await values(line, GROUP, "g")
    assert set(before) == set(GROUP_SETTINGS)
    assert before[LOCK] == ("20000", 4) and before[LIMIT] == ("5", 5), "as the node has it for all groups"
    assert await change(line, resource(GROUP, "g", (LOCK, "40000"), ("share.isolation.level", "read_committed"))) == [0]
    assert node.image.group_configs == {"g": {LOCK: "40000", "share.isolation.level": "read_committed"}}
    (lock,) = (await describe(line, GROUP, "g", LOCK, include_synonyms=True)).configs
    assert (lock.value, lock.config_source, lock.read_only) == ("40000", 8, False)
    assert [(each.name, each.value, each.source) for each in lock.synonyms] == [
        (LOCK, "40000", 8), ("group.share.record.lock.duration.ms", "20000", 4), (LOCK, "30000", 5),
    ]  # fmt: skip
    assert (await values(line, GROUP, "other"))[LOCK] == ("20000", 4)
    listed = await line.ask(ApiKey.LIST_CONFIG_RESOURCES, 1, resource_types=[GROUP])
    assert [(each.resource_type, each.resource_name) for each in listed.config_resources] == [(GROUP, "g")]


async def test_what_a_group_was_told_outlives_the_node_and_is_taken_away(serving: Serving) -> None:
    await serving.open()
    line = await serving.line()
    assert await change(line, resource(GROUP, "g", (LIMIT, "7")), resource(GROUP, "h", (LIMIT, "8"))) == [0, 0]
    await serving.stop()
    node = await serving.open()
    assert node.image.group_configs == {"g": {LIMIT: "7"}, "h": {LIMIT: "8"}}
    again = ClusterImage()
    for record in node.image.snapshot():
        again.replay(record)
    assert again.group_configs == node.image.group_configs
    line = await serving.line()
    assert await change(line, resource(GROUP, "g", (LIMIT, None, DELETE))) == [0]
    assert await change(line, resource(GROUP, "h"), api=ApiKey.ALTER_CONFIGS) == [0], "the old way replaces everything"
    assert node.image.group_configs == {}


@pytest.mark.parametrize(
    ("name", "value", "code"),
    [
        ("share.wrong", "1", ErrorCode.INVALID_CONFIG),
        (LOCK, "soon", ErrorCode.INVALID_CONFIG),
        (LOCK, "14999", ErrorCode.INVALID_CONFIG),
        (LOCK, "60001", ErrorCode.INVALID_CONFIG),
        (LIMIT, "1", ErrorCode.INVALID_CONFIG),
        (LIMIT, "11", ErrorCode.INVALID_CONFIG),
        (SESSION, "5000", ErrorCode.INVALID_CONFIG),
        ("consumer.heartbeat.interval.ms", "45000", ErrorCode.INVALID_CONFIG),
        ("share.isolation.level", "none", ErrorCode.INVALID_CONFIG),
        ("share.isolation.level", "read_uncommitted", ErrorCode.INVALID_CONFIG),
        ("share.auto.offset.reset", "by_duration:-P1D", ErrorCode.INVALID_CONFIG),
        ("share.auto.offset.reset", "middle", ErrorCode.INVALID_CONFIG),
    ],
)
async def test_what_a_group_cannot_be_told_is_refused_and_nothing_is_stored(
    serving: Serving, name: str, value: str, code: ErrorCode
) -> None:
    node = await serving.open()
    line = await serving.line()
    end = metadata_end(node)
    assert await change(line, resource(GROUP, "g", ("share.renew.acknowledge.enable", "false"), (name, value))) == [code]
    assert (metadata_end(node), node.image.group_configs) == (end, {})


async def test_a_group_without_a_name_and_one_too_many_are_refused(serving: Serving) -> None:
    await serving.open(groups_max=1)
    line = await serving.line()
    assert await change(line, resource(GROUP, "", (LIMIT, "7"))) == [ErrorCode.INVALID_REQUEST]
    assert await change(line, resource(GROUP, "g", (LIMIT, "7"))) == [0]
    assert await change(line, resource(GROUP, "h", (LIMIT, "7"))) == [ErrorCode.POLICY_VIOLATION]
    assert await change(line, resource(GROUP, "g", (LIMIT, "8", SET))) == [0]


async def test_bounds_are_the_nodes_and_change_while_they_run(serving: Serving) -> None:
    await serving.open()
    line = await serving.line()
    assert await change(line, resource(BROKER, "", ("group.share.min.record.lock.duration.ms", "1000"))) == [0]
    assert await change(line, resource(GROUP, "g", (LOCK, "1000"))) == [0]


def test_what_holds_for_a_group() -> None:
    node = NodeSettings(group_share_deliveries=4, group_share_session_timeout_ms=50_000)
    assert GroupConfig.of(node, {}).share_delivery_count_limit == 4
    told = {LIMIT: "9", LOCK: "70000", "share.auto.offset.reset": "earliest", "share.newer": "x", "share.isolation.level": "newer"}
    config = GroupConfig.of(node, told)
    assert config.share_delivery_count_limit == 9 and config.share_session_timeout_ms == 50_000
    assert config.share_record_lock_duration_ms == 60_000, "it was taken when the bounds were wider"
    assert config.share_auto_offset_reset == "earliest" and config.share_isolation_level == "read_committed"


@pytest.mark.parametrize(
    ("text", "ms"),
    [
        ("earliest", None),
        ("latest", None),
        ("by_duration:PT10S", 10_000),
        ("by_duration:P1DT2H3M4.5S", 93_784_500),
        ("by_duration:p2d", 172_800_000),
    ],
)
def test_where_a_share_group_begins(text: str, ms: int | None) -> None:
    assert check_reset(text) == ms


@pytest.mark.parametrize("text", ["", "by_duration:", "by_duration:P", "by_duration:PT", "by_duration:P1DT", "by_duration:1D", "PT10S"])
def test_where_no_share_group_begins(text: str) -> None:
    with pytest.raises(ValueError, match=r"share\.auto\.offset\.reset must be"):
        check_reset(text)


async def test_a_consumer_group_goes_by_its_own_settings(serving: Serving) -> None:
    line = await opened(serving)
    consumer = Consumer(line, "me")
    assert (await consumer.join()).heartbeat_interval.total_seconds() == 5
    sooner = (("consumer.heartbeat.interval.ms", "700"), ("consumer.session.timeout.ms", "50000"))
    assert await change(line, resource(GROUP, "g", *sooner)) == [0]
    assert (await consumer.beat()).heartbeat_interval.total_seconds() == 0.7
    assert (await Consumer(line, "me", group="other").join()).heartbeat_interval.total_seconds() == 5
