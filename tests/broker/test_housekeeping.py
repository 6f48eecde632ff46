"""What a node does by the clock: useless connections go, logs are kept in order, a full disk refuses and recovers. In virtual time."""

import asyncio
import struct
from typing import Any

import pytest
from serving import Line, batch, fetch_body, produce_body, records_in, rows_of, sequenced, started, virtually

from penstock.errors import ErrorCode
from penstock.simulator.env import SimEnv
from penstock.simulator.world import World
from penstock.wire.api_keys import ApiKey

VIRTUAL_TIME = True

DAY_SECONDS = 86_400


async def is_closed(line: Line) -> bool:
    """Whether the node has closed it by now."""
    await asyncio.sleep(0.1)
    return line.reader.at_eof() or line.reader.exception() is not None


def test_a_silent_connection_is_closed_and_a_busy_one_is_not() -> None:
    async def scenario(world: World, env: SimEnv) -> None:
        node, address = await started(env, connections_max_idle_ms=10_000)
        silent, waiting, talking = [await Line.open(address) for _ in range(3)]
        await talking.create("a")
        await silent.ask(ApiKey.API_VERSIONS, 0)
        waiting.send(ApiKey.FETCH, **fetch_body({"a": 0}, max_wait_ms=25_000))
        for _ in range(20):
            await asyncio.sleep(1)
            await talking.ask(ApiKey.API_VERSIONS, 0)
        assert await is_closed(silent)
        assert not await is_closed(waiting), "its request is under way"
        await asyncio.sleep(5)
        assert len(node.connections) == 2
        async with asyncio.timeout(10):
            await waiting.receive()
        await asyncio.sleep(5)
        assert not await is_closed(waiting), "it has been silent for five seconds only"
        await asyncio.sleep(10)
        assert await is_closed(waiting)
        assert len(node.connections) == 0
        assert node.metrics.connections_closed_as_stalled == 0

    virtually(scenario)


@pytest.mark.parametrize("beginning", [b"\0", struct.pack(">i", 50_000), struct.pack(">ihhi", 50_000, 0, 9, 1) + bytes(30_000)], ids=len)
def test_a_connection_that_begins_a_request_and_stops_is_closed(beginning: bytes) -> None:
    async def scenario(world: World, env: SimEnv) -> None:
        node, address = await started(env, connections_max_stalled_ms=5_000)
        line = await Line.open(address)
        line.writer.write(beginning)
        await asyncio.sleep(3)
        assert not await is_closed(line)
        await asyncio.sleep(4)
        assert await is_closed(line)
        assert node.metrics.connections_closed_as_stalled == 1
        assert node.request_room.bytes_taken == 0

    virtually(scenario)


def test_a_connection_that_sends_its_request_slowly_is_heard_out() -> None:
    async def scenario(world: World, env: SimEnv) -> None:
        _, address = await started(env, connections_max_stalled_ms=5_000)
        line = await Line.open(address)
        await line.create("a")
        line.send(ApiKey.PRODUCE, **produce_body({"a": {0: batch(bytes(100))}}))
        request = struct.pack(">ihhihi", 14, ApiKey.METADATA, 1, 9, -1, -1)
        await line.receive()
        for byte in request:
            line.writer.write(bytes([byte]))
            await asyncio.sleep(3)
        assert await line.receive_frame() is not None

    virtually(scenario)


def test_a_connection_that_takes_nothing_is_closed_and_a_slow_one_is_served() -> None:
    async def scenario(world: World, env: SimEnv) -> None:
        node, address = await started(env, connections_max_stalled_ms=5_000)
        line = await Line.open(address)
        await line.create("a")
        await line.produce("a", bytes(1_000_000))
        stuck, slow = await Line.open(address, receive_bytes=1_000), await Line.open(address, receive_bytes=1_000)
        for reader in (stuck, slow):
            for _ in range(5):
                reader.send(ApiKey.FETCH, **fetch_body({"a": 0}))
        taken = 0
        while taken < 5_000_000:
            taken += len(await slow.reader.read(100_000))
            await asyncio.sleep(1)  # So that it takes nearly a minute.
        assert node.metrics.connections_closed_as_stalled == 1
        assert len(node.connections) == 2
        slow.close()
        await asyncio.sleep(1)
        assert node.reply_room.bytes_taken == 0

    virtually(scenario)


def test_a_connection_that_takes_a_long_reply_slowly_is_not_idle() -> None:
    async def scenario(world: World, env: SimEnv) -> None:
        node, address = await started(env, connections_max_idle_ms=10_000, connections_max_stalled_ms=5_000)
        line = await Line.open(address)
        await line.create("a")
        for _ in range(5):
            await line.produce("a", bytes(1_000_000))
        slow, taken = await Line.open(address, receive_bytes=1_000), 0
        slow.send(ApiKey.FETCH, **fetch_body({"a": 0}, max_bytes=50_000_000, partition_max_bytes=50_000_000))
        while taken < 4_000_000:
            taken += len(await slow.reader.read(100_000))
            await asyncio.sleep(1)
        assert env.now() - 1_000 > 35, "which took it much longer than the idle may be silent"
        assert len(node.connections) == 1

    virtually(scenario)


# Logs


def test_a_log_that_has_grown_gets_a_checkpoint() -> None:
    async def scenario(world: World, env: SimEnv) -> None:
        node, address = await started(env, checkpoint_bytes=1_024)
        line = await Line.open(address)
        await line.create("a")
        await line.produce("a", bytes(2_000))
        partition = node.partitions.find("a", 0)
        assert partition is not None
        assert not env.disk.exists(f"{partition.log.directory}/checkpoint")
        await asyncio.sleep(3)
        assert env.disk.exists(f"{partition.log.directory}/checkpoint")
        assert not partition.log.wants_checkpoint

    virtually(scenario)


@pytest.mark.invariant("log.producer-state-survives")
def test_retention_drops_segments_and_what_producers_did_outlives_them() -> None:
    async def scenario(world: World, env: SimEnv) -> None:
        settings: dict[str, Any] = {"retention_check_ms": 10_000, "producer_id_expiration_ms": 30 * DAY_SECONDS * 1000}
        node, address = await started(env, **settings)
        line = await Line.open(address)
        await line.create("a", segment_bytes=1_024, retention_ms=60_000)
        producer = await line.init_producer()
        for sequence in range(10):
            await line.produce_batch("a", sequenced(producer, sequence, bytes(400), timestamp_ms=env.wall_ms()))
        partition = node.partitions.find("a", 0)
        assert partition is not None
        files_before = len(env.disk.list(partition.log.directory))
        await asyncio.sleep(100)
        assert partition.log.start_offset == 10, "all of it is older than a minute"
        assert len(env.disk.list(partition.log.directory)) < files_before
        await line.writer.drain()
        assert (await line.fetch("a", 3)).responses[0].partitions[0].error_code == ErrorCode.OFFSET_OUT_OF_RANGE
        await node.stop()
        node, address = await started(env, **settings)
        line = await Line.open(address)
        again = await line.produce_batch("a", sequenced(producer, 9, bytes(400)))
        assert (again.error_code, again.base_offset, again.log_start_offset) == (0, 9, 10)
        assert (await line.produce_batch("a", sequenced(producer, 10, timestamp_ms=env.wall_ms()))).base_offset == 10
        assert (await line.produce_batch("a", sequenced(producer, 12, timestamp_ms=env.wall_ms()))).error_code == 45
        await node.stop()

    virtually(scenario)


def test_a_producer_that_has_been_silent_for_long_is_forgotten() -> None:
    async def scenario(world: World, env: SimEnv) -> None:
        node, address = await started(env, retention_check_ms=10_000, producer_id_expiration_ms=60_000)
        line = await Line.open(address)
        await line.create("a")
        for producer in (1, 2):
            await line.produce_batch("a", sequenced(producer, 0))
        await asyncio.sleep(50)
        line = await Line.open(address)
        await line.produce_batch("a", sequenced(2, 1))
        await asyncio.sleep(30)
        partition = node.partitions.find("a", 0)
        assert partition is not None
        assert list(partition.producers.producer_ids()) == [2]

    virtually(scenario)


# Room on the disk


def test_a_disk_with_little_room_refuses_produce_and_takes_it_again_without_a_restart() -> None:
    async def scenario(world: World, env: SimEnv) -> None:
        node, address = await started(env, disk_free_bytes_min=1 << 20)
        line = await Line.open(address)
        await line.create("a")
        await line.produce("a", b"before")
        disk = world.hosts["node"].disk
        unlimited = disk.capacity_bytes
        disk.capacity_bytes = unlimited - disk.free_bytes() + 100_000
        await asyncio.sleep(2)
        row = await line.produce("a", b"refused")
        assert row.error_code == ErrorCode.KAFKA_STORAGE_ERROR
        assert "disk.free.bytes.min" in row.error_message
        assert (await line.fetch("a")).responses[0].partitions[0].high_watermark == 1, "reading goes on"
        await line.delete("a")
        disk.capacity_bytes = unlimited
        await asyncio.sleep(2)
        await line.create("b")
        assert (await line.produce("b", b"after")).error_code == 0
        assert not node.disk_is_low

    virtually(scenario)


def test_a_full_disk_refuses_and_recovers_without_a_restart() -> None:
    async def scenario(world: World, env: SimEnv) -> None:
        _, address = await started(env, disk_free_bytes_min=0, disk_reserve_bytes=0)
        line = await Line.open(address)
        await line.create("a")
        await line.produce("a", b"before")
        disk = world.hosts["node"].disk
        disk.capacity_bytes = disk.capacity_bytes - disk.free_bytes() + 1_000
        for values in ([bytes(5_000)], [bytes(5_000), b"two partitions are taken the long way"]):
            assert (await line.produce("a", *values)).error_code == ErrorCode.KAFKA_STORAGE_ERROR
        disk.capacity_bytes += 1 << 20
        await asyncio.sleep(2)
        assert (await line.produce("a", bytes(5_000))).base_offset == 1
        assert len(records_in(rows_of(await line.fetch("a"))["a", 0].records)) == 2

    virtually(scenario)


@pytest.mark.parametrize("fault", ["write", "flush"])
def test_a_disk_error_takes_one_log_offline_for_writes_and_the_others_go_on(fault: str) -> None:
    async def scenario(world: World, env: SimEnv) -> None:
        node, address = await started(env)
        line = await Line.open(address)
        await line.create("a", 2)
        await line.produce("a", b"flushed")
        disk, partition = world.hosts["node"].disk, node.partitions.find("a", 0)
        assert partition is not None
        if fault == "write":
            disk.fail_next_write()
        else:
            disk.fail_next_flush(f"{partition.log.directory}/{0:020}.log")
        row = await line.produce("a", b"lost")
        assert row.error_code == ErrorCode.KAFKA_STORAGE_ERROR
        for _ in range(2):
            assert (await line.produce("a", b"refused")).error_code == ErrorCode.KAFKA_STORAGE_ERROR
        assert (await line.produce("a", b"elsewhere", partition=1)).error_code == 0
        readable = records_in(rows_of(await line.fetch("a"))["a", 0].records)
        assert [record.value for record in readable] == [b"flushed"], "what was flushed can be read"
        assert await line.latest("a") == 1
        assert not node.stopped.done()

    virtually(scenario)


def test_a_failed_flush_refuses_everything_that_waited_for_it() -> None:
    async def scenario(world: World, env: SimEnv) -> None:
        node, address = await started(env)
        lines = [await Line.open(address) for _ in range(5)]
        await lines[0].create("a")
        await lines[0].produce("a", b"flushed")
        world.hosts["node"].disk.fail_next_flush()
        for line in lines:
            line.send(ApiKey.PRODUCE, **produce_body({"a": {0: batch(b"x")}}))
        codes = {(await line.receive()).responses[0].partition_responses[0].error_code for line in lines}
        assert codes == {ErrorCode.KAFKA_STORAGE_ERROR}
        assert not node.parked_produces
        partition = node.partitions.find("a", 0)
        assert partition is not None and partition.leader.parked_count == 0

    virtually(scenario)
