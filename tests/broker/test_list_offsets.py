"""ListOffsets: where a partition begins, ends, or reaches a time."""

from typing import Any

import pytest
from serving import Line, Serving, batch, produce_body, sequenced, started, virtually

from penstock.errors import ErrorCode
from penstock.simulator.env import SimEnv
from penstock.simulator.world import World
from penstock.wire.api_keys import ApiKey
from penstock.wire.batches import Record, encode_batch
from penstock.wire.compression import Codec

ALL_LOOPS = True

LATEST, EARLIEST, MAX_TIMESTAMP, EARLIEST_LOCAL, LATEST_TIERED, PENDING_UPLOAD = -1, -2, -3, -4, -5, -6
T0 = 1_700_000_000_000


async def find(line: Line, timestamp: int, *, topic: str = "a", version: int = 11, **options: Any) -> Any:
    wish = {"partition_index": options.pop("partition", 0), "current_leader_epoch": options.pop("leader_epoch", -1), "timestamp": timestamp}
    body = {"replica_id": -1, "isolation_level": 0, "topics": [{"name": topic, "partitions": [wish]}]} | options
    return (await line.ask(ApiKey.LIST_OFFSETS, version, **body)).topics[0].partitions[0]


def told(row: Any) -> tuple[int, int, int]:
    return row.error_code, row.timestamp, row.offset


async def test_beginning_and_end_in_every_version(serving: Serving) -> None:
    await serving.open()
    line = await serving.line()
    await line.create("a")
    for version in range(1, 12):
        assert told(await find(line, EARLIEST, version=version)) == (0, -1, 0)
        assert told(await find(line, LATEST, version=version)) == (0, -1, 0)
    await line.produce("a", b"0", b"1", b"2")
    for version in range(1, 12):
        assert told(await find(line, EARLIEST, version=version)) == (0, -1, 0)
        row = await find(line, LATEST, version=version, isolation_level=1)
        assert told(row) == (0, -1, 3)
        assert getattr(row, "leader_epoch", 0) == 0


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.ZSTD])
async def test_a_time_finds_the_first_record_at_or_after_it(serving: Serving, codec: Codec) -> None:
    await serving.open()
    line = await serving.line()
    await line.create("a")
    for base in range(0, 50, 10):  # Not in the order of time within a batch.
        times = [T0 + base + step for step in (0, 7, 3, 9)]
        await line.produce_batch("a", bytes(encode_batch([Record(value=b"v", timestamp_ms=time) for time in times], codec=codec)))
    assert told(await find(line, 0)) == (0, T0, 0)
    assert told(await find(line, T0 + 1)) == (0, T0 + 7, 1)
    assert told(await find(line, T0 + 8)) == (0, T0 + 9, 3)
    assert told(await find(line, T0 + 10)) == (0, T0 + 10, 4)
    assert told(await find(line, T0 + 49)) == (0, T0 + 49, 19)
    assert told(await find(line, T0 + 50)) == (0, -1, -1), "none: neither an error nor the end"
    assert told(await find(line, MAX_TIMESTAMP, version=7)) == (0, T0 + 49, 19)


async def test_the_highest_time_is_that_of_the_first_record_that_has_it(serving: Serving) -> None:
    await serving.open()
    line = await serving.line()
    await line.create("a")
    assert told(await find(line, MAX_TIMESTAMP)) == (0, -1, -1)
    for time in (T0, T0 + 5, T0 + 5, T0 + 2):
        await line.produce_batch("a", batch(b"v", timestamp_ms=time))
    assert told(await find(line, MAX_TIMESTAMP)) == (0, T0 + 5, 1)


async def test_nothing_is_told_of_what_is_not_flushed(serving: Serving) -> None:
    await serving.open()
    line, other = await serving.line(), await serving.line()
    await line.create("a")
    await line.produce_batch("a", batch(b"v", timestamp_ms=T0))
    serving.env.disk.flushes.hold()
    other.send(ApiKey.PRODUCE, **produce_body({"a": {0: batch(b"v", timestamp_ms=T0 + 100)}}))
    await serving.env.disk.flushes.until_waited_for()
    assert told(await find(line, LATEST)) == (0, -1, 1)
    assert told(await find(line, T0 + 1)) == (0, -1, -1)
    assert told(await find(line, MAX_TIMESTAMP)) == (0, T0, 0)


async def test_there_is_one_tier(serving: Serving) -> None:
    await serving.open()
    line = await serving.line()
    await line.create("a")
    await line.produce("a", b"0")
    assert told(await find(line, EARLIEST_LOCAL)) == (0, -1, 0)
    assert told(await find(line, LATEST_TIERED)) == (0, -1, -1)
    assert told(await find(line, PENDING_UPLOAD)) == (0, -1, -1)


@pytest.mark.parametrize(("timestamp", "version"), [(MAX_TIMESTAMP, 6), (EARLIEST_LOCAL, 7), (LATEST_TIERED, 8), (PENDING_UPLOAD, 10)])
async def test_a_name_that_a_version_does_not_know_is_refused(serving: Serving, timestamp: int, version: int) -> None:
    await serving.open()
    line = await serving.line()
    await line.create("a")
    assert (await find(line, timestamp, version=version)).error_code == ErrorCode.UNSUPPORTED_VERSION
    assert (await find(line, timestamp, version=version + 1)).error_code == 0


async def test_what_there_is_not_is_an_error_row(serving: Serving) -> None:
    await serving.open()
    line = await serving.line()
    await line.create("a")
    assert (await find(line, LATEST, topic="b")).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert (await find(line, LATEST, partition=1)).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert (await find(line, LATEST, partition=-1)).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert (await find(line, -77)).error_code == ErrorCode.INVALID_REQUEST
    assert (await find(line, LATEST, replica_id=2)).error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED


async def test_leader_epochs_are_compared_and_told(serving: Serving) -> None:
    await serving.open()
    line = await serving.line()
    await line.create("a")
    await line.produce_batch("a", batch(b"v", timestamp_ms=T0))
    await serving.crash()
    await serving.open()
    line = await serving.line()
    codes = [(await find(line, LATEST, leader_epoch=epoch)).error_code for epoch in (-1, 0, 1, 2)]
    assert codes == [0, ErrorCode.FENCED_LEADER_EPOCH, 0, ErrorCode.UNKNOWN_LEADER_EPOCH]
    await line.produce_batch("a", batch(b"v", timestamp_ms=T0 + 10))
    assert (await find(line, EARLIEST)).leader_epoch == 0, "that of the record there"
    assert (await find(line, LATEST)).leader_epoch == 1
    assert (await find(line, T0)).leader_epoch == 0
    assert (await find(line, T0 + 1)).leader_epoch == 1


def test_the_beginning_moves_with_retention() -> None:
    async def scenario(world: World, env: SimEnv) -> None:
        import asyncio

        _, address = await started(env, retention_check_ms=2_000)
        line = await Line.open(address)
        await line.create("a", segment_bytes=2_000, retention_bytes=3_000)
        for sequence in range(20):
            await line.produce_batch("a", sequenced(1, sequence, bytes(900), timestamp_ms=env.wall_ms()))
            await asyncio.sleep(0.1)
        await asyncio.sleep(5)
        _, _, start = told(await find(line, EARLIEST))
        assert 10 < start < 20
        code, _, offset = told(await find(line, 0))
        assert (code, offset) == (0, start), "what is gone is not found"
        assert told(await find(line, LATEST)) == (0, -1, 20)

    virtually(scenario)
