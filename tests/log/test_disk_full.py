"""A full disk refuses, loses nothing, and goes on when there is room again. Row 21 of the checklist."""

from itertools import count

import pytest
from log.bench import FIRST_MS, SMALL, Bench, bases_in, batch_at, run

from penstock.errors import DiskFailed, DiskFull
from penstock.log.config import DAY_MS, LogConfig
from penstock.simulator.disk import UNLIMITED_BYTES, SimDisk
from penstock.wire.batches import read_header


@pytest.mark.invariant("log.disk-full-undoes-append")
@pytest.mark.parametrize("config", [LogConfig(), SMALL], ids=["in a segment", "at a roll"])
def test_room_that_ends_at_any_byte_of_an_append_undoes_it_whole(config: LogConfig) -> None:
    async def story() -> None:
        for room in range(171):
            disk = SimDisk(seed=room)
            bench = Bench(disk, config)
            await bench.open()
            bench.append(11)  # The next one rolls, if segments are small.
            await bench.log.flush()
            used = UNLIMITED_BYTES - disk.free_bytes()
            disk.capacity_bytes = used + room
            for _ in range(2):
                with pytest.raises(DiskFull):
                    bench.append(1)
            assert (bench.log.failure, bench.log.end_offset) == (None, 11)
            assert disk.free_bytes() == room, "what was written of it is gone again"
            assert bases_in(await bench.read_all()) == list(range(11)), "reads go on"
            await bench.log.flush()
            disk.capacity_bytes = UNLIMITED_BYTES
            bench.append(2)
            await bench.log.flush()
            disk.power_cut()
            await bench.open()
            assert (bench.log.failure, bench.log.end_offset) == (None, 13)
            assert bases_in(await bench.read_all()) == list(range(13))

    run(story())


@pytest.mark.invariant("log.disk-full-undoes-append", "log.names-durable-first")
@pytest.mark.parametrize("first", ["an append", "a start elsewhere"])
def test_a_log_that_was_opened_on_a_full_disk_goes_on_when_there_is_room(first: str) -> None:
    async def story() -> None:
        disk = SimDisk(seed=1)
        disk.capacity_bytes = 0
        bench = Bench(disk)
        await bench.open()
        assert (bench.log.failure, bench.log.end_offset) == (None, 0)
        for _ in range(2):
            with pytest.raises(DiskFull):
                bench.append(1)
            with pytest.raises(DiskFull):
                await bench.log.start_over(20)
        assert bench.log.failure is None
        assert bases_in(await bench.read_all()) == []
        disk.capacity_bytes = UNLIMITED_BYTES
        base = 0
        if first == "a start elsewhere":
            await bench.log.start_over(20)
            bench.log.owner_is_rebuilt()
            base = 20
        bench.append(3)
        await bench.log.flush()
        disk.power_cut()
        await bench.open()
        assert (bench.log.failure, bench.log.end_offset) == (None, base + 3)

    run(story())


def test_an_append_that_cannot_even_be_undone_takes_the_log_offline() -> None:
    async def story() -> None:
        disk = Stubborn()
        bench = Bench(disk)
        await bench.open()
        bench.append(3)
        disk.capacity_bytes = 171 * 3 + 20
        with pytest.raises(DiskFull):
            bench.append(1)
        assert bench.log.failure is not None
        assert bases_in(await bench.read_all()) == [0, 1, 2]

    run(story())


class Stubborn(SimDisk):
    def truncate(self, file: object, size: int) -> None:
        raise DiskFailed("no truncation here")


def test_a_checkpoint_without_room_leaves_the_old_one_and_the_log_goes_on() -> None:
    async def story() -> None:
        disk = SimDisk()
        bench = Bench(disk)
        await bench.open()
        bench.append(5)
        await bench.checkpoint()
        bench.append(5)
        disk.capacity_bytes = UNLIMITED_BYTES - disk.free_bytes() + 10
        with pytest.raises(DiskFull):
            await bench.checkpoint()
        assert bench.log.failure is None
        disk.capacity_bytes = UNLIMITED_BYTES
        bench.append(1)
        await bench.log.flush()
        disk.power_cut()
        await bench.open()
        assert bench.log.end_offset == 11
        assert bench.seen == list(range(11))

    run(story())


def test_retention_frees_a_disk_that_is_full_to_the_last_byte() -> None:
    async def story() -> None:
        disk = SimDisk()
        bench = Bench(disk)
        await bench.open()
        bench.append(60)
        await bench.checkpoint()
        await bench.checkpoint()
        disk.capacity_bytes = UNLIMITED_BYTES - disk.free_bytes() + 1  # Room for a name, but not for a byte more than was there.
        plan = bench.log.expired(FIRST_MS + 30 * DAY_MS, 60)
        assert plan is not None
        await bench.log.delete_segments(plan)
        assert disk.free_bytes() > 60 * 171
        bench.append(5)
        await bench.log.flush()
        disk.power_cut()
        await bench.open()
        assert (bench.log.failure, bench.log.start_offset, bench.log.end_offset) == (None, 60, 65)

    run(story())


def test_a_closed_log_on_a_full_disk_opens_again_by_a_scan() -> None:
    async def story() -> None:
        disk = SimDisk()
        bench = Bench(disk)
        await bench.open()
        bench.append(7)
        disk.capacity_bytes = UNLIMITED_BYTES - disk.free_bytes()
        with pytest.raises(DiskFull):
            await bench.close()
        assert len(bench.files) == 0
        await bench.open()
        assert (bench.log.failure, bench.log.end_offset) == (None, 7)

    run(story())


def test_recovery_needs_no_room() -> None:
    """Not even for the indexes that it makes anew."""

    async def story() -> None:
        disk = SimDisk()
        bench = Bench(disk)
        await bench.open()
        bench.append(50)
        await bench.log.flush()
        disk.kill()
        disk.capacity_bytes = UNLIMITED_BYTES - disk.free_bytes()
        await bench.open()
        assert (bench.log.failure, bench.log.end_offset) == (None, 50)
        assert bases_in(await bench.read_all()) == list(range(50))

    run(story())


def test_whatever_the_disk_does_an_append_either_is_there_whole_or_raises() -> None:
    async def story() -> None:
        disk = SimDisk(seed=5)
        bench = Bench(disk)
        await bench.open()
        for number in count():
            disk.capacity_bytes = UNLIMITED_BYTES - disk.free_bytes() + number * 37 % 400
            before = bench.log.end_offset
            batch = batch_at(before, value=b"%d" % number * (number % 60))
            try:
                bench.log.append(batch, read_header(batch))
                assert bench.log.end_offset == before + 1
            except DiskFull:
                assert bench.log.end_offset == before
            if number == 200:
                break
        assert bases_in(await bench.read_all()) == list(range(bench.log.end_offset))
        assert bench.log.end_offset > 50

    run(story())
