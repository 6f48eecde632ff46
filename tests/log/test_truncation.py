"""A follower cuts what its leader never had, durably, and goes on from there."""

import pytest
from log.bench import DIRECTORY, SMALL, Bench, bases_in, run

from penstock.errors import DiskFull
from penstock.log.config import LogConfig
from penstock.simulator.disk import PowerCut, SimDisk
from penstock.simulator.platter import Loss


@pytest.mark.parametrize("config", [SMALL, LogConfig(index_interval_bytes=300)], ids=["several segments", "one segment"])
def test_a_log_ends_before_the_batch_that_held_the_offset(config: LogConfig) -> None:
    async def story() -> None:
        for offset in range(0, 61, 4):
            disk = SimDisk()
            bench = Bench(disk, config)
            await bench.open()
            bench.append(30, records=2)
            await bench.checkpoint()
            await bench.log.truncate_to(offset + 1)
            end = min(offset - offset % 2, 60)
            assert (bench.log.end_offset, bench.log.flushed_end) == (end, end)
            bench.append(3, epoch=4)
            await bench.log.flush()
            assert list(bench.log.epochs) == ([(0, 0)] if end else []) + [(4, end)]
            disk.power_cut(Loss.ALL)
            await bench.open()
            assert bench.log.failure is None
            assert bases_in(await bench.read_all()) == [*range(0, end, 2), end, end + 1, end + 2]
            newest = await bench.log.max_timestamp(end)
            assert newest is None if not end else newest.offset == end - 1

    run(story())


def test_a_flush_from_before_the_cut_vouches_for_nothing_after_it() -> None:
    async def story() -> None:
        bench = Bench(SimDisk(), SMALL)
        await bench.open()
        bench.append(5)
        ticket = bench.log.begin_flush()
        assert ticket is not None
        await bench.log.truncate_to(2)
        bench.append(1)
        bench.log.end_flush(ticket, [])
        assert bench.log.flushed_end == 2

    run(story())


@pytest.mark.parametrize("count", [1, 5], ids=["it claims what is gone", "its end has been passed again"])
def test_a_checkpoint_captured_before_the_cut_is_never_written(count: int) -> None:
    async def story() -> None:
        disk = SimDisk()
        bench = Bench(disk, SMALL)
        await bench.open()
        bench.append(5)
        captured = bench.log.begin_checkpoint(bench.state())
        await bench.log.flush()
        await bench.log.truncate_to(2)
        bench.append(count)
        await bench.log.flush()
        await bench.log.write_checkpoint(captured)
        assert not disk.exists(f"{DIRECTORY}/checkpoint")

    run(story())


def test_a_power_cut_at_any_operation_of_a_cut_leaves_the_old_end_the_new_one_or_one_between() -> None:
    async def story(moment: int) -> bool:
        disk = SimDisk(moment)
        bench = Bench(disk, SMALL)
        await bench.open()
        bench.append(40)
        await bench.checkpoint()
        disk.crash_at(moment)
        has_crashed = False
        try:
            await bench.log.truncate_to(15)
        except PowerCut:
            has_crashed = True
        disk.power_cut()
        await bench.open()
        assert bench.log.failure is None
        assert 15 <= bench.log.end_offset <= 40
        assert bases_in(await bench.read_all()) == list(range(bench.log.end_offset))
        assert has_crashed or bench.log.end_offset == 15
        return has_crashed

    moment = 1
    while run(story(moment)):
        moment += 1
    assert moment > 5


@pytest.mark.invariant("log.start-offset-durable")
@pytest.mark.parametrize("loss", [Loss.ALL, Loss.NONE, None], ids=["nothing unflushed stays", "all of it stays", "some of it stays"])
@pytest.mark.parametrize("cut", ["within the log", "to begin elsewhere"])
def test_a_power_cut_at_any_operation_of_a_cut_keeps_a_start_that_was_moved(cut: str, loss: Loss | None) -> None:
    async def story(moment: int) -> bool:
        disk = SimDisk(moment)
        bench = Bench(disk, SMALL)
        await bench.open()
        bench.append(40)
        await bench.log.flush()
        await bench.checkpoint()
        await bench.log.write_checkpoint(bench.log.begin_checkpoint(bench.state(), start_offset=7))
        bench.log.raise_start(7)
        disk.crash_at(moment)
        has_crashed = False
        try:
            await (bench.log.truncate_to(15) if cut == "within the log" else bench.log.start_over(50))
        except PowerCut:
            has_crashed = True
        disk.power_cut(loss)
        await bench.open()
        assert bench.log.failure is None
        assert bench.log.start_offset in ((7,) if cut == "within the log" else (7, 50))
        assert bench.log.is_start_known
        assert bases_in(await bench.read_all()) == list(range(bench.log.start_offset, bench.log.end_offset))
        return has_crashed

    moment = 1
    while run(story(moment)):
        moment += 1
    assert moment > 5


def test_a_full_disk_refuses_a_cut_that_can_be_tried_again() -> None:
    async def story() -> None:
        disk = SimDisk()
        bench = Bench(disk, SMALL)
        await bench.open()
        bench.append(40)
        await bench.log.flush()
        await bench.log.write_checkpoint(bench.log.begin_checkpoint(bench.state(), start_offset=7))
        bench.log.raise_start(7)
        disk.capacity_bytes = 1
        with pytest.raises(DiskFull):
            await bench.log.truncate_to(15)
        assert (bench.log.failure, bench.log.end_offset) == (None, 40)
        disk.pacify()
        await bench.log.truncate_to(15)
        assert bases_in(await bench.read_all()) == list(range(7, 15))

    run(story())


def test_no_checkpoint_vouches_for_an_owner_whose_batches_were_cut_until_it_is_rebuilt() -> None:
    async def story() -> None:
        disk = SimDisk()
        bench = Bench(disk, SMALL)
        await bench.open()
        bench.append(5)
        await bench.log.flush()
        await bench.log.truncate_to(2)
        assert bench.log.owner_is_void and not bench.log.wants_checkpoint
        half_way = bench.log.begin_checkpoint(bench.state())
        await bench.log.write_checkpoint(half_way)
        bench.log.owner_is_rebuilt()
        await bench.log.write_checkpoint(half_way)
        assert not disk.exists(f"{DIRECTORY}/checkpoint"), "what was captured before it was rebuilt is never written"
        await bench.log.write_checkpoint(bench.log.begin_checkpoint(bench.state()))
        assert disk.exists(f"{DIRECTORY}/checkpoint")

    run(story())
