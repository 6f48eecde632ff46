"""What simulated seeds found in the log, each told again by itself."""

import pytest
from log.bench import DIRECTORY, FIRST_MS, Bench, bases_in, run

from penstock.errors import DiskFailed
from penstock.log.checkpoint import CHECKPOINT
from penstock.log.config import LogConfig
from penstock.simulator.disk import SimDisk
from penstock.simulator.platter import SECTOR_BYTES, Loss

FIVE_A_SEGMENT = LogConfig(segment_bytes=900, retention_ms=1_000)
OLD = FIRST_MS + 100_000


def test_a_log_whose_first_write_failed_opens_empty() -> None:
    async def story() -> None:
        disk = SimDisk()
        bench = Bench(disk)
        await bench.open()
        disk.fail_next_write()
        with pytest.raises(DiskFailed):
            bench.append()
        disk.lose(bench.path(0))
        disk.kill()
        await bench.open()
        assert (bench.log.end_offset, bench.log.failure) == (0, None)
        bench.append()

    run(story())


def test_a_flush_that_fails_during_recovery_is_not_made_good_by_the_next_one() -> None:
    async def story() -> None:
        disk = SimDisk()
        bench = Bench(disk)
        await bench.open()
        bench.append(3)
        disk.kill()  # The three are in the machine's memory.
        disk.fail_next_flush(bench.path(0))
        await bench.open()
        assert bench.log.failure is not None
        disk.kill()
        await bench.open()
        assert (bench.log.end_offset, bench.log.failure) == (3, None)
        disk.power_cut(Loss.ALL)
        await bench.open()
        assert bench.log.end_offset == 3, "whoever read them was told that they are safe"

    run(story())


def test_records_that_come_while_retention_is_at_work_are_not_taken_by_it() -> None:
    async def story() -> None:
        bench = Bench(SimDisk(), FIVE_A_SEGMENT)
        await bench.open()
        bench.append(3)
        plan = bench.log.expired(OLD, 3)
        assert plan is not None and plan.start_offset == 3
        await bench.checkpoint()
        bench.append(4)  # Two more fit into the segment of the plan; then it is closed.
        await bench.log.delete_segments(plan)
        assert bases_in(await bench.read_all()) == list(range(7))

    run(story())


def test_nobody_is_told_of_a_start_that_could_go_back() -> None:
    async def story() -> None:
        disk = SimDisk()
        bench = Bench(disk, FIVE_A_SEGMENT)
        await bench.open()
        bench.append(12)
        plan = bench.log.expired(OLD, 12)
        assert plan is not None
        await bench.checkpoint()
        disk.fail_next_write()
        with pytest.raises(DiskFailed):
            await bench.log.delete_segments(plan)
        assert bench.log.start_offset == 0
        disk.power_cut(Loss.ALL)
        await bench.open()
        assert bench.log.start_offset == 0

    run(story())


def test_a_young_log_never_begins_after_a_hole() -> None:
    """Names that were not flushed are lost one by one. A log that has lost its first one would seem to have been cut by retention."""

    async def story(seed: int) -> int:
        disk = SimDisk(seed)
        bench = Bench(disk, FIVE_A_SEGMENT)
        await bench.open()
        bench.append(20)
        disk.power_cut(Loss.SECTORS)
        await bench.open()
        assert (bench.log.start_offset, bench.log.failure) == (0, None)
        assert bases_in(await bench.read_all()) == list(range(bench.log.end_offset))
        return bench.log.end_offset

    assert len({run(story(seed)) for seed in range(60)}) > 1


def test_a_checkpoint_whose_name_was_lost_by_a_failed_flush_takes_no_segment_with_it() -> None:
    async def story() -> None:
        disk = SimDisk()
        bench = Bench(disk, FIVE_A_SEGMENT)
        await bench.open()
        bench.append(12)
        plan = bench.log.expired(OLD, 10)
        assert plan is not None
        await bench.checkpoint()
        disk.fail_next_flush(DIRECTORY)
        with pytest.raises(DiskFailed):
            await bench.log.delete_segments(plan)
        disk.kill()
        await bench.open()
        assert bench.log.failure is None
        disk.power_cut(Loss.ALL)
        await bench.open()
        assert bench.log.failure is None, "the checkpoint on the disk and the segments belong together"
        assert bases_in(await bench.read_all())[-1] == 11

    run(story())


def test_a_checkpoint_that_cannot_be_read_takes_one_log_offline_and_is_there_again_later() -> None:
    async def story() -> None:
        disk = SimDisk()
        bench = Bench(disk)
        await bench.open()
        bench.append(3)
        await bench.checkpoint()
        assert CHECKPOINT in disk.list(DIRECTORY)
        disk.power_cut(Loss.ALL)
        disk.fail_next_read()
        await bench.open()
        assert bench.log.failure is not None
        disk.power_cut(Loss.ALL)
        await bench.open()
        assert (bench.log.end_offset, bench.log.failure) == (3, None)

    run(story())


def test_a_batch_that_lacks_only_its_offset_was_torn_and_not_changed() -> None:
    """It begins eleven bytes before the end of a sector that was never written. The checksum covers neither offset nor length."""

    async def story() -> None:
        disk = SimDisk()
        bench = Bench(disk, LogConfig())
        await bench.open()
        bench.append(value=b"v" * 325)  # Up to eleven bytes before the end of the second sector.
        bench.append(value=b"v" * 546)
        assert disk.size(bench.log._writing.file) % SECTOR_BYTES == SECTOR_BYTES - 11  # type: ignore[union-attr]
        await bench.log.flush()
        bench.append()
        content = bytearray(disk.snapshot(bench.path(0)))
        torn_at = content.rfind(b"\0" * 7 + b"\2")
        content[torn_at : torn_at + 11] = bytes(11)
        disk.power_cut(Loss.ALL)
        disk.restore(bench.path(0), bytes(content))
        await bench.open()
        assert (bench.log.end_offset, bench.log.failure) == (2, None)

    run(story())
