"""Records are found by their time, in whatever order the times stand."""

from random import Random

import pytest
from log.bench import ALL, FIRST_MS, SMALL, Bench, run

from penstock.log.config import LogConfig
from penstock.simulator.disk import SimDisk
from penstock.wire.batches import Record, encode_batch, read_header, stamp_append_time


async def write(bench: Bench, times: list[tuple[int, ...]], **kwargs: int) -> list[tuple[int, int]]:
    """Appends a batch for each row; returns (timestamp, offset) of all records."""
    if not hasattr(bench, "log"):
        await bench.open()
    known = []
    for row in times:
        known += [(timestamp, bench.log.end_offset + delta) for delta, timestamp in enumerate(row)]
        bench.append(1, timestamps=row, **kwargs)
    return known


def first(known: list[tuple[int, int]], timestamp: int, start: int, end: int) -> tuple[int, int] | None:
    return next(((time, offset) for time, offset in known if time >= timestamp and start <= offset < end), None)


def highest(known: list[tuple[int, int]], start: int, end: int) -> tuple[int, int] | None:
    inside = [(time, -offset) for time, offset in known if start <= offset < end and time >= 0]
    return (max(inside)[0], -max(inside)[1]) if inside else None


@pytest.mark.parametrize("seed", range(6))
def test_a_lookup_finds_what_a_look_at_every_record_finds(seed: int) -> None:
    async def story() -> None:
        rng = Random(seed)
        disk = SimDisk()
        bench = Bench(disk, LogConfig(segment_bytes=rng.choice([400, 1_500, 50_000]), index_interval_bytes=rng.choice([1, 300, 2_000])))
        disorder = rng.choice([0, 3, 50])
        times = [
            tuple(max(-1, 10 * row + rng.randint(-disorder, disorder)) for _ in range(rng.randint(1, 4)))
            for row in range(rng.randint(20, 50))
        ]
        known = await write(bench, times)
        await bench.log.flush()
        for life in range(3):
            end = bench.log.end_offset
            bench.log.raise_start(life * end // 5)
            start = bench.log.start_offset
            for _ in range(60):
                timestamp, end_offset = rng.randint(-5, 10 * len(times) + 60), rng.randint(start, end + 3)
                found = await bench.log.find_timestamp(timestamp, end_offset)
                assert (found and (found.timestamp, found.offset)) == first(known, timestamp, start, end_offset)
                newest = await bench.log.max_timestamp(end_offset)
                assert (newest and (newest.timestamp, newest.offset)) == highest(known, start, end_offset)
            await bench.close()
            await bench.open(is_clean=life == 0)

    run(story())


def test_the_answer_tells_the_leader_epoch() -> None:
    async def story() -> None:
        bench = Bench(SimDisk(), SMALL)
        await write(bench, [(5,), (6,)], epoch=2)
        await write(bench, [(7, 8), (9,)], epoch=5)
        assert await bench.log.find_timestamp(6, ALL) == (6, 1, 2)
        assert await bench.log.find_timestamp(8, ALL) == (8, 3, 5)
        assert await bench.log.max_timestamp(ALL) == (9, 4, 5)
        assert await bench.log.max_timestamp(2) == (6, 1, 2)

    run(story())


def test_an_empty_log_and_times_past_all_records_have_no_answer() -> None:
    async def story() -> None:
        bench = Bench(SimDisk(), SMALL)
        await bench.open()
        assert await bench.log.find_timestamp(0, ALL) is None
        assert await bench.log.max_timestamp(ALL) is None
        await write(bench, [(5,), (-1,)])
        assert await bench.log.find_timestamp(6, ALL) is None
        assert await bench.log.find_timestamp(0, 0) is None

    run(story())


def test_records_without_a_time_have_no_newest() -> None:
    async def story() -> None:
        bench = Bench(SimDisk(), SMALL)
        await write(bench, [(-1,), (-1,)])
        assert await bench.log.max_timestamp(ALL) is None

    run(story())


@pytest.mark.parametrize("codec", range(5))
def test_the_record_inside_a_compressed_batch_is_found(codec: int) -> None:
    async def story() -> None:
        bench = Bench(SimDisk(), SMALL)
        await bench.open()
        records = [Record(value=b"v", timestamp_ms=timestamp) for timestamp in (10, 40, 20, 30)]
        batch = encode_batch(records, leader_epoch=0, codec=codec)
        bench.log.append(batch, read_header(batch))
        assert await bench.log.find_timestamp(15, ALL) == (40, 1, 0)
        assert await bench.log.find_timestamp(5, ALL) == (10, 0, 0)
        assert await bench.log.max_timestamp(ALL) == (40, 1, 0)

    run(story())


def test_with_append_time_the_first_record_of_the_batch_is_the_answer() -> None:
    async def story() -> None:
        bench = Bench(SimDisk(), SMALL)
        await bench.open()
        for number in range(3):
            batch = encode_batch([Record(timestamp_ms=7)] * 4, base_offset=4 * number, leader_epoch=0)
            stamp_append_time(batch, FIRST_MS + number)
            bench.log.append(batch, read_header(batch))
        assert await bench.log.find_timestamp(FIRST_MS + 1, ALL) == (FIRST_MS + 1, 4, 0)
        assert await bench.log.max_timestamp(ALL) == (FIRST_MS + 2, 8, 0)

    run(story())


def test_the_first_of_very_many_records_is_found_by_the_compiled_walk() -> None:
    """A small batch can hold millions of records; to make an object of each would take minutes."""

    async def story() -> None:
        bench = Bench(SimDisk(), LogConfig())
        await write(bench, [tuple(range(FIRST_MS, FIRST_MS + 50_000))])
        for wish in (0, 1, 49_999):
            found = await bench.log.find_timestamp(FIRST_MS + wish, ALL)
            assert found is not None
            assert found[:2] == (FIRST_MS + wish, wish)
        assert await bench.log.find_timestamp(FIRST_MS + 50_000, ALL) is None

    run(story())
