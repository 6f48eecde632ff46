"""DeleteRecords and OffsetForLeaderEpoch: where a log starts by request, and where its epochs end."""

import asyncio
from typing import Any

import pytest
from serving import Line, Serving, batch, records_in, rows_of, sequenced, started, virtually
from tiers import pick_step
from waiting import PATIENCE_MS, until_async

from penstock.errors import ErrorCode
from penstock.simulator.disk_faults import DiskFaults
from penstock.simulator.env import SimEnv
from penstock.simulator.platter import Loss
from penstock.simulator.world import World
from penstock.wire.api_keys import ApiKey

ALL_LOOPS = True


async def delete(line: Line, topic: str, offset: int, *, partition: int = 0, version: int = 2) -> tuple[int, int]:
    """Error code and low watermark."""
    wish = {"name": topic, "partitions": [{"partition_index": partition, "offset": offset}]}
    answer = await line.ask(ApiKey.DELETE_RECORDS, version, topics=[wish], timeout_ms=PATIENCE_MS)
    assert answer.topics[0].name == topic
    (row,) = answer.topics[0].partitions
    assert row.partition_index == partition
    return row.error_code, row.low_watermark


async def earliest(line: Line, topic: str) -> int:
    wish = {"partition_index": 0, "current_leader_epoch": -1, "timestamp": -2}
    answer = await line.ask(ApiKey.LIST_OFFSETS, topics=[{"name": topic, "partitions": [wish]}], replica_id=-1)
    return int(answer.topics[0].partitions[0].offset)


@pytest.mark.parametrize("version", range(3))
async def test_what_lies_below_is_not_read_any_more(serving: Serving, version: int) -> None:
    await serving.open()
    line = await serving.line()
    await line.create("a")
    for _ in range(4):
        await line.produce("a", b"x", b"y", b"z")
    assert await delete(line, "a", 4, version=version) == (0, 4)
    assert await earliest(line, "a") == 4
    assert rows_of(await line.fetch("a", 3))["a", 0].error_code == ErrorCode.OFFSET_OUT_OF_RANGE
    row = rows_of(await line.fetch("a", 4))["a", 0]
    assert (row.error_code, row.log_start_offset) == (0, 4)
    assert records_in(row.records)[-1].offset == 11
    assert await delete(line, "a", 2, version=version) == (0, 4), "a start never goes back"
    assert await delete(line, "a", -1, version=version) == (0, 12), "-1: all that readers can see"
    assert rows_of(await line.fetch("a", 12))["a", 0].error_code == 0
    assert (await line.produce("a", b"more")).base_offset == 12


async def test_what_cannot_be_deleted_is_refused_by_its_code(serving: Serving) -> None:
    node = await serving.open()
    line = await serving.line()
    await line.create("a")
    await line.create("kept", cleanup_policy="compact")
    await line.create("both", cleanup_policy="compact,delete")
    await line.produce("a", b"x")
    out_of_range = (ErrorCode.OFFSET_OUT_OF_RANGE, -1)
    assert await delete(line, "a", 2) == out_of_range
    assert await delete(line, "a", -2) == out_of_range
    assert await delete(line, "a", 0, partition=1) == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1)
    assert await delete(line, "none", 0) == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1)
    assert await delete(line, "kept", 0) == (ErrorCode.POLICY_VIOLATION, -1)
    assert await delete(line, "both", 0) == (0, 0)
    partition = node.partitions.find("a", 0)
    assert partition is not None
    assert partition.log.start_offset == 0


@pytest.mark.invariant("log.start-offset-durable")
async def test_nobody_sees_a_start_that_is_not_durable(serving: Serving) -> None:
    node = await serving.open()
    line, other = await serving.line(), await serving.line()
    await line.create("a", flush="os")
    await line.produce("a", b"x", b"y")
    serving.env.disk.flushes.hold()
    line.send(ApiKey.DELETE_RECORDS, topics=[{"name": "a", "partitions": [{"partition_index": 0, "offset": 1}]}], timeout_ms=PATIENCE_MS)
    await serving.env.disk.flushes.until_waited_for()
    assert await earliest(other, "a") == 0
    serving.env.disk.flushes.let_go()
    assert (await line.receive()).topics[0].partitions[0].low_watermark == 1
    assert await earliest(other, "a") == 1
    partition = node.partitions.find("a", 0)
    assert partition is not None and partition.log.has_saved_start(1)


def test_a_topic_that_is_deleted_meanwhile_has_no_records_to_delete() -> None:
    """At every moment of it; never is the disk blamed."""

    async def deleted_after(env: SimEnv, line: Line, other: Line, seconds: float) -> int:
        await line.create("a", flush="os")
        await line.produce("a", b"x")
        wish = {"name": "a", "partitions": [{"partition_index": 0, "offset": 1}]}
        line.send(ApiKey.DELETE_RECORDS, topics=[wish], timeout_ms=PATIENCE_MS)
        await asyncio.sleep(seconds)
        await other.delete("a")
        return int((await line.receive()).topics[0].partitions[0].error_code)

    async def scenario(world: World, env: SimEnv) -> None:
        _, address = await started(env)
        line, other = await Line.open(address), await Line.open(address)
        world.hosts["node"].disk.faults = DiskFaults(sync_seconds_min=0.01, sync_seconds_max=0.02)
        codes = [await deleted_after(env, line, other, step * 0.004) for step in range(1, 25)]
        assert set(codes) == {0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}

    virtually(scenario)


def test_space_comes_back_and_what_was_appended_meanwhile_stays() -> None:
    async def scenario(world: World, env: SimEnv) -> None:
        node, address = await started(env)
        line = await Line.open(address)
        await line.create("a", segment_bytes=2_000)
        for _ in range(10):
            await line.produce_batch("a", batch(bytes(800), timestamp_ms=env.wall_ms()))
        partition = node.partitions.find("a", 0)
        assert partition is not None
        held = partition.log.size_bytes
        assert await delete(line, "a", 9) == (0, 9)
        for _ in range(3):  # Into the segment where the checkpoint's end and the start stand.
            await line.produce_batch("a", batch(b"later", timestamp_ms=env.wall_ms()))
        await asyncio.sleep(3)
        assert partition.log.size_bytes < held / 2
        assert await earliest(line, "a") == 9
        assert len(records_in(rows_of(await line.fetch("a", 9))["a", 0].records)) == 4
        assert await delete(line, "a", -1) == (0, 13)
        await asyncio.sleep(3)
        assert partition.log.size_bytes == 0

    virtually(scenario)


def test_a_producer_is_known_after_its_records_are_gone() -> None:
    async def scenario(world: World, env: SimEnv) -> None:
        _, address = await started(env)
        line = await Line.open(address)
        await line.create("a")
        assert (await line.produce_batch("a", sequenced(7, 0))).base_offset == 0
        await delete(line, "a", -1)
        await asyncio.sleep(3)
        assert (await line.produce_batch("a", sequenced(7, 0))).base_offset == 0, "the same batch again"
        assert (await line.produce_batch("a", sequenced(7, 1))).base_offset == 1

    virtually(scenario)


@pytest.mark.repeats
@pytest.mark.invariant("log.start-offset-durable")
@pytest.mark.parametrize("loss", [Loss.ALL, Loss.NONE, None])
@pytest.mark.parametrize("at", [5, 8])
def test_a_power_cut_at_any_moment_loses_nothing_that_was_not_given_up(at: int, loss: Loss | None) -> None:
    """Promised: once the answer is there the start stays. Always: what lies above it and was acknowledged is there."""
    outcomes = {deleted_with_a_crash_at(moment, at, loss) for moment in range(1, 40, pick_step(test=5, slow=2))}
    assert outcomes >= {0, at}, "crashes before and after the new start was durable"


def deleted_with_a_crash_at(moment: int, at: int, loss: Loss | None) -> int:
    with World(3) as world:
        disk = world.host("node").disk
        promised: list[int] = [0]
        acknowledged: list[int] = [0]
        found: list[int] = []

        async def live_and_die(env: SimEnv) -> None:
            _, address = await started(env, retention_check_ms=1_000)
            line = await Line.open(address)
            await line.create("a", segment_bytes=2_000)
            for _ in range(8):
                await line.produce_batch("a", batch(bytes(800), timestamp_ms=env.wall_ms()))
            acknowledged[0] = 8
            disk.crash_at(moment)
            promised[0] = (await delete(line, "a", at))[1]
            for _ in range(20):
                row = await line.produce_batch("a", batch(b"later", timestamp_ms=env.wall_ms()))
                acknowledged[0] = row.base_offset + 1
                await asyncio.sleep(0.3)
            await asyncio.sleep(100)

        async def live_again(env: SimEnv) -> None:
            node, address = await started(env)
            line = await Line.open(address)
            start, end = await earliest(line, "a"), await line.latest("a")
            assert start >= promised[0]
            assert end >= acknowledged[0]
            read: list[int] = []
            while (read[-1] + 1 if read else start) < end:
                records = records_in(rows_of(await line.fetch("a", read[-1] + 1 if read else start))["a", 0].records)
                read += [record.offset for record in records if record.offset >= start]
            assert read == list(range(start, end))
            found.append(start)
            await node.stop()

        world.start("node", live_and_die)
        world.run_until(lambda: world.has_ended("node"), 1_000)
        world.power_cut("node", loss)
        world.start("node", live_again)
        world.run_until(lambda: world.has_ended("node"), 1_000)
        assert world.hosts["node"].endings[-1] == "returned"
        return found[0]


# Epochs


async def end_of(line: Line, epoch: int, *, current: int = -1, version: int = 4, **options: Any) -> tuple[int, int, int]:
    """Error code, epoch and end offset."""
    wish = {"partition": options.pop("partition", 0), "current_leader_epoch": current, "leader_epoch": epoch}
    body = {"replica_id": -1, "topics": [{"topic": options.pop("topic", "a"), "partitions": [wish]}]} | options
    (row,) = (await line.ask(ApiKey.OFFSET_FOR_LEADER_EPOCH, version, **body)).topics[0].partitions
    return row.error_code, row.leader_epoch, row.end_offset


@pytest.mark.parametrize("version", range(2, 5))
async def test_an_epoch_ends_where_the_next_one_that_wrote_begins(serving: Serving, version: int) -> None:
    """Each crash begins an epoch; in the second one nothing is written."""
    for life in range(4):
        await serving.open()
        line = await serving.line()
        if life == 0:
            await line.create("a")
        if life != 1:
            await line.produce("a", b"x", b"y")
        if life < 3:
            await serving.crash()
    answers = [(await end_of(line, epoch, version=version))[1:] for epoch in range(-1, 6)]
    assert answers == [(-1, -1), (0, 2), (0, 2), (2, 4), (3, 6), (-1, -1), (-1, -1)]
    await delete(line, "a", 5)
    answers = [(await end_of(line, epoch, version=version))[1:] for epoch in range(4)]
    assert answers == [(0, 5), (1, 5), (2, 5), (3, 6)], "what is gone ends where the log begins"


async def test_an_empty_log_ends_where_it_begins_in_every_epoch(serving: Serving) -> None:
    await serving.open()
    await (await serving.line()).create("a")
    await serving.crash()
    await serving.open()
    line = await serving.line()
    assert await end_of(line, 0) == (0, 0, 0)
    assert await end_of(line, 1) == (0, 1, 0)


async def test_who_knows_another_leader_is_told_so(serving: Serving) -> None:
    await serving.open()
    await (await serving.line()).create("a")
    await serving.crash()
    await serving.open()
    line = await serving.line()
    assert (await end_of(line, 0, current=1))[0] == 0
    assert await end_of(line, 0, current=0) == (ErrorCode.FENCED_LEADER_EPOCH, -1, -1)
    assert await end_of(line, 0, current=2) == (ErrorCode.UNKNOWN_LEADER_EPOCH, -1, -1)
    assert (await end_of(line, 0, topic="none"))[0] == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert (await end_of(line, 0, partition=1))[0] == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert (await end_of(line, 0, replica_id=2))[0] == ErrorCode.CLUSTER_AUTHORIZATION_FAILED, "replicas ask elsewhere"


async def test_trimming_takes_turns_with_checkpoints(serving: Serving) -> None:
    """Many at once, in any order: the highest start stays, and each answer tells one that holds."""
    node = await serving.open()
    line = await serving.line()
    await line.create("a")
    for _ in range(10):
        await line.produce("a", b"x")
    lines = [await serving.line() for _ in range(10)]
    for offset, each in enumerate(lines):
        wish = {"name": "a", "partitions": [{"partition_index": 0, "offset": (offset * 7) % 10}]}
        each.send(ApiKey.DELETE_RECORDS, topics=[wish], timeout_ms=PATIENCE_MS)
    partition = node.partitions.find("a", 0)
    assert partition is not None
    for _ in range(5):
        await node._housekeeper.checkpoint(partition)
    lows = [(await each.receive()).topics[0].partitions[0] for each in lines]
    assert all(low.error_code == 0 and low.low_watermark >= (offset * 7) % 10 for offset, low in enumerate(lows))
    await until_async(lambda: partition.log.start_offset == 9)
    await serving.crash()
    await serving.open()
    assert await earliest(await serving.line(), "a") == 9
