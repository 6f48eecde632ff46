"""What compaction leaves of a log, and that nobody who uses the log meanwhile is disturbed."""

import asyncio
from dataclasses import replace

import pytest
from log.bench import ALL, DIRECTORY, FIRST_MS, bases_in, headers_in, records_in, run
from log.compacting import SMALL, Keyed, keys_of

from penstock.errors import DiskFailed, DiskFull
from penstock.log.compaction import MapTooSmall
from penstock.log.config import DAY_MS
from penstock.log.faults import LogDamaged
from penstock.log.segment import SegmentName
from penstock.simulator.disk import SimDisk
from penstock.simulator.disk_faults import DiskFaults
from penstock.simulator.platter import Loss
from penstock.wire.batches import read_header
from penstock.wire.compression import Codec

VALUE = b"v" * 60


async def filled(disk: SimDisk, rounds: int = 12, keys: int = 5, config=SMALL) -> Keyed:
    """Each round writes every key once: batches of one record, some of them rolled into several segments."""
    bench = Keyed(disk, config)
    await bench.open()
    for number in range(rounds):
        for key in range(keys):
            bench.put((b"key-%d" % key, b"%d:" % number + VALUE))
    await bench.log.flush()
    return bench


def logs_in(disk: SimDisk) -> list[str]:
    return [path.rpartition("/")[2] for path in disk.files() if path.endswith(".log")]


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


# Damage and failures


def test_a_damaged_batch_ends_the_round_and_is_never_copied() -> None:
    async def story() -> None:
        for position in (5, 30, 100):
            disk = SimDisk()
            bench = await filled(disk)
            await bench.checkpoint()
            before = logs_in(disk)
            disk.rot(bench.path(bench.log._shelf.segments[1].base_offset), position)
            with pytest.raises(LogDamaged):
                await bench.compact()
            assert bench.log.failure is None, "appends go on, and so do reads of the rest"
            assert [name for name in logs_in(disk) if name in before] == before
            assert not [path for path in disk.files() if path.endswith(".tmp")]

    run(story())


@pytest.mark.parametrize("what", ["write", "flush of the copy", "flush of the names"])
def test_a_failed_write_or_flush_takes_the_log_offline_and_loses_nothing(what: str) -> None:
    async def story() -> None:
        for loss in (*Loss, None):
            disk = SimDisk()
            bench = await filled(disk)
            await bench.checkpoint()
            if what == "write":
                disk.fail_next_write()
            elif what == "flush of the copy":
                disk.fail_next_flush_where(lambda path: path.endswith(".tmp"))
            else:
                disk.fail_next_flush_where(lambda path: path == DIRECTORY)
            with pytest.raises(DiskFailed):
                await bench.compact()
            assert bench.log.failure is not None
            await bench.check()
            disk.kill()
            await bench.open()
            assert bench.log.failure is None
            await bench.check()
            disk.power_cut(loss)
            await bench.open()
            assert bench.log.failure is None
            await bench.check()

    run(story())


# Others at the same time


def test_a_reader_that_waits_while_its_segment_is_replaced_gets_what_it_asked_for() -> None:
    async def story() -> None:
        bench = await filled(SimDisk(0, DiskFaults(cold_read=1.0)))
        left_before = [record.offset for record in await bench.records()]
        reads = [asyncio.ensure_future(bench.log.read_later(offset, bytes_max=1, end_offset=60)) for offset in range(60)]
        await asyncio.sleep(0)
        compacting = asyncio.ensure_future(bench.compact(stay_seconds=60))
        seen = [records_in(await read)[0].offset for read in reads]
        await compacting
        left = [record.offset for record in await bench.records()]
        for offset, found in zip(range(60), seen, strict=True):
            assert found in (offset, min(one for one in left if one >= offset))
        assert left_before == list(range(60))

    run(story())


def test_a_stream_that_was_promised_is_kept_though_it_begins_after_the_swap() -> None:
    async def story() -> None:
        disk = SimDisk()
        bench = Keyed(disk, replace(SMALL, segment_bytes=600_000, index_interval_bytes=1_000))
        await bench.open()
        for number in range(900):
            bench.put((b"key-%d" % (number % 3), b"%d:" % number + bytes(1_000)))
        await bench.checkpoint()
        await bench.log.read_later(5, bytes_max=1, end_offset=900)  # Now the index is at hand.
        stream = bench.log.stream(0, bytes_max=400_000, end_offset=900)
        assert stream is not None
        await bench.compact(stay_seconds=60)
        assert len(await bench.records()) < 500
        promised = b""
        while not stream.is_done:
            piece = stream.next_piece()
            promised += bytes(piece if piece is not None else await stream.next_piece_later())
        stream.close()
        assert len(promised) == len(stream)
        assert bases_in(promised) == list(range(len(bases_in(promised))))
        files = len(logs_in(disk))
        await bench.log.remove_replaced()
        assert len(logs_in(disk)) < files

    run(story())


def test_times_are_found_in_what_is_left() -> None:
    async def story() -> None:
        bench = Keyed(SimDisk())
        await bench.open()
        for number in range(60):
            bench.env.wall = FIRST_MS + number
            bench.put((b"key-%d" % (number % 7), VALUE), producer_id=number % 2, sequence=number // 2)
        for _ in range(2):
            await bench.compact()
            left = await bench.records()
            newest = await bench.log.max_timestamp(60)
            assert newest is not None and newest.offset == left[-1].offset
            for wish in range(60):
                found = await bench.log.find_timestamp(FIRST_MS + wish, 60)
                assert found is not None
                assert found.offset == next(record.offset for record in left if record.timestamp_ms >= FIRST_MS + wish)
            await bench.close()
            await bench.open(is_clean=True)

    run(story())


def test_appends_flushes_and_checkpoints_go_on_during_a_round() -> None:
    async def story() -> None:
        disk = SimDisk()
        bench = await filled(disk)
        await bench.checkpoint()
        captured = bench.log.begin_checkpoint(bench.state())
        compacting = asyncio.ensure_future(bench.compact())
        for number in range(60):
            bench.put((b"key-%d" % (number % 5), b"new %d" % number + VALUE))
            await asyncio.sleep(0)
            if number == 20:
                await bench.log.flush()
                await bench.log.write_checkpoint(captured)
        account = await compacting
        assert account is not None and account.is_complete
        await bench.check()
        await bench.log.flush()
        for loss in (Loss.ALL, None):
            disk.power_cut(loss)
            await bench.open()
            assert bench.log.failure is None
            assert bench.log.end_offset == 120
            await bench.check()

    run(story())


@pytest.mark.parametrize("turns", range(0, 80, 4))
def test_retention_and_compaction_do_not_undo_each_other(turns: int) -> None:
    async def story() -> None:
        disk = SimDisk()
        bench = await filled(disk, config=replace(SMALL, retention_ms=DAY_MS))
        await bench.checkpoint()
        compacting = asyncio.ensure_future(bench.compact(stay_seconds=60))
        for _ in range(turns):
            await asyncio.sleep(0)
        await bench.retain(FIRST_MS + 2 * DAY_MS)
        await compacting
        await bench.check(from_offset=bench.log.start_offset)
        await bench.retain(FIRST_MS + 2 * DAY_MS)
        assert bench.log.start_offset == 60
        assert await bench.records() == []
        disk.power_cut(Loss.ALL)
        await bench.open()
        assert (bench.log.failure, bench.log.start_offset, bench.log.end_offset) == (None, 60, 60)
        assert logs_in(disk) == [f"{60:020}.log"]

    run(story())


def test_retention_takes_compacted_segments_also_empty_ones() -> None:
    async def story() -> None:
        disk = SimDisk()
        bench = await filled(disk, rounds=30, keys=1, config=replace(SMALL, retention_ms=DAY_MS))
        await bench.compact()
        assert any(not segment.size for segment in bench.log._shelf.segments) or len(bench.log._shelf.segments) > 1
        await bench.retain(FIRST_MS + 2 * DAY_MS)
        assert bench.log.start_offset == bench.log.end_offset == 30
        disk.power_cut(Loss.ALL)
        await bench.open()
        assert (bench.log.failure, bench.log.start_offset) == (None, 30)

    run(story())


@pytest.mark.parametrize("cut", range(0, 60, 3))
def test_a_compacted_log_can_be_cut_anywhere(cut: int) -> None:
    async def story() -> None:
        disk = SimDisk()
        bench = await filled(disk)
        await bench.compact(stay_seconds=60)
        await bench.log.truncate_to(cut)
        assert bench.log.end_offset <= cut
        bench.forget_from(bench.log.end_offset)
        left = await bench.records()
        assert all(record.offset < cut for record in left)
        end = bench.log.end_offset
        for number in range(20):
            assert bench.put((b"key-%d" % (number % 5), b"again" + VALUE), epoch=1) == end + number
        await bench.log.flush()
        for loss in (Loss.ALL, None):
            disk.power_cut(loss)
            await bench.open()
            assert bench.log.failure is None
            assert (await bench.records())[-20:][0].offset == end
            assert len(await bench.records()) == len(left) + 20
        await bench.compact()
        assert bench.log.failure is None

    run(story())


# Starts


@pytest.mark.parametrize("lost", [(), ("checkpoint",), ("checkpoint.previous",), ("checkpoint", "checkpoint.previous")])
@pytest.mark.parametrize("is_clean", [True, False])
def test_a_compacted_log_opens_as_it_was_whatever_became_of_its_caches(lost: tuple[str, ...], is_clean: bool) -> None:
    async def story() -> None:
        for closes in (True, False):
            disk = SimDisk()
            bench = await filled(disk)
            await bench.compact()
            before, sizes = await bench.batches(), bench.log.size_bytes
            if closes:
                await bench.close()
            for name in lost:
                disk.unlink(f"{DIRECTORY}/{name}")
            for path in [path for path in disk.files() if path.endswith(".index")]:
                disk.unlink(path)
            disk.kill()
            await bench.open(is_clean=is_clean and closes)
            assert bench.log.failure is None
            assert (await bench.batches(), bench.log.size_bytes) == (before, sizes)
            await bench.check()
            found = await bench.log.max_timestamp(60)
            assert found is not None

    run(story())


def test_an_index_that_nobody_needs_is_swept_at_the_next_start() -> None:
    async def story() -> None:
        disk = SimDisk()
        bench = await filled(disk)
        await bench.compact()
        await bench.close()
        kept = [path for path in disk.files() if path.endswith(".index")]
        for name in (SegmentName(12), SegmentName(0, 12, 99)):
            disk.append(disk.open(f"{DIRECTORY}/{name}.index", create=True), (b"left over",))
        disk.kill()
        await bench.open(is_clean=True)
        assert [path for path in disk.files() if path.endswith(".index")] == kept
        assert kept
        await bench.check()

    run(story())


def test_rot_in_a_compacted_segment_is_never_taken_for_a_torn_write() -> None:
    async def story() -> None:
        disk = SimDisk()
        bench = await filled(disk)
        await bench.compact()
        await bench.close()
        for name in ("checkpoint", "checkpoint.previous"):
            disk.unlink(f"{DIRECTORY}/{name}")
        compacted = next(path for path in disk.files() if "-" in path and path.endswith(".log"))
        content = disk.snapshot(compacted)
        for position in range(8, len(content), 7):
            disk.restore(compacted, content)
            disk.rot(compacted, position)
            size = len(disk.snapshot(compacted))
            await bench.open()
            assert bench.log.failure is not None
            assert len(disk.snapshot(compacted)) == size
            disk.kill()
            disk.unlink(f"{DIRECTORY}/doubt")

    run(story())


def test_a_log_of_the_format_before_opens() -> None:
    """A checkpoint of format 1 lists no compacted segments."""
    from penstock.log import checkpoint
    from penstock.log.small_files import seal

    async def story() -> None:
        disk = SimDisk()
        bench = await filled(disk)
        await bench.close()
        path = f"{DIRECTORY}/checkpoint"
        body = disk.snapshot(path)[20:]
        head = checkpoint._HEAD.unpack_from(body)
        rows = [checkpoint._SEGMENT.unpack_from(body, checkpoint._HEAD.size + at * checkpoint._SEGMENT.size) for at in range(head[-1])]
        rest = body[checkpoint._HEAD.size + head[-1] * checkpoint._SEGMENT.size :]
        old = checkpoint._HEAD_1.pack(*head[:5], head[-1]) + b"".join(checkpoint._SEGMENT_1.pack(*row[:4]) for row in rows) + rest
        disk.restore(path, seal(checkpoint._KIND, 1, old))
        disk.unlink(f"{DIRECTORY}/checkpoint.previous")
        disk.kill()
        await bench.open(is_clean=True)
        assert bench.restored != [b""], "it was believed"
        assert (bench.log.failure, bench.log.end_offset) == (None, 60)
        await bench.compact()
        await bench.check()

    run(story())


def test_a_log_from_before_transactions_opens() -> None:
    """A checkpoint of format 2 is laid out like one of format 3."""
    from penstock.log import checkpoint
    from penstock.log.small_files import seal

    async def story() -> None:
        disk = SimDisk()
        bench = await filled(disk)
        await bench.compact()
        await bench.close()
        path = f"{DIRECTORY}/checkpoint"
        disk.restore(path, seal(checkpoint._KIND, 2, disk.snapshot(path)[20:]))
        disk.unlink(f"{DIRECTORY}/checkpoint.previous")
        disk.kill()
        await bench.open(is_clean=True)
        assert bench.restored != [b""], "it was believed"
        assert (bench.log.failure, bench.log.end_offset) == (None, 60)
        await bench.check()

    run(story())


def test_producers_batches_that_were_rewritten_still_tell_their_sequences() -> None:
    async def story() -> None:
        bench = Keyed(SimDisk())
        await bench.open()
        for number in range(20):
            bench.put((b"a", b"%d" % number), (b"k%d" % number, VALUE), producer_id=1, sequence=2 * number)
        bench.put((b"b", VALUE * 10))
        bench.put((b"b", VALUE * 10))
        await bench.compact()
        for header in headers_in(await bench.batches()):
            if header.producer_id == 1:
                assert (header.base_sequence, header.last_offset_delta) == (header.base_offset, 1)
        assert read_header(await bench.batches()).record_count == 1

    run(story())
