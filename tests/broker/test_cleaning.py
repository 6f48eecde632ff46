"""A node compacts its compacted topics by the clock: what clients see of it, and what the operator hears. In virtual time."""

import asyncio
from typing import Any

from serving import Line, records_in, rows_of, started, virtually

from penstock.errors import ErrorCode
from penstock.partition.partition import Partition
from penstock.simulator.env import SimEnv
from penstock.simulator.world import World
from penstock.wire.api_keys import ApiKey
from penstock.wire.batches import Record, encode_batch

COMPACTED = {"cleanup_policy": "compact", "segment_bytes": 1_024, "min_cleanable_dirty_ratio": 0.1, "delete_retention_ms": 5_000}
SETTINGS: dict[str, Any] = {"cleaner_backoff_ms": 1_000, "disk_free_bytes_min": 0}
KEYS = 4


def keyed(env: SimEnv, key: bytes, value: bytes | None, **fields: Any) -> bytes:
    return bytes(encode_batch([Record(key=key, value=value, timestamp_ms=env.wall_ms())], **fields))


async def write_rounds(line: Line, env: SimEnv, count: int, *, topic: str = "a", producer: int = -1) -> None:
    for number in range(count):
        for key in range(KEYS):
            sequence = number * KEYS + key if producer >= 0 else -1
            fields = {"producer_id": producer, "producer_epoch": 0 if producer >= 0 else -1, "base_sequence": sequence}
            row = await line.produce_batch(topic, keyed(env, b"k%d" % key, b"%d:" % number + bytes(150), **fields))
            assert row.error_code == 0, row.error_message


async def read(line: Line, topic: str = "a") -> list[Record]:
    """All records, as a consumer gets them."""
    offset, end, found = 0, await line.latest(topic), []
    while offset < end:
        row = rows_of(await line.fetch(topic, offset))[topic, 0]
        assert row.error_code == 0
        records = [record for record in records_in(row.records or b"") if record.offset >= offset]
        if not records:
            break
        found += records
        offset = records[-1].offset + 1
    return found


def partition_of(node: Any, topic: str = "a") -> Partition:
    partition = node.partitions.find(topic, 0)
    assert partition is not None
    return partition  # type: ignore[no-any-return]


def test_a_compacted_topic_keeps_the_last_value_of_each_key_and_becomes_small() -> None:
    async def scenario(world: World, env: SimEnv) -> None:
        node, address = await started(env, **SETTINGS)
        line = await Line.open(address)
        await line.create("a", **COMPACTED)
        await write_rounds(line, env, 30)
        size = partition_of(node).log.size_bytes
        await asyncio.sleep(5)
        assert partition_of(node).log.size_bytes < size // 4
        assert node.metrics.compactions > 0
        assert node.metrics.compaction_records_removed > 90
        found = await read(line)
        assert {record.key: (record.value or b"")[:3] for record in found} == {b"k%d" % key: b"29:" for key in range(KEYS)}
        assert await line.latest("a") == 30 * KEYS

    virtually(scenario)


def test_a_tombstone_is_there_for_as_long_as_it_should_be_and_then_its_key_is_gone() -> None:
    async def scenario(world: World, env: SimEnv) -> None:
        _, address = await started(env, **SETTINGS)
        line = await Line.open(address)
        await line.create("a", **COMPACTED)
        await write_rounds(line, env, 5)
        await line.produce_batch("a", keyed(env, b"k1", None))
        await write_rounds(line, env, 1, topic="a")
        await line.produce_batch("a", keyed(env, b"k1", None))
        for number in range(20):
            await line.produce_batch("a", keyed(env, b"k0", b"%d" % number + bytes(300)))
        await asyncio.sleep(3)
        assert [record.value for record in await read(line) if record.key == b"k1"] == [None]
        await asyncio.sleep(5)
        line = await Line.open(address)
        for number in range(20):
            await line.produce_batch("a", keyed(env, b"k0", b"%d" % number + bytes(300)))
        await asyncio.sleep(3)
        assert [record for record in await read(line) if record.key == b"k1"] == []

    virtually(scenario)


def test_an_idempotent_producer_goes_on_after_compaction_and_a_lost_checkpoint() -> None:
    async def scenario(world: World, env: SimEnv) -> None:
        node, address = await started(env, **SETTINGS)
        line = await Line.open(address)
        await line.create("a", **COMPACTED)
        producer = await line.init_producer()
        await write_rounds(line, env, 6, producer=producer)
        for number in range(20):
            await line.produce_batch("a", keyed(env, b"k%d" % (number % KEYS), b"%d" % number + bytes(300)))
        await asyncio.sleep(4)
        assert node.metrics.compactions > 0
        directory = partition_of(node).log.directory
        await node.stop()
        for name in ("checkpoint", "checkpoint.previous"):
            env.disk.unlink(f"{directory}/{name}")
        node, address = await started(env, **SETTINGS)
        line = await Line.open(address)
        fields = {"producer_id": producer, "producer_epoch": 0}
        again = await line.produce_batch("a", keyed(env, b"k3", b"5:" + bytes(150), base_sequence=6 * KEYS - 1, **fields))
        assert (again.error_code, again.base_offset) == (0, 6 * KEYS - 1), "its last batch is known"
        gap = await line.produce_batch("a", keyed(env, b"k3", b"gap", base_sequence=6 * KEYS + 5, **fields))
        assert gap.error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        row = await line.produce_batch("a", keyed(env, b"k3", b"next", base_sequence=6 * KEYS, **fields))
        assert row.error_code == 0
        await node.stop()

    virtually(scenario)


def test_a_topic_that_becomes_a_compacted_one_is_compacted_and_one_that_is_not_is_left_alone() -> None:
    async def scenario(world: World, env: SimEnv) -> None:
        node, address = await started(env, **SETTINGS)
        line = await Line.open(address)
        await line.create("a", segment_bytes=1_024)
        await write_rounds(line, env, 10)
        await asyncio.sleep(5)
        assert node.metrics.compactions == 0
        changes = [
            {"name": "cleanup.policy", "config_operation": 0, "value": "compact"},
            {"name": "min.cleanable.dirty.ratio", "config_operation": 0, "value": "0.2"},
        ]
        resource = {"resource_type": 2, "resource_name": "a", "configs": changes}
        answer = await line.ask(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, resources=[resource], validate_only=False)
        assert answer.responses[0].error_code == 0
        await asyncio.sleep(5)
        assert node.metrics.compactions == 1
        assert len(await read(line)) < 10 * KEYS

    virtually(scenario)


def test_with_compact_and_delete_old_segments_go_too() -> None:
    async def scenario(world: World, env: SimEnv) -> None:
        node, address = await started(env, retention_check_ms=2_000, **SETTINGS)
        line = await Line.open(address)
        await line.create("a", **{**COMPACTED, "cleanup_policy": "compact,delete", "retention_ms": 20_000})
        await write_rounds(line, env, 10)
        await asyncio.sleep(5)
        assert node.metrics.compactions > 0
        assert partition_of(node).log.start_offset == 0
        await asyncio.sleep(30)
        assert partition_of(node).log.start_offset == 10 * KEYS

    virtually(scenario)


def test_a_log_that_cannot_be_compacted_is_told_and_the_others_are() -> None:
    async def scenario(world: World, env: SimEnv) -> None:
        node, address = await started(env, **SETTINGS)
        line = await Line.open(address)
        for topic in ("a", "b"):
            await line.create(topic, **COMPACTED)
        await write_rounds(line, env, 10, topic="a")
        path = f"{partition_of(node, 'a').log.directory}/{0:020}.log"
        world.hosts["node"].disk.rot(path, 100)
        await write_rounds(line, env, 10, topic="b")
        await asyncio.sleep(5)
        assert [record.key for record in await read(line, "b")], "the other one is compacted"
        assert len(await read(line, "b")) < 10 * KEYS
        assert any("a-0 is not compacted" in told for told in node._reporter._told)
        assert partition_of(node, "a").log.failure is None
        assert (await line.produce_batch("a", keyed(env, b"k", b"still takes writes"))).error_code == 0

    virtually(scenario)


def test_the_node_stops_and_starts_in_the_middle_of_compaction() -> None:
    async def scenario(world: World, env: SimEnv) -> None:
        settings = {**SETTINGS, "cleaner_backoff_ms": 10}
        node, address = await started(env, **settings)
        line = await Line.open(address)
        await line.create("a", **COMPACTED)
        for number in range(12):
            await write_rounds(line, env, 4)
            await asyncio.sleep(env.rng.random() * 0.05)
            await node.stop()
            node, address = await started(env, **settings)
            line = await Line.open(address)
            found = {record.key: record.offset for record in await read(line)}
            assert found == {b"k%d" % key: 4 * KEYS * number + 3 * KEYS + key for key in range(KEYS)}
            assert partition_of(node).log.failure is None
        await node.stop()

    virtually(scenario)


def test_a_topic_can_be_deleted_while_it_is_compacted() -> None:
    async def scenario(world: World, env: SimEnv) -> None:
        node, address = await started(env, **{**SETTINGS, "cleaner_backoff_ms": 10})
        for _ in range(12):
            line = await Line.open(address)
            await line.create("a", **COMPACTED)
            await write_rounds(line, env, 6)
            await asyncio.sleep(env.rng.random() * 0.05)
            await line.delete("a")
        await asyncio.sleep(3)
        assert env.disk.list("topics") == []
        assert not node.stopped.done()

    virtually(scenario)
