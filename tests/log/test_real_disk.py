"""A log's whole life on the real disk, with harm done to its files from outside."""

import asyncio
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from log.bench import ALL, DIRECTORY, FIRST_MS, Bench, bases_in, run

from penstock.errors import DiskFailed
from penstock.log.config import DAY_MS
from penstock.log.faults import LogDamaged
from penstock.server.disk import RealDisk


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[RealDisk]:
    disk = RealDisk(str(tmp_path))
    yield disk
    disk.shut()


def test_a_log_lives_through_rolls_checkpoints_retention_and_restarts(disk: RealDisk) -> None:
    async def story() -> None:
        bench = Bench(disk)
        await bench.open()
        bench.append(40)
        await bench.checkpoint()
        bench.append(20, epoch=1)
        await bench.close()
        await bench.open(is_clean=True)
        assert (bench.log.end_offset, bench.log.report.scanned_batches) == (60, 0)
        assert bases_in(await bench.read_all()) == list(range(60))
        found = await bench.log.find_timestamp(FIRST_MS + 33, ALL)
        assert found is not None
        assert found.offset == 33
        bench.append(5, epoch=1)
        bench.log.abandon()
        await bench.open()
        assert (bench.log.end_offset, bench.log.flushed_end, bench.log.report.scanned_batches) == (65, 65, 5)
        assert await bench.retain(FIRST_MS + 30 * DAY_MS)
        bench.append(3, epoch=2)
        await bench.close()
        await bench.open(is_clean=True)
        assert (bench.log.start_offset, bench.log.end_offset) == (65, 68)
        assert bench.seen == list(range(68))
        assert [name for name in disk.list(DIRECTORY) if name.endswith(".log")] == ["00000000000000000065.log"]

    run(story())


def test_a_torn_tail_is_cut_and_damage_is_not(disk: RealDisk, tmp_path: Path) -> None:
    async def story() -> None:
        bench = Bench(disk)
        await bench.open()
        bench.append(20)
        bench.log.abandon()
        os.truncate(tmp_path / bench.path(11), 171 * 8 + 50)
        await bench.open()
        assert (bench.log.end_offset, bench.log.report.cut_bytes) == (19, 50)
        bench.log.abandon()
        with (tmp_path / bench.path(11)).open("r+b") as file:
            file.seek(171 * 2 + 80)
            file.write(b"!")
        await bench.open()
        assert bench.log.failure is not None
        assert bench.log.end_offset == 13
        assert bases_in(await bench.read_all()) == list(range(13))

    run(story())


def test_a_file_that_shrinks_under_an_open_log_is_damage(disk: RealDisk, tmp_path: Path) -> None:
    async def story() -> None:
        bench = Bench(disk)
        await bench.open()
        bench.append(9)
        await bench.log.flush()
        os.truncate(tmp_path / bench.path(0), 500)
        with pytest.raises(LogDamaged):
            await bench.log.read_later(5, bytes_max=1, end_offset=ALL)

    run(story())


def test_a_log_whose_directory_is_removed_says_so_instead_of_ending_the_node(disk: RealDisk) -> None:
    async def story() -> None:
        bench = Bench(disk)
        await bench.open()
        bench.append(9)
        captured = bench.log.begin_checkpoint(b"")
        await bench.log.flush()
        disk.unlink(DIRECTORY)
        with pytest.raises(DiskFailed):
            await bench.log.write_checkpoint(captured)

    run(story())


def test_readers_checkpoints_and_flushes_go_on_beside_appends(disk: RealDisk) -> None:
    async def story() -> None:
        bench = Bench(disk)
        await bench.open()
        bench.append(10)

        async def read_on() -> int:
            offset = 0
            while offset < 300:
                batches = await bench.log.read_later(offset, bytes_max=2_000, end_offset=ALL)
                bases = bases_in(batches)
                assert bases == list(range(offset, offset + len(bases)))
                offset += len(bases)
                await asyncio.sleep(0)
            return offset

        readers = [asyncio.create_task(read_on()) for _ in range(4)]
        while bench.log.end_offset < 300:
            bench.append(7)
            if bench.log.end_offset % 3 == 0:
                await bench.log.flush()
            if bench.log.wants_checkpoint:
                await bench.checkpoint()
            await asyncio.sleep(0)
        for reader in readers:
            assert await reader >= 300
        await bench.log.flush()
        assert bench.log.flushed_end == bench.log.end_offset

    run(story())
