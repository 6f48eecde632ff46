"""Old segments go whole, oldest first, and only as far as allowed. Row 22 of the checklist."""

from contextlib import suppress

import pytest
from log.bench import ALL, DIRECTORY, FIRST_MS, Bench, bases_in, run

from penstock.errors import DiskFailed
from penstock.log.config import DAY_MS, LogConfig
from penstock.log.faults import OffsetOutOfRange
from penstock.simulator.disk import PowerCut, SimDisk
from penstock.simulator.platter import Loss

FIVE_A_SEGMENT = LogConfig(segment_bytes=900, retention_ms=DAY_MS, index_interval_bytes=300)


async def write(disk: SimDisk, config: LogConfig = FIVE_A_SEGMENT, segments: int = 4, hours: int = 12) -> Bench:
    """Segments of five batches, each so many hours younger than the one before."""
    bench = Bench(disk, config)
    await bench.open()
    for number in range(segments):
        for _ in range(5):
            bench.append(1, timestamps=(FIRST_MS + number * hours * DAY_MS // 24,))
    await bench.log.flush()
    return bench


def test_a_segment_goes_when_its_newest_record_is_too_old() -> None:
    async def story() -> None:
        disk = SimDisk()
        bench = await write(disk)
        for days, start in ((1.0, 0), (1.01, 5), (1.51, 10), (2.01, 15)):
            await bench.retain(FIRST_MS + int(days * DAY_MS))
            assert bench.log.start_offset == start
            assert disk.exists(bench.path(start))
            assert not disk.exists(bench.path(start - 5))
        assert bases_in(await bench.read_all()) == [15, 16, 17, 18, 19]
        with pytest.raises(OffsetOutOfRange):
            bench.log.read(14, bytes_max=1, end_offset=ALL)

    run(story())


def test_one_record_that_is_young_keeps_its_segment_and_all_after_it() -> None:
    async def story() -> None:
        bench = Bench(SimDisk(), FIVE_A_SEGMENT)
        await bench.open()
        bench.append(7, timestamps=(FIRST_MS,))
        bench.append(1, timestamps=(FIRST_MS + 9 * DAY_MS,))
        bench.append(12, timestamps=(FIRST_MS,))
        await bench.retain(FIRST_MS + 5 * DAY_MS)
        assert bench.log.start_offset == 5

    run(story())


def test_the_active_segment_goes_too_when_all_of_it_is_old_and_the_log_goes_on() -> None:
    async def story() -> None:
        disk = SimDisk()
        bench = await write(disk)
        assert await bench.retain(FIRST_MS + 30 * DAY_MS)
        assert (bench.log.start_offset, bench.log.end_offset, bench.log.size_bytes) == (20, 20, 0)
        assert not await bench.retain(FIRST_MS + 30 * DAY_MS), "an empty segment does not go"
        disk.power_cut(Loss.ALL)
        await bench.open()
        assert (bench.log.failure, bench.log.start_offset, bench.log.end_offset) == (None, 20, 20)
        bench.append(3)
        assert bases_in(await bench.read_all()) == [20, 21, 22]

    run(story())


def test_an_active_segment_that_grew_after_the_plan_stays() -> None:
    async def story() -> None:
        bench = await write(SimDisk())
        plan = bench.log.expired(FIRST_MS + 30 * DAY_MS, 20)
        assert plan is not None
        bench.append(1)
        await bench.checkpoint()
        await bench.log.delete_segments(plan)
        assert bench.log.start_offset == 20, "the twenty-first rolled"
        plan = bench.log.expired(FIRST_MS + 60 * DAY_MS, 21)
        assert plan is not None
        bench.append(1)
        await bench.checkpoint()
        await bench.log.delete_segments(plan)
        assert bases_in(await bench.read_all()) == [20, 21]

    run(story())


def test_the_oldest_go_while_the_log_is_a_segment_larger_than_allowed() -> None:
    async def story() -> None:
        for allowed, start in ((4 * 855, 0), (3 * 855, 5), (3 * 855 - 1, 5), (2 * 855, 10), (855, 15), (0, 20)):
            config = LogConfig(segment_bytes=900, retention_ms=-1, retention_bytes=allowed)
            bench = await write(SimDisk(), config)
            await bench.retain(FIRST_MS + 99 * DAY_MS)
            assert bench.log.start_offset == start, f"{allowed} bytes allowed"

    run(story())


def test_without_bounds_nothing_goes() -> None:
    async def story() -> None:
        bench = await write(SimDisk(), LogConfig(segment_bytes=900, retention_ms=-1, retention_bytes=-1))
        assert bench.log.expired(FIRST_MS + 9_999 * DAY_MS, 20) is None

    run(story())


def test_nothing_at_or_above_the_watermark_goes() -> None:
    async def story() -> None:
        bench = await write(SimDisk())
        plan = bench.log.expired(FIRST_MS + 30 * DAY_MS, 14)
        assert plan is not None
        assert (len(plan.segments), plan.start_offset) == (2, 10)
        assert bench.log.expired(FIRST_MS + 30 * DAY_MS, 4) is None

    run(story())


def test_segments_below_a_start_that_was_moved_go_whatever_their_age() -> None:
    async def story() -> None:
        disk = SimDisk()
        bench = await write(disk)
        bench.log.raise_start(12)
        assert await bench.retain(FIRST_MS)
        assert bench.log.start_offset == 12
        assert [path for path in disk.files() if path.endswith(".log")] == [bench.path(10), bench.path(15)]
        disk.power_cut(Loss.ALL)
        await bench.open()
        assert (bench.log.failure, bench.log.start_offset) == (None, 12)

    run(story())


def test_records_without_a_time_are_as_old_as_the_next_segment() -> None:
    async def story() -> None:
        bench = Bench(SimDisk(), FIVE_A_SEGMENT)
        await bench.open()
        for day in range(4):
            bench.env.wall = FIRST_MS + day * DAY_MS
            bench.append(5, timestamps=(-1,))
        await bench.retain(FIRST_MS + int(2.5 * DAY_MS))
        assert bench.log.start_offset == 5

    run(story())


def test_nothing_goes_that_no_checkpoint_covers() -> None:
    """What the owner built from those batches (its producers) would be lost with them."""

    async def story() -> None:
        disk = SimDisk()
        bench = await write(disk)
        plan = bench.log.expired(FIRST_MS + 30 * DAY_MS, 20)
        assert plan is not None
        with pytest.raises(DiskFailed, match="no checkpoint covers"):
            await bench.log.delete_segments(plan)
        assert (bench.log.failure, bench.log.start_offset) == (None, 0)
        await bench.checkpoint()
        await bench.log.delete_segments(plan)
        disk.power_cut(Loss.ALL)
        await bench.open()
        assert bench.seen == list(range(20))

    run(story())


def test_a_checkpoint_captured_before_a_deletion_does_not_bring_the_files_back() -> None:
    async def story() -> None:
        disk = SimDisk()
        bench = await write(disk)
        await bench.checkpoint()
        captured = bench.log.begin_checkpoint(bench.state())
        plan = bench.log.expired(FIRST_MS + int(1.6 * DAY_MS), 20)
        assert plan is not None
        await bench.log.delete_segments(plan)
        await bench.log.write_checkpoint(captured)
        disk.power_cut(Loss.ALL)
        await bench.open()
        assert (bench.log.failure, bench.log.start_offset, bench.log.end_offset) == (None, 10, 20)

    run(story())


@pytest.mark.invariant("log.deletion-durable-first")
def test_files_are_unlinked_only_once_it_is_durable_that_they_go() -> None:
    async def story(moment: int) -> bool:
        unlinked: list[str] = []
        disk = SimDisk(tell=lambda operation, path, size: unlinked.append(path) if operation == "unlink" else None)
        bench = await write(disk)
        await bench.checkpoint()
        plan = bench.log.expired(FIRST_MS + int(1.6 * DAY_MS), 20)
        assert plan is not None
        disk.crash_at(moment)
        with suppress(PowerCut):
            await bench.log.delete_segments(plan)
        disk.power_cut(Loss.ALL)
        if unlinked:
            assert disk.exists(bench.path(0) + ".deleted")
            assert disk.exists(bench.path(5) + ".deleted")
        return bool(unlinked)

    moment = 1
    while not run(story(moment)):
        moment += 1
    assert moment > 5


def test_a_checkpoint_captured_during_a_deletion_lists_only_what_stays() -> None:
    async def story() -> None:
        disk = SimDisk()
        bench = await write(disk)
        await bench.checkpoint()
        plan = bench.log.expired(FIRST_MS + int(1.6 * DAY_MS), 20)
        assert plan is not None
        deleting = bench.log.delete_segments(plan)
        deleting.send(None)  # It waits for its own checkpoint.
        captured = bench.log.begin_checkpoint(bench.state())
        with pytest.raises(StopIteration):
            while True:
                deleting.send(None)
        await bench.log.write_checkpoint(captured)
        disk.power_cut(Loss.ALL)
        await bench.open()
        assert (bench.log.failure, bench.log.start_offset, bench.log.end_offset) == (None, 10, 20)

    run(story())


@pytest.mark.invariant("log.deletion-durable-first")
def test_leftovers_of_a_deletion_are_swept_at_the_next_start() -> None:
    async def story() -> None:
        disk = SimDisk()
        bench = await write(disk)
        await bench.retain(FIRST_MS + int(1.6 * DAY_MS))
        for name in ("00000000000000000005.log", "00000000000000000000.log.deleted", "checkpoint.tmp", "00000000000000000099.log.dropped"):
            disk.append(disk.open(f"{DIRECTORY}/{name}", create=True), (b"left over",))
        disk.kill()
        await bench.open()
        assert (bench.log.failure, bench.log.start_offset) == (None, 10)
        assert [path.rpartition("/")[2] for path in disk.files()] == [
            "00000000000000000010.index", "00000000000000000010.log", "00000000000000000015.log", "checkpoint", "checkpoint.previous",
        ]  # fmt: skip

    run(story())


def test_a_deletion_without_a_readable_checkpoint_is_still_told_from_a_loss() -> None:
    """Renames may reach the disk in any order: the second segment is gone, the first is not, and a name tells why."""

    async def story() -> None:
        disk = SimDisk()
        bench = await write(disk)
        disk.rename(bench.path(5), bench.path(5) + ".deleted")
        disk.kill()
        await bench.open()
        assert (bench.log.failure, bench.log.start_offset, bench.log.end_offset) == (None, 10, 20)

    run(story())


def test_epochs_of_what_has_gone_are_forgotten_but_for_the_one_that_the_log_starts_in() -> None:
    async def story() -> None:
        bench = Bench(SimDisk(), FIVE_A_SEGMENT)
        await bench.open()
        for epoch in range(10):
            bench.append(2, epoch=epoch)
        bench.log.raise_start(11)
        await bench.retain(FIRST_MS)
        assert list(bench.log.epochs) == [(5, 10), (6, 12), (7, 14), (8, 16), (9, 18)]
        assert bases_in(await bench.read_all()) == list(range(11, 20))
        await bench.close()
        await bench.open(is_clean=True)
        assert next(iter(bench.log.epochs)) == (5, 10)
        assert bases_in(await bench.read_all()) == list(range(11, 20))

    run(story())
