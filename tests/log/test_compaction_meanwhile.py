"""Compaction beside everything else: damage and failures lose nothing, and nobody who uses the log meanwhile is disturbed."""

import asyncio
from dataclasses import replace

import pytest
from log.bench import DIRECTORY, FIRST_MS, bases_in, records_in, run
from log.compacting import SMALL, VALUE, Keyed, filled, logs_in

from penstock.errors import DiskFailed
from penstock.log.config import DAY_MS
from penstock.log.faults import LogDamaged
from penstock.simulator.disk import SimDisk
from penstock.simulator.disk_faults import DiskFaults
from penstock.simulator.platter import Loss

# Damage and failures


@pytest.mark.invariant("log.compaction-copies-no-damage")
def test_a_damaged_batch_ends_the_round_and_is_never_copied() -> None:
    async def story() -> None:
        for position in (5, 30, 100):
            disk = SimDisk()
            bench = await filled(disk)
            await bench.checkpoint()
            before = logs_in(disk)
            base = int(bench.log._shelf.segments[1].base_offset)
            disk.rot(bench.path(base), position)
            with pytest.raises(LogDamaged):
                await bench.compact()
            assert [bench.log.segment_start(offset) for offset in bench.damaged] == [base], "the owner is told where"
            assert bench.log.failure is None, "appends go on, and so do reads of the rest"
            assert [name for name in logs_in(disk) if name in before] == before
            assert not [path for path in disk.files() if path.endswith(".tmp")]

    run(story())


@pytest.mark.invariant("log.compaction-swap-atomic")
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
