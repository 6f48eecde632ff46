"""Changed settings take hold while the node runs: in the logs that are open, for the producers that wait, for the segments that are old."""

import asyncio
from typing import Any

import pytest
from serving import Line, Serving, batch, produce_body, records_in, rows_of, started, virtually
from waiting import until_async

from penstock.errors import ErrorCode
from penstock.simulator.env import SimEnv
from penstock.simulator.world import World
from penstock.wire.api_keys import ApiKey
from penstock.wire.batches import Record, encode_batch

ALL_LOOPS = True

pytestmark = pytest.mark.invariant("node.admin-changes-durable")

TOPIC, BROKER = 2, 4


async def tell(line: Line, kind: int, name: str, **settings: object) -> None:
    """`flush_ms=5` means the setting `flush.ms`; None takes the override away."""
    configs = [
        {"name": setting.replace("_", "."), "value": None if value is None else str(value), "config_operation": int(value is None)}
        for setting, value in settings.items()
    ]
    wish = {"resource_type": kind, "resource_name": name, "configs": configs}
    (row,) = (await line.ask(ApiKey.INCREMENTAL_ALTER_CONFIGS, resources=[wish])).responses
    assert row.error_code == 0, row.error_message


async def test_what_a_topic_takes_changes_with_the_next_batch(serving: Serving) -> None:
    await serving.open()
    line = await serving.line()
    await line.create("a")
    assert (await line.produce("a", bytes(500))).error_code == 0
    await tell(line, TOPIC, "a", max_message_bytes=200)
    assert (await line.produce("a", bytes(500))).error_code == ErrorCode.MESSAGE_TOO_LARGE
    await tell(line, TOPIC, "a", max_message_bytes=None, cleanup_policy="compact")
    row = await line.produce("a", b"no key")
    assert row.error_code == ErrorCode.INVALID_RECORD
    await tell(line, TOPIC, "a", cleanup_policy="delete", message_timestamp_before_max_ms=1_000)
    assert (await line.produce("a", b"old")).error_code == ErrorCode.INVALID_TIMESTAMP
    await tell(line, TOPIC, "a", message_timestamp_type="LogAppendTime")
    row = await line.produce("a", b"stamped")
    assert (row.error_code, row.log_append_time is not None) == (0, True), "and the producer is told which time"


async def test_segments_roll_at_the_new_size(serving: Serving) -> None:
    await serving.open()
    line = await serving.line()
    await line.create("a")
    await tell(line, TOPIC, "a", segment_bytes=1_024)
    for _ in range(5):
        await line.produce("a", bytes(900))
    partition = serving.node.partitions.find("a", 0)
    assert partition is not None
    assert len(partition.log._shelf.segments) == 5


async def test_a_topic_that_becomes_safe_is_flushed_and_answers_after_the_flush_from_then_on(serving: Serving) -> None:
    node = await serving.open()
    line, other = await serving.line(), await serving.line()
    await line.create("a", flush="os")
    partition = node.partitions.find("a", 0)
    assert partition is not None
    await line.produce("a", b"1")
    assert partition.log.flushed_end == 0
    await tell(line, TOPIC, "a", flush="ack")
    await until_async(lambda: partition.log.flushed_end == 1)
    serving.env.disk.flushes.hold()
    other.send(ApiKey.PRODUCE, **produce_body({"a": {0: batch(b"2")}}))
    assert await other.is_silent(), "nothing is acknowledged before it is flushed"
    assert partition.high_watermark == 1
    serving.env.disk.flushes.let_go()
    assert (await other.receive()).responses[0].partition_responses[0].error_code == 0


async def test_a_topic_that_promises_less_answers_at_once_and_leaves_nobody_waiting(serving: Serving) -> None:
    node = await serving.open()
    line, other = await serving.line(), await serving.line()
    await line.create("a")
    serving.env.disk.flushes.hold()
    line.send(ApiKey.PRODUCE, **produce_body({"a": {0: batch(b"1")}}))
    await until_async(lambda: node.metrics.batches_in == 1)
    other.send(ApiKey.INCREMENTAL_ALTER_CONFIGS, resources=[
        {"resource_type": TOPIC, "resource_name": "a", "configs": [{"name": "flush", "value": "os", "config_operation": 0}]},
    ])  # fmt: skip
    assert await other.is_silent(), "the change itself must be durable before it holds"
    serving.env.disk.flushes.let_go()
    assert (await other.receive()).responses[0].error_code == 0
    assert (await line.receive()).responses[0].partition_responses[0].error_code == 0
    serving.env.disk.flushes.hold()
    assert (await line.produce("a", b"2")).error_code == 0


def test_a_shorter_retention_drops_old_segments_within_seconds() -> None:
    async def scenario(world: World, env: SimEnv) -> None:
        _, address = await started(env, retention_check_ms=3_600_000)
        line = await Line.open(address)
        await line.create("a", segment_bytes=1_024)
        await line.create("b", segment_bytes=1_024)
        for topic in ("a", "b"):
            for _ in range(4):
                await line.produce_batch(topic, batch(bytes(900), timestamp_ms=env.wall_ms()))
        await asyncio.sleep(60)
        await tell(line, TOPIC, "a", retention_ms=10_000)
        await asyncio.sleep(3)
        assert await earliest(line, "a") == 4
        assert await earliest(line, "b") == 0
        await tell(line, BROKER, "", **{"topic_retention_ms": 10_000})
        await asyncio.sleep(3)
        assert await earliest(line, "b") == 4, "what topics start from holds for those that are there too"

    virtually(scenario)


def test_a_nodes_own_settings_hold_at_once() -> None:
    async def scenario(world: World, env: SimEnv) -> None:
        node, address = await started(env)
        line = await Line.open(address)
        await tell(line, BROKER, "1", num_partitions=3, partitions_max=4, auto_create_topics_enable="false", connections_max_idle_ms=5_000)
        await line.create("a", -1)
        assert len(node.image.topics["a"].partitions) == 3
        wish = {"name": "b", "num_partitions": 2, "replication_factor": 1}
        assert (await line.ask(ApiKey.CREATE_TOPICS, topics=[wish])).topics[0].error_code == ErrorCode.POLICY_VIOLATION
        answer = await line.ask(ApiKey.METADATA, topics=[{"name": "c"}], allow_auto_topic_creation=True)
        assert answer.topics[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        await asyncio.sleep(10)
        assert len(node.connections) == 0
        again = await Line.open(address)
        await tell(again, BROKER, "1", auto_create_topics_enable=None, partitions_max=None)
        await tell(again, BROKER, "", num_partitions=2)
        answer = await again.ask(ApiKey.METADATA, topics=[{"name": "c"}], allow_auto_topic_creation=True)
        assert len(node.image.topics["c"].partitions) == 3, "a node's own word outranks what every node was told"
        await tell(again, BROKER, "1", num_partitions=None)
        await again.create("d", -1)
        assert len(node.image.topics["d"].partitions) == 2

    virtually(scenario)


async def test_no_room_is_needed_where_less_is_demanded(serving: Serving) -> None:
    await serving.open()
    line = await serving.line()
    await line.create("a")
    serving.env.disk.free_bytes_shown = 100 << 20
    await tell(line, BROKER, "1", disk_free_bytes_min=101 << 20)
    assert (await line.produce("a", b"x")).error_code == ErrorCode.KAFKA_STORAGE_ERROR
    await tell(line, BROKER, "1", disk_free_bytes_min=99 << 20)
    assert (await line.produce("a", b"x")).error_code == 0


@pytest.mark.parametrize("is_clean", [True, False])
async def test_records_stay_as_they_were_stored_whatever_is_told_later(serving: Serving, is_clean: bool) -> None:
    await serving.open()
    line = await serving.line()
    await line.create("a")
    await line.produce_batch("a", bytes(encode_batch([Record(key=b"k", value=b"1", timestamp_ms=1_700_000_000_000)])))
    others = {"cleanup_policy": "compact,delete", "flush": "interval", "index_interval_bytes": 1}
    await tell(line, TOPIC, "a", message_timestamp_type="LogAppendTime", **others)
    await line.produce_batch("a", bytes(encode_batch([Record(key=b"k", value=b"2", timestamp_ms=5)])))
    await (serving.stop() if is_clean else serving.crash())
    await serving.open()
    line = await serving.line()
    records = records_in(rows_of(await line.fetch("a"))["a", 0].records)
    assert [record.value for record in records] == [b"1", b"2"]
    assert records[0].timestamp_ms == 1_700_000_000_000


async def earliest(line: Line, topic: str) -> int:
    wish: dict[str, Any] = {"partition_index": 0, "current_leader_epoch": -1, "timestamp": -2}
    answer = await line.ask(ApiKey.LIST_OFFSETS, topics=[{"name": topic, "partitions": [wish]}], replica_id=-1)
    return int(answer.topics[0].partitions[0].offset)
