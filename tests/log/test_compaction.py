"""What compaction leaves of a log: the last record of each key, tombstones for their time, and bounds on what a round may take."""

from dataclasses import replace

import pytest
from log.bench import ALL, DIRECTORY, FIRST_MS, headers_in, records_in, run
from log.compacting import SMALL, VALUE, Keyed, filled, keys_of, logs_in

from penstock.errors import DiskFull
from penstock.log.compaction import MapTooSmall
from penstock.log.config import DAY_MS
from penstock.log.segment import SegmentName
from penstock.simulator.disk import SimDisk
from penstock.wire.compression import Codec

pytestmark = pytest.mark.invariant("log.compaction-keeps-last")


def test_of_each_key_only_the_last_record_is_left_below_the_active_segment() -> None:
    async def story() -> None:
        bench = await filled(SimDisk())
        active = bench.log._shelf.active.base_offset
        size = bench.log.size_bytes
        account = await bench.compact()
        assert account is not None and account.is_complete
        found = await bench.check()
        below = [record for record in found if record.offset < active]
        assert len(below) == len({record.key for record in below}) == 5
        assert account.records_removed == active - 5
        assert bench.log.size_bytes == size - account.bytes_freed < size // 2
        assert bench.log.clean_end == active

    run(story())


def test_offsets_never_move_and_a_removed_one_gives_the_next() -> None:
    async def story() -> None:
        bench = await filled(SimDisk())
        end = bench.log.end_offset
        await bench.compact()
        left = [record.offset for record in await bench.records()]
        assert bench.log.end_offset == end
        for offset in range(end):
            read = await bench.log.read_later(offset, bytes_max=1, end_offset=end)
            assert headers_in(read)[-1].end_offset > offset
            assert records_in(read)[-1].offset == min(one for one in left if one >= offset)

    run(story())


def test_small_segments_become_one() -> None:
    async def story() -> None:
        disk = SimDisk()
        bench = await filled(disk, config=replace(SMALL, segment_bytes=2_000))
        bench.config = bench.log.config = replace(bench.config, segment_bytes=20_000)
        before = len(logs_in(disk))
        active = bench.log._shelf.active.base_offset
        await bench.compact()
        assert before > 3
        assert logs_in(disk) == [f"{SegmentName(0, active, 1)}.log", f"{active:020}.log"]
        await bench.check()

    run(story())


def test_a_segment_that_needs_nothing_stays_as_it_is() -> None:
    async def story() -> None:
        disk = SimDisk()
        bench = Keyed(disk)
        await bench.open()
        for number in range(30):
            bench.put((b"key-%d" % number, VALUE))
        before = logs_in(disk)
        account = await bench.compact()
        assert account is not None and account.is_complete
        assert (logs_in(disk), account.segments_replaced) == (before, 0)
        assert await bench.compact() is None, "it is clean now"
        assert not [path for path in disk.files() if path.endswith(".tmp")]

    run(story())


def test_only_what_is_committed_and_flushed_is_looked_at() -> None:
    async def story() -> None:
        bench = await filled(SimDisk())
        assert bench.log.dirt(FIRST_MS, 3) is None
        bench.config = bench.log.config = replace(SMALL, segment_bytes=100_000)
        dirt = bench.log.dirt(FIRST_MS, 25)
        assert dirt is not None and dirt.end_offset <= 25
        await bench.checkpoint()
        await bench.log.compact(dirt, last_offsets=[], keys_bytes_max=1 << 16)
        left = [record.offset for record in await bench.records()]
        assert left[-(60 - dirt.end_offset) :] == list(range(dirt.end_offset, 60)), "above it nothing has changed"
        await bench.check()
        unflushed = Keyed(SimDisk())
        await unflushed.open()
        for number in range(30):
            unflushed.put((b"k", b"%d" % number + VALUE))
        assert unflushed.log.dirt(FIRST_MS, 30) is None

    run(story())


def test_nothing_goes_that_the_checkpoint_does_not_list_as_closed() -> None:
    async def story() -> None:
        bench = await filled(SimDisk())
        dirt = bench.log.dirt(FIRST_MS, 60)
        assert dirt is not None and not bench.log.covers(dirt)
        await bench.checkpoint()
        assert bench.log.covers(dirt)

    run(story())


def test_young_records_wait_and_old_ones_do_not_wait_for_more() -> None:
    async def story() -> None:
        bench = await filled(SimDisk(), config=replace(SMALL, compaction_lag_min_ms=5_000, compaction_lag_max_ms=60_000))
        assert bench.log.dirt(FIRST_MS + 4_000, ALL) is None
        dirt = bench.log.dirt(FIRST_MS + 6_000, ALL)
        assert dirt is not None and dirt.ratio == 1.0 and not dirt.is_overdue
        overdue = bench.log.dirt(FIRST_MS + 61_000, ALL)
        assert overdue is not None and overdue.is_overdue

    run(story())


def test_the_ratio_tells_how_much_of_the_log_is_new() -> None:
    async def story() -> None:
        bench = await filled(SimDisk())
        await bench.compact()
        assert bench.log.dirt(FIRST_MS, ALL) is None
        for number in range(40):
            bench.put((b"key-%d" % (number % 5), VALUE))
        await bench.log.flush()
        dirt = bench.log.dirt(FIRST_MS, ALL)
        assert dirt is not None
        assert dirt.clean_bytes > 0 and dirt.dirty_bytes > 0
        assert dirt.ratio == dirt.dirty_bytes / (dirt.clean_bytes + dirt.dirty_bytes)

    run(story())


# Tombstones


def test_a_tombstone_takes_its_key_and_goes_itself_when_its_time_has_come() -> None:
    async def story() -> None:
        bench = await filled(SimDisk(), rounds=4)
        bench.put((b"key-1", None))
        for number in range(30):
            bench.put((b"other-%d" % number, VALUE))
        await bench.compact()
        found = keys_of(await bench.check())
        assert [value for key, value in found if key == b"key-1"] == [None]
        bench.env.wall = FIRST_MS + 999
        for number in range(30):
            bench.put((b"other-%d" % number, VALUE))
        await bench.compact()
        assert (b"key-1", None) in keys_of(await bench.check())
        bench.env.wall = FIRST_MS + 1_000
        for number in range(30):
            bench.put((b"other-%d" % number, VALUE))
        await bench.compact()
        assert b"key-1" not in [key for key, _ in keys_of(await bench.check(may_lack=[b"key-1"]))]

    run(story())


def test_the_time_of_a_tombstone_counts_from_when_compaction_met_it() -> None:
    async def story() -> None:
        bench = Keyed(SimDisk())
        await bench.open()
        bench.put((b"a", None))
        for number in range(30):
            bench.put((b"other-%d" % number, VALUE))
        bench.env.wall = FIRST_MS + DAY_MS
        await bench.compact()
        (first, *_) = headers_in(await bench.batches())
        assert first.delete_horizon_ms == FIRST_MS + DAY_MS + 1_000
        (tombstone, *_) = await bench.records()
        assert (tombstone.key, tombstone.value, tombstone.timestamp_ms) == (b"a", None, FIRST_MS)

    run(story())


# What stays of batches


def test_the_last_batch_of_a_producer_stays_though_it_is_empty() -> None:
    async def story() -> None:
        bench = Keyed(SimDisk())
        await bench.open()
        for sequence in range(3):
            bench.put((b"a", b"%d" % sequence), producer_id=7, sequence=sequence)
        for _ in range(40):
            bench.put((b"a", b"later" + VALUE))
        await bench.compact()
        headers = headers_in(await bench.batches())
        assert [(one.base_offset, one.record_count, one.base_sequence) for one in headers if one.producer_id == 7] == [(2, 0, 2)]
        for name in ("checkpoint", "checkpoint.previous"):
            bench.disk.unlink(f"{DIRECTORY}/{name}")
        await bench.log.close(b"")
        for name in ("checkpoint", "checkpoint.previous"):
            bench.disk.unlink(f"{DIRECTORY}/{name}")
        await bench.open()
        assert bench.log.failure is None
        assert bench.last_of_producers == {7: 2}, "who the producer was can be told from the log alone"

    run(story())


def test_the_last_batch_of_the_clean_part_stays_though_it_is_empty() -> None:
    async def story() -> None:
        bench = await filled(SimDisk(), rounds=12, keys=1)
        end = bench.log._shelf.active.base_offset
        bench.put((b"key-0", b"last"))
        bench.log.config = replace(SMALL, segment_bytes=10_000)
        await bench.compact()
        headers = headers_in(await bench.batches())
        assert end in [one.end_offset for one in headers]

    run(story())


@pytest.mark.parametrize("codec", Codec)
def test_compressed_batches_keep_their_codec(codec: Codec) -> None:
    async def story() -> None:
        bench = Keyed(SimDisk(), replace(SMALL, segment_bytes=300))
        await bench.open()
        for number in range(12):
            bench.put((b"a", b"%d" % number + VALUE), (b"b", b"%d" % number + VALUE), (b"k%d" % number, VALUE), codec=codec)
        bench.log.config = replace(SMALL, segment_bytes=10_000)
        account = await bench.compact()
        assert account is not None and account.records_removed > 10
        await bench.check()
        assert {one.codec for one in headers_in(await bench.batches())} == {codec}

    run(story())


# Bounds


def test_when_the_map_is_full_the_next_round_goes_on() -> None:
    async def story() -> None:
        bench = Keyed(SimDisk())
        await bench.open()
        for turn in range(2):
            for number in range(60):
                bench.put((b"key-%d" % number, b"%d" % turn + VALUE))
        ends, rounds = [0], 0
        while (account := await bench.compact(keys_bytes=32 * 24)) is not None:
            assert account.is_complete
            ends.append(bench.log.clean_end)
            await bench.check()
            rounds += 1
        assert ends == sorted(set(ends)), "each goes further"
        assert rounds > 3
        below = [record for record in await bench.records() if record.offset < ends[-1]]
        assert len(below) == len({record.key for record in below}) == 60

    run(story())


def test_a_batch_with_more_keys_than_the_map_may_hold_is_told_and_changes_nothing() -> None:
    async def story() -> None:
        disk = SimDisk()
        bench = Keyed(disk)
        await bench.open()
        bench.put(*[(b"key-%d" % number, VALUE) for number in range(40)])
        bench.put((b"key-1", VALUE))
        await bench.checkpoint()
        before = logs_in(disk)
        with pytest.raises(MapTooSmall, match="offset 0 has more keys"):
            await bench.compact(keys_bytes=32 * 24)
        assert logs_in(disk) == before
        assert not [path for path in disk.files() if path.endswith(".tmp")]

    run(story())


def test_a_full_disk_leaves_the_log_as_it_was_and_open() -> None:
    async def story() -> None:
        disk = SimDisk()
        bench = await filled(disk)
        await bench.checkpoint()
        used = disk.capacity_bytes - disk.free_bytes()
        for room in (1, 300, 700):
            disk.capacity_bytes = used + room
            with pytest.raises(DiskFull):
                await bench.compact()
            assert not [path for path in disk.files() if path.endswith(".tmp")]
        assert bench.log.failure is None
        disk.capacity_bytes = 1 << 50
        await bench.check()
        assert await bench.compact() is not None

    run(story())


def test_room_that_others_need_is_left_alone() -> None:
    async def story() -> None:
        disk = SimDisk(capacity_bytes=20_000)
        bench = await filled(disk)
        await bench.checkpoint()
        dirt = bench.log.dirt(FIRST_MS, ALL)
        assert dirt is not None
        with pytest.raises(DiskFull, match="no room for a copy"):
            await bench.log.compact(dirt, last_offsets=[], keys_bytes_max=1 << 16, spare_bytes=disk.free_bytes() - 100)

    run(story())
