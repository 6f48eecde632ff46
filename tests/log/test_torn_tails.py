"""What a crash leaves at the end of a log is cut off exactly, and nothing else is. Rows 3 and 4 of the checklist."""

import pytest
from log.bench import ALL, SMALL, Bench, bases_in, batch_at, run

from penstock.log.config import LogConfig
from penstock.log.tail import SECTOR_BYTES
from penstock.simulator.disk import SimDisk
from penstock.wire.batches import Record, encode_batch, read_header

ONE_SEGMENT = LogConfig(index_interval_bytes=300)


async def write(
    count: int, *, config: LogConfig = ONE_SEGMENT, checkpoint_after: int = 0, value: bytes = b"v" * 100
) -> tuple[Bench, SimDisk]:
    """A log whose process has ended in disorder, though with everything on the disk."""
    disk = SimDisk()
    bench = Bench(disk, config)
    await bench.open()
    if checkpoint_after:
        bench.append(checkpoint_after, value=value)
        await bench.checkpoint()
    bench.append(count - checkpoint_after, value=value)
    await bench.log.flush()
    disk.kill()
    return bench, disk


@pytest.mark.invariant("log.torn-tail")
@pytest.mark.parametrize("checkpoint_after", [0, 5, 7])
def test_a_file_cut_at_any_byte_of_its_last_three_batches_opens_to_the_whole_ones(checkpoint_after: int) -> None:
    async def story() -> None:
        bench, disk = await write(10, checkpoint_after=checkpoint_after)
        whole = disk.snapshot(bench.path(0))
        size = len(whole) // 10
        for end in range(7 * size, 10 * size + 1):
            disk.restore(bench.path(0), whole[:end])
            log = await bench.open()
            assert log.failure is None
            assert log.end_offset == end // size
            assert log.report.cut_bytes == end % size
            assert bench.seen == list(range(log.end_offset))
            assert await bench.read_all() == whole[: log.end_offset * size]
            assert len(disk.snapshot(bench.path(0))) == log.end_offset * size
            bench.append(2)
            assert bases_in(await bench.read_all()) == list(range(log.end_offset))
            log.abandon()

    run(story())


@pytest.mark.invariant("log.no-cut-below-checkpoint")
def test_a_file_shorter_than_the_checkpoint_says_is_damage_and_is_not_cut() -> None:
    async def story() -> None:
        bench, disk = await write(10, checkpoint_after=8)
        whole = disk.snapshot(bench.path(0))
        disk.restore(bench.path(0), whole[:1_000])
        log = await bench.open()
        assert log.failure is not None
        assert "were flushed" in log.failure
        assert disk.snapshot(bench.path(0)) == whole[:1_000]
        assert bases_in(log.read(0, bytes_max=500, end_offset=ALL)) == [0, 1], "what is left can be read"

    run(story())


@pytest.mark.invariant("log.torn-tail")
@pytest.mark.parametrize("batch_bytes", [100, 700, 3_000])
def test_a_sector_that_was_never_written_ends_the_log_there_though_later_ones_were(batch_bytes: int) -> None:
    """The drive wrote in its own order, and the flush never ended: nothing from the hole on was acknowledged."""

    async def story() -> None:
        bench, disk = await write(12, checkpoint_after=2, value=b"v" * batch_bytes)
        whole = disk.snapshot(bench.path(0))
        size = len(whole) // 12
        first = -(-2 * size // SECTOR_BYTES)
        for sector in range(first, len(whole) // SECTOR_BYTES):
            holed = bytearray(whole)
            holed[sector * SECTOR_BYTES : (sector + 1) * SECTOR_BYTES] = bytes(SECTOR_BYTES)
            disk.restore(bench.path(0), bytes(holed))
            log = await bench.open()
            assert log.failure is None
            good = next(number for number in range(13) if holed[: (number + 1) * size] != whole[: (number + 1) * size] or number == 12)
            assert log.end_offset == good
            assert log.report.cut_bytes == len(whole) - good * size
            assert log.report.notes or not log.report.cut_bytes
            log.abandon()

    run(story())


def test_a_partly_flushed_sector_that_fell_back_is_told_from_damage() -> None:
    """The sector held flushed bytes, so it is not all zeros; only what was appended since is."""

    async def story() -> None:
        bench, disk = await write(20, checkpoint_after=4)
        whole = disk.snapshot(bench.path(0))
        size = len(whole) // 20
        for flushed in range(5, 15):
            holed = bytearray(whole)
            sector_end = -(-flushed * size // SECTOR_BYTES) * SECTOR_BYTES
            holed[flushed * size : sector_end] = bytes(sector_end - flushed * size)
            disk.restore(bench.path(0), bytes(holed))
            log = await bench.open()
            assert log.failure is None
            assert log.end_offset == flushed
            log.abandon()

    run(story())


def test_a_batch_stored_inside_a_torn_batch_does_not_pass_for_the_logs_own() -> None:
    async def story() -> None:
        disk = SimDisk()
        bench = Bench(disk, ONE_SEGMENT)
        await bench.open()
        bench.append(3)
        inner = bytes(batch_at(7)) + bytes(batch_at(8))
        bench.append(1, value=b"." * 100 + inner + b"." * 400)
        await bench.log.flush()
        disk.kill()
        whole = disk.snapshot(bench.path(0))
        disk.restore(bench.path(0), whole[:-200])
        log = await bench.open()
        assert log.failure is None
        assert log.end_offset == 3

    run(story())


def test_a_torn_segment_with_nothing_valid_after_it_is_cut_and_the_empty_ones_go() -> None:
    async def story() -> None:
        bench, disk = await write(30, config=SMALL)
        whole = disk.snapshot(bench.path(11))
        disk.restore(bench.path(11), whole[:400])
        for later in (22,):
            disk.restore(bench.path(later), b"")
        log = await bench.open()
        assert (log.failure, log.end_offset) == (None, 13)
        assert not disk.exists(bench.path(22))
        bench.append(15)
        assert bases_in(await bench.read_all()) == list(range(28))

    run(story())


@pytest.mark.parametrize("left", [0, 1, 7, 30, 170, 171, 171 * 5 + 60])
def test_a_segment_that_ends_too_early_ends_the_log_though_the_next_one_is_there(left: int) -> None:
    """Two segments were unflushed; the drive kept the second one's bytes and not the first one's."""

    async def story() -> None:
        bench, disk = await write(30, config=SMALL)
        disk.restore(bench.path(11), disk.snapshot(bench.path(11))[:left])
        log = await bench.open()
        assert (log.failure, log.end_offset) == (None, 11 + left // 171)
        assert not disk.exists(bench.path(22))
        assert log.report.cut_bytes == left % 171 + 8 * 171

    run(story())


def test_a_segment_whose_name_was_lost_with_the_power_ends_a_young_log() -> None:
    async def story() -> None:
        bench, disk = await write(30, config=SMALL)
        disk.lose(bench.path(11))
        log = await bench.open()
        assert (log.failure, log.end_offset) == (None, 11)
        assert not disk.exists(bench.path(22))

    run(story())


@pytest.mark.parametrize("checkpoints", ["good", "unreadable"])
def test_a_missing_segment_of_a_log_that_had_a_checkpoint_is_damage(checkpoints: str) -> None:
    async def story() -> None:
        disk = SimDisk()
        bench = Bench(disk, SMALL)
        await bench.open()
        bench.append(30)
        await bench.checkpoint()
        disk.kill()
        disk.lose(bench.path(11))
        if checkpoints == "unreadable":
            disk.rot(f"{bench.directory}/checkpoint", 40)
        log = await bench.open()
        assert log.failure is not None
        assert disk.exists(bench.path(22)), "nothing was dropped"
        assert bases_in(log.read(0, bytes_max=400, end_offset=ALL)) == [0, 1]

    run(story())


def test_a_log_of_zeros_only_is_an_empty_log() -> None:
    async def story() -> None:
        bench, disk = await write(5)
        disk.restore(bench.path(0), bytes(3_000_000))
        log = await bench.open()
        assert (log.failure, log.end_offset, log.report.cut_bytes) == (None, 0, 3_000_000)

    run(story())


@pytest.mark.invariant("log.recovery-restartable")
def test_recovery_restores_once_and_replays_only_what_came_after() -> None:
    async def story() -> None:
        bench, _ = await write(12, checkpoint_after=8, config=SMALL)
        log = await bench.open()
        assert bench.restored == [b"".join(base.to_bytes(8, "big") for base in range(8))]
        assert bench.seen == list(range(12))
        assert log.report.scanned_batches == 4

    run(story())


def test_a_batch_longer_than_a_chunk_is_recovered() -> None:
    async def story() -> None:
        disk = SimDisk()
        bench = Bench(disk, ONE_SEGMENT)
        await bench.open()
        bench.append(2)
        bench.append(2, value=b"x" * 2_500_000)
        bench.append(2)
        await bench.log.flush()
        disk.kill()
        log = await bench.open()
        assert (log.end_offset, log.report.scanned_batches) == (6, 6)
        disk.kill()
        whole = disk.snapshot(bench.path(0))
        disk.restore(bench.path(0), whole[:3_000_000])
        log = await bench.open()
        assert (log.end_offset, log.failure) == (3, None)

    run(story())


def test_compressed_batches_of_many_records_are_recovered() -> None:
    async def story() -> None:
        disk = SimDisk()
        bench = Bench(disk, ONE_SEGMENT)
        await bench.open()
        for _ in range(4):
            records = [Record(value=b"same" * 10, timestamp_ms=1) for _ in range(500)]
            batch = encode_batch(records, base_offset=bench.log.end_offset, leader_epoch=0, codec=4)
            bench.log.append(batch, read_header(batch))
        await bench.log.flush()
        disk.kill()
        whole = disk.snapshot(bench.path(0))
        disk.restore(bench.path(0), whole[:-1])
        log = await bench.open()
        assert (log.end_offset, log.failure) == (1_500, None)

    run(story())
