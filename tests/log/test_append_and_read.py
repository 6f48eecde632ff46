"""What is appended can be read: whole batches, from any offset, never past the reader's end."""

import pytest
from log.bench import ALL, FIRST_MS, SMALL, Bench, bases_in, batch_at, headers_in, run

from penstock.env import Disk
from penstock.errors import BrokenPromise, DiskFailed
from penstock.log.config import DAY_MS, LogConfig
from penstock.log.faults import OffsetOutOfRange
from penstock.server.disk import RealDisk
from penstock.simulator.disk import SimDisk
from penstock.simulator.disk_faults import DiskFaults
from penstock.wire.batches import read_header

ONE_SEGMENT = LogConfig(index_interval_bytes=300)


@pytest.fixture(params=["simulated", "simulated, often cold", "real"])
def disk(request: pytest.FixtureRequest, tmp_path: object) -> Disk:
    if request.param == "real":
        real = RealDisk(str(tmp_path))
        request.addfinalizer(real.shut)
        return real
    return SimDisk(faults=DiskFaults(cold_read=0.5 if "cold" in request.param else 0.0))


def test_everything_appended_is_read_back_byte_for_byte(disk: Disk) -> None:
    async def story() -> None:
        bench = Bench(disk)
        await bench.open()
        written = b""
        for number in range(60):
            batch = batch_at(bench.log.end_offset, records=number % 4 + 1, value=b"%d" % number * number)
            bench.log.append(batch, read_header(batch))
            written += batch
        assert bench.log.end_offset == sum(number % 4 + 1 for number in range(60))
        assert bench.log.size_bytes == len(written)
        for bytes_max in (1, 500, 100_000):
            assert await bench.read_all(bytes_max=bytes_max) == written

    run(story())


def test_a_read_begins_with_the_batch_that_holds_the_offset(disk: Disk) -> None:
    async def story() -> None:
        bench = Bench(disk)
        await bench.open()
        bench.append(40, records=3)
        for offset in (*range(120), *range(119, -1, -1)):
            batches = await bench.log.read_later(offset, bytes_max=1, end_offset=ALL)
            assert bases_in(batches) == [offset - offset % 3]

    run(story())


def test_a_read_takes_whole_batches_up_to_its_bound_and_at_least_one() -> None:
    async def story() -> None:
        bench = Bench(SimDisk(), ONE_SEGMENT)
        await bench.open()
        bench.append(10)
        size = bench.log.size_bytes // 10
        for bytes_max, batches in ((0, 1), (size, 1), (2 * size - 1, 1), (2 * size, 2), (5 * size + 3, 5), (100 * size, 8)):
            assert bases_in(bench.log.read(2, bytes_max=bytes_max, end_offset=ALL)) == list(range(2, 2 + batches))

    run(story())


def test_a_batch_larger_than_every_bound_is_stored_and_read() -> None:
    async def story() -> None:
        bench = Bench(SimDisk())
        await bench.open()
        bench.append(2)
        bench.append(1, value=b"large" * 3_000)
        bench.append(2)
        assert bases_in(await bench.read_all(bytes_max=10)) == [0, 1, 2, 3, 4]

    run(story())


def test_nothing_is_read_at_or_past_the_readers_end() -> None:
    async def story() -> None:
        bench = Bench(SimDisk())
        await bench.open()
        bench.append(20, records=2)
        assert bases_in(bench.log.read(4, bytes_max=10_000, end_offset=10)) == [4, 6, 8]
        assert bench.log.read(10, bytes_max=10_000, end_offset=10) == b""
        assert bench.log.read(12, bytes_max=10_000, end_offset=10) == b""
        assert bench.log.read(40, bytes_max=10_000, end_offset=ALL) == b""
        assert bench.log.read(8, bytes_max=10_000, end_offset=9) == b"", "the batch reaches past the reader's end"

    run(story())


def test_an_offset_that_was_never_written_or_is_no_longer_kept_is_out_of_range() -> None:
    async def story() -> None:
        bench = Bench(SimDisk())
        await bench.open()
        bench.append(5)
        bench.log.raise_start(2)
        for offset in (-1, 0, 1, 6):
            with pytest.raises(OffsetOutOfRange):
                bench.log.read(offset, bytes_max=100, end_offset=ALL)
            with pytest.raises(OffsetOutOfRange):
                await bench.log.read_later(offset, bytes_max=100, end_offset=ALL)

    run(story())


def test_the_callers_buffer_may_be_reused_after_an_append() -> None:
    async def story() -> None:
        bench = Bench(SimDisk())
        await bench.open()
        buffer = batch_at(0)
        kept = bytes(buffer)
        bench.log.append(memoryview(buffer), read_header(buffer))
        buffer[:] = bytes(len(buffer))
        assert bench.log.read(0, bytes_max=1, end_offset=ALL) == kept

    run(story())


def test_a_batch_elsewhere_than_at_the_end_stops_the_node() -> None:
    async def story() -> None:
        bench = Bench(SimDisk())
        await bench.open()
        bench.append(3)
        for offset in (2, 4):
            with pytest.raises(BrokenPromise):
                bench.log.append(batch_at(offset), read_header(batch_at(offset)))

    run(story())


def test_an_epoch_never_goes_back() -> None:
    async def story() -> None:
        bench = Bench(SimDisk())
        await bench.open()
        bench.append(2, epoch=4)
        with pytest.raises(BrokenPromise):
            bench.append(1, epoch=3)

    run(story())


def test_epochs_are_remembered_by_their_first_offset_through_restarts() -> None:
    async def story() -> None:
        bench = Bench(SimDisk())
        await bench.open()
        for epoch in (0, 2, 7):
            bench.append(6, epoch=epoch)
        history = [(0, 0), (2, 6), (7, 12)]
        assert list(bench.log.epochs) == history
        await bench.log.flush()
        await bench.open()
        assert list(bench.log.epochs) == history
        await bench.close()
        await bench.open(is_clean=True)
        assert list(bench.log.epochs) == history
        assert [bench.log.epochs.epoch_at(offset) for offset in (0, 5, 6, 11, 12, 17)] == [0, 0, 2, 2, 7, 7]
        assert {header.leader_epoch for header in headers_in(await bench.read_all())} == {0, 2, 7}

    run(story())


def test_a_segment_ends_before_it_grows_past_its_size() -> None:
    async def story() -> None:
        disk = SimDisk()
        bench = Bench(disk, LogConfig(segment_bytes=1_000))
        await bench.open()
        bench.append(20)
        sizes = [len(disk.snapshot(path)) for path in disk.files() if path.endswith(".log")]
        assert max(sizes) <= 1_000 < max(sizes) + 171
        assert len(sizes) == 4

    run(story())


def test_a_segment_ends_when_it_is_old_also_if_nothing_is_appended() -> None:
    async def story() -> None:
        disk = SimDisk()
        bench = Bench(disk, LogConfig(segment_ms=DAY_MS))
        await bench.open()
        bench.append(3)
        await bench.log.flush()
        bench.env.wall = FIRST_MS + DAY_MS
        bench.append(1)
        assert disk.exists(bench.path(3))
        bench.log.roll_if_old(FIRST_MS + DAY_MS + 1)
        assert not disk.exists(bench.path(4)), "the new segment is young"
        bench.log.roll_if_old(FIRST_MS + 2 * DAY_MS)
        assert disk.exists(bench.path(4))
        bench.append(2)
        assert bases_in(await bench.read_all()) == [0, 1, 2, 3, 4, 5]

    run(story())


def test_a_changed_configuration_counts_from_the_next_append() -> None:
    async def story() -> None:
        disk = SimDisk()
        bench = Bench(disk, LogConfig())
        await bench.open()
        bench.append(10)
        bench.log.config = SMALL
        bench.append(10)
        assert disk.exists(bench.path(11))

    run(story())


def test_reads_and_lookups_go_on_while_segments_are_rolled_and_deleted() -> None:
    async def story() -> None:
        disk = SimDisk(faults=DiskFaults(cold_read=1.0))
        bench = Bench(disk)
        await bench.open()
        bench.append(30)
        reading = bench.log.read_later(3, bytes_max=1_000, end_offset=ALL)
        looking = bench.log.find_timestamp(FIRST_MS + 5, ALL)
        reading.send(None)  # Both are waiting for the disk now.
        looking.send(None)
        assert await bench.retain(FIRST_MS + 30 * DAY_MS)
        bench.append(30)
        assert bench.log.start_offset == 30
        assert not disk.exists(bench.path(0))
        with pytest.raises(StopIteration) as read:
            reading.send(None)
        assert bases_in(read.value.value) == [3, 4, 5, 6, 7]
        with pytest.raises(StopIteration) as found:
            while True:
                looking.send(None)
        assert found.value.value.offset == 5

    run(story())


def test_a_bounded_number_of_files_is_open_however_many_segments_there_are() -> None:
    async def story() -> None:
        bench = Bench(SimDisk())
        await bench.open(files_max=3)
        bench.append(100)
        await bench.log.flush()
        for offset in range(0, 100, 7):
            await bench.log.read_later(offset, bytes_max=1, end_offset=ALL)
            assert len(bench.files) <= 3

    run(story())


def test_a_closed_log_takes_nothing_more_and_has_nothing_open() -> None:
    async def story() -> None:
        bench = Bench(SimDisk())
        await bench.open()
        bench.append(30)
        await bench.read_all()
        await bench.close()
        assert len(bench.files) == 0
        with pytest.raises(DiskFailed, match="closed"):
            bench.append(1)

    run(story())
