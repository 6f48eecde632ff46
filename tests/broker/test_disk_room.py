"""The reserve on a node's disk: it is there after a start, given up when there is no room, and made again. In virtual time."""

import asyncio
from typing import Any

import pytest
from serving import Line, started, virtually

from penstock.broker.disk_room import RESERVE_PATH, RETRY_SECONDS_MAX
from penstock.errors import DiskFull, ErrorCode
from penstock.simulator.disk import SimDisk
from penstock.simulator.env import SimEnv
from penstock.simulator.world import World
from penstock.wire.batches import Record, encode_batch

pytestmark = pytest.mark.invariant("node.reserve-for-moves")

VIRTUAL_TIME = True
MIB = 1 << 20
NO_LEAST: dict[str, Any] = {"disk_free_bytes_min": 0}


def reserve_of(disk: SimDisk) -> int | None:
    """Its size."""
    if not disk.exists(RESERVE_PATH):
        return None
    file = disk.open(RESERVE_PATH)
    try:
        return disk.size(file)
    finally:
        disk.close(file)


async def leave_room(disk: SimDisk, free_bytes: int) -> None:
    """Something else fills the disk."""
    disk.unlink("filler")
    await disk.allocate("filler", disk.free_bytes() - free_bytes)


def test_a_node_has_its_reserve_after_a_start_and_keeps_it_over_a_restart() -> None:
    async def scenario(world: World, env: SimEnv) -> None:
        disk = world.hosts["node"].disk
        node, _ = await started(env)
        assert reserve_of(disk) == 64 * MIB
        await node.stop()
        node, _ = await started(env)
        assert reserve_of(disk) == 64 * MIB
        await node.stop()
        node, _ = await started(env, disk_reserve_bytes=2 * MIB)
        assert reserve_of(disk) == 2 * MIB, "another size was asked for"
        await node.stop()
        await started(env, disk_reserve_bytes=0)
        assert reserve_of(disk) is None

    virtually(scenario)


def test_a_small_disk_keeps_a_sixteenth_of_it() -> None:
    async def scenario(world: World, env: SimEnv) -> None:
        node, _ = await started(env, **NO_LEAST)
        assert reserve_of(world.hosts["node"].disk) == 10 * MIB
        assert not node.disk_is_low

    virtually(scenario, capacity_bytes=160 * MIB)


def test_a_full_disk_takes_changes_of_metadata_and_offsets_and_no_records() -> None:
    async def scenario(world: World, env: SimEnv) -> None:
        disk = world.hosts["node"].disk
        node, address = await started(env, **NO_LEAST)
        line = await Line.open(address)
        await line.create("a")
        await line.create("b")
        await line.produce("a", b"before")
        await leave_room(disk, 0)
        assert (await line.produce("a", b"refused")).error_code == ErrorCode.KAFKA_STORAGE_ERROR
        assert reserve_of(disk) is None
        await asyncio.sleep(3)
        row = await line.produce("a", b"refused")
        assert row.error_code == ErrorCode.KAFKA_STORAGE_ERROR and "disk.reserve.bytes" in row.error_message
        await line.delete("b")
        assert "b" not in node.image.topics
        assert (await line.fetch("a")).responses[0].partitions[0].high_watermark == 1
        assert not node.readiness().is_ready and node.health().is_ready
        await leave_room(disk, 200 * MIB)
        await asyncio.sleep(2)
        assert reserve_of(disk) == 64 * MIB
        assert (await line.produce("a", b"after")).error_code == 0
        assert node.readiness().is_ready

    virtually(scenario)


def test_writes_into_the_reserve_do_not_tell_that_there_is_room(caplog: pytest.LogCaptureFixture) -> None:
    def said(words: str) -> bool:
        return any(words in record.getMessage() for record in caplog.records)

    async def scenario(world: World, env: SimEnv) -> None:
        disk = world.hosts["node"].disk
        node, address = await started(env, **NO_LEAST)
        line = await Line.open(address)
        await line.create("a")
        await line.create("__consumer_offsets", 1)
        await leave_room(disk, 0)
        assert (await line.produce("a", b"refused")).error_code == ErrorCode.KAFKA_STORAGE_ERROR
        partition = node.partitions.find("__consumer_offsets", 0)
        assert partition is not None
        partition.append(encode_batch([Record(key=b"k", value=b"v", timestamp_ms=0)]), 0)
        node.appended(partition)
        assert said("the disk is full") and not said("has room again")
        await leave_room(disk, 200 * MIB)
        await asyncio.sleep(2)
        assert said("the disk has room again")

    virtually(scenario)


def test_metadata_that_comes_first_finds_the_room_of_the_reserve() -> None:
    async def scenario(world: World, env: SimEnv) -> None:
        disk = world.hosts["node"].disk
        node, address = await started(env, **NO_LEAST)
        line = await Line.open(address)
        await line.create("a")
        await leave_room(disk, 10)
        await line.delete("a")
        assert "a" not in node.image.topics and reserve_of(disk) is None

    virtually(scenario)


@pytest.mark.parametrize("free_bytes", [100_000, 60 * MIB, 127 * MIB])
def test_a_disk_with_too_little_room_at_the_start_gets_its_reserve_later(free_bytes: int) -> None:
    async def scenario(world: World, env: SimEnv) -> None:
        disk = world.hosts["node"].disk
        await leave_room(disk, free_bytes)
        node, address = await started(env, **NO_LEAST)
        assert reserve_of(disk) is None and node.disk_is_low
        await leave_room(disk, 200 * MIB)
        await asyncio.sleep(2)
        assert reserve_of(disk) == 64 * MIB
        line = await Line.open(address)
        await line.create("a")
        assert (await line.produce("a", b"x")).error_code == 0

    virtually(scenario)


def test_a_start_on_a_full_disk_gives_the_reserve_up() -> None:
    async def scenario(world: World, env: SimEnv) -> None:
        disk = world.hosts["node"].disk
        node, address = await started(env, **NO_LEAST)
        line = await Line.open(address)
        await line.create("a")
        await line.produce("a", b"x")
        await node.stop()
        await leave_room(disk, 0)
        node, address = await started(env, **NO_LEAST)
        assert reserve_of(disk) is None
        line = await Line.open(address)
        assert (await line.fetch("a")).responses[0].partitions[0].high_watermark == 1
        await line.delete("a")
        assert "a" not in node.image.topics

    virtually(scenario)


def test_a_disk_that_claims_to_have_room_is_believed_when_the_reserve_could_be_made(monkeypatch: pytest.MonkeyPatch) -> None:
    """A quota shows in no number of free bytes."""
    tries: list[float] = []

    async def scenario(world: World, env: SimEnv) -> None:
        disk = world.hosts["node"].disk
        node, _ = await started(env, **NO_LEAST)
        allocate = disk.allocate

        async def over_quota(path: str, size: int) -> None:
            tries.append(env.now())
            raise DiskFull("over quota")

        monkeypatch.setattr(disk, "allocate", over_quota)
        node.disk_was_full(DiskFull("over quota"))
        await asyncio.sleep(100)
        assert node.disk_is_low and node.disk_room.is_short
        assert 5 < len(tries) < 15, "less and less often"
        monkeypatch.setattr(disk, "allocate", allocate)
        await asyncio.sleep(RETRY_SECONDS_MAX + 2)
        assert not node.disk_is_low and reserve_of(disk) == 64 * MIB

    virtually(scenario)


def test_a_reserve_that_a_power_cut_took_is_made_again_by_the_next_start() -> None:
    """It is not flushed."""

    async def scenario(world: World, env: SimEnv) -> None:
        disk = world.hosts["node"].disk
        node, _ = await started(env, **NO_LEAST)
        await node.stop()
        disk.lose(RESERVE_PATH)
        node, _ = await started(env, **NO_LEAST)
        assert reserve_of(disk) == 64 * MIB and not node.disk_is_low

    virtually(scenario)
