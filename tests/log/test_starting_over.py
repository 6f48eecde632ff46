"""A follower whose leader has nothing in common with it any more begins anew, at whatever offset, and no crash leaves a mix of the two."""

import pytest
from log.bench import DIRECTORY, SMALL, Bench, Moment, Outcomes, RecordingDisk, bases_in, run
from log.compacting import Keyed

from penstock.errors import DiskFailed, DiskFull
from penstock.log.config import LogConfig
from penstock.simulator.disk import UNLIMITED_BYTES, SimDisk
from penstock.simulator.platter import Loss

# The log under test begins at 20 and ends at 80; its files begin at various offsets between.
PLACES = (0, 3, 20, 27, 41, 55, 79, 80, 81, 500)


async def used_log(disk: SimDisk, config: LogConfig = SMALL) -> Bench:
    """Some of it retained away, some of it checkpointed, some of it only flushed, the last of it not even that."""
    bench = Bench(disk, config)
    await bench.open()
    bench.append(40, epoch=1)
    bench.log.raise_start(20)
    await bench.checkpoint()
    bench.append(30, epoch=2)
    await bench.log.flush()
    bench.append(10, epoch=2)
    return bench


async def check_empty_at(bench: Bench, offset: int) -> None:
    log = bench.log
    assert (log.start_offset, log.end_offset, log.flushed_end, log.failure) == (offset, offset, offset, None)
    assert list(log.epochs) == []
    assert log.size_bytes == 0
    assert log.read(offset, bytes_max=1, end_offset=offset + 1) == b""


@pytest.mark.parametrize("config", [SMALL, LogConfig(index_interval_bytes=300)], ids=["several segments", "one segment"])
@pytest.mark.parametrize("offset", PLACES)
def test_the_log_is_empty_at_the_offset_and_goes_on_from_there(offset: int, config: LogConfig) -> None:
    async def story() -> None:
        disk = SimDisk()
        bench = await used_log(disk, config)
        await bench.log.start_over(offset)
        await check_empty_at(bench, offset)
        disk.power_cut(Loss.ALL)
        await bench.open()
        await check_empty_at(bench, offset)
        bench.append(30, epoch=1)  # An epoch from before: the history is a new one.
        await bench.log.flush()
        disk.power_cut(Loss.ALL)
        await bench.open()
        assert bench.log.failure is None
        assert bases_in(await bench.read_all()) == list(range(offset, offset + 30))
        assert bench.seen == list(range(offset, offset + 30))
        assert list(bench.log.epochs) == [(1, offset)]
        await bench.close()
        await bench.open(is_clean=True)
        assert bases_in(await bench.read_all()) == list(range(offset, offset + 30))

    run(story())


def test_twice_in_a_row_and_back_again() -> None:
    async def story() -> None:
        disk = SimDisk()
        bench = await used_log(disk)
        for offset in (500, 500, 7, 80, 0):
            await bench.log.start_over(offset)
            await check_empty_at(bench, offset)
            bench.append(25, epoch=9)
        await bench.close()
        await bench.open(is_clean=True)
        assert bases_in(await bench.read_all()) == list(range(25))

    run(story())


def test_a_log_in_which_nothing_was_ever_written_can_begin_anywhere() -> None:
    async def story() -> None:
        bench = Bench(SimDisk())
        await bench.open()
        await bench.log.start_over(77)
        await check_empty_at(bench, 77)
        await bench.close()
        await bench.open(is_clean=True)
        await check_empty_at(bench, 77)

    run(story())


def test_an_empty_log_can_begin_earlier_or_later() -> None:
    async def story() -> None:
        disk = SimDisk()
        bench = Bench(disk)
        await bench.open()
        for offset in (12, 10, 11, 0, 5):
            await bench.log.start_over(offset)
            await check_empty_at(bench, offset)
            disk.power_cut(Loss.ALL)
            await bench.open()
            await check_empty_at(bench, offset)

    run(story())


def test_tickets_and_checkpoints_from_before_vouch_for_nothing_after_it() -> None:
    async def story() -> None:
        disk = SimDisk()
        bench = await used_log(disk)
        captured = bench.log.begin_checkpoint(bench.state())
        ticket = bench.log.begin_flush()
        assert ticket is not None
        await bench.log.start_over(41)
        bench.append(4, epoch=3)
        bench.log.end_flush(ticket, [])
        assert bench.log.flushed_end == 41
        await bench.log.flush()
        await bench.log.write_checkpoint(captured)
        disk.power_cut(Loss.ALL)
        await bench.open()
        assert bases_in(await bench.read_all()) == [41, 42, 43, 44]

    run(story())


@pytest.mark.parametrize("offset", [3, 27, 55, 80, 500])
def test_a_power_cut_at_any_operation_leaves_the_old_log_cut_somewhere_or_the_new_one(offset: int) -> None:
    async def moments() -> list[Moment]:
        disk = RecordingDisk()
        bench = await used_log(disk)
        return await disk.record(bench.log.start_over(offset), lambda: None)

    async def check(disk: SimDisk, loss: Loss | None, *, has_ended: bool) -> None:
        bench = Bench(disk)
        await bench.open()
        await check_one_of_the_two(bench, offset, has_ended=has_ended)
        end = bench.log.end_offset
        bench.append(20, epoch=5)  # Nothing of the other one may turn up behind what is written now.
        await bench.log.flush()
        disk.power_cut(loss)
        await bench.open()
        assert (bench.log.failure, bench.log.end_offset) == (None, end + 20)
        assert bases_in(await bench.read_all())[-20:] == list(range(end, end + 20))

    async def story() -> None:
        recorded = await moments()
        for loss in (*Loss, None):
            for number, moment in enumerate(recorded):
                disk, _ = moment.revive(number)
                disk.power_cut(loss)
                has_ended = moment is recorded[-1]
                if outcomes.is_new(disk, has_ended, loss):
                    await check(disk, loss, has_ended=has_ended)

    outcomes = Outcomes()
    run(story())
    assert outcomes.states >= 110


async def check_one_of_the_two(bench: Bench, offset: int, *, has_ended: bool) -> None:
    log = bench.log
    assert log.failure is None
    is_all_hidden = log.start_offset == log.end_offset and log.size_bytes > 0  # Cut down to what lay before its start.
    if has_ended or ((log.start_offset, log.end_offset) == (offset, offset) and not is_all_hidden):
        await check_empty_at(bench, offset)
        return
    assert 0 <= log.start_offset <= log.end_offset <= 80
    assert bases_in(await bench.read_all()) == list(range(log.start_offset, log.end_offset))
    assert all((epoch, start) in ((1, 0), (2, 40)) for epoch, start in log.epochs)


@pytest.mark.parametrize("offset", [0, 6, 13, 26, 90])
def test_a_compacted_log_starts_over_too(offset: int) -> None:
    async def story() -> None:
        disk = SimDisk()
        bench = Keyed(disk)
        await bench.open()
        for number in range(26):
            bench.put((b"key-%d" % (number % 3), b"%d." % number * 20), epoch=1)
        await bench.compact(stay_seconds=10.0)
        await bench.log.start_over(offset)
        await check_empty_at(bench, offset)
        bench.append(3, epoch=0)
        await bench.log.flush()
        disk.power_cut(Loss.ALL)
        await bench.open()
        assert bench.log.failure is None
        assert bases_in(await bench.read_all()) == [offset, offset + 1, offset + 2]

    run(story())


def test_a_full_disk_lets_it_be_tried_again_and_the_log_goes_on_meanwhile() -> None:
    async def story() -> None:
        disk = SimDisk()
        bench = await used_log(disk)
        disk.capacity_bytes = 1
        with pytest.raises(DiskFull):
            await bench.log.start_over(500)
        assert (bench.log.failure, bench.log.end_offset) == (None, 80)
        disk.capacity_bytes = UNLIMITED_BYTES
        bench.append(1, epoch=2)
        assert bases_in(await bench.read_all())[-1] == 80
        await bench.log.start_over(500)
        await check_empty_at(bench, 500)
        assert [name for name in disk.list(DIRECTORY) if name.endswith(".log")] == [f"{500:020}.log"]

    run(story())


def test_a_disk_that_fails_takes_the_log_offline() -> None:
    async def story() -> None:
        disk = SimDisk()
        bench = await used_log(disk)
        await bench.log.flush()
        disk.fail_next_flush()
        with pytest.raises(DiskFailed):
            await bench.log.start_over(500)
        assert bench.log.failure is not None

    run(story())
