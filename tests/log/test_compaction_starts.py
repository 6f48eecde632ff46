"""A log that was compacted opens as it was, whatever became of its caches and whichever format it was written in."""

import pytest
from log.bench import DIRECTORY, headers_in, run
from log.compacting import VALUE, Keyed, filled

from penstock.log.segment import SegmentName
from penstock.simulator.disk import SimDisk
from penstock.wire.batches import read_header


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


@pytest.mark.invariant("log.compaction-copies-no-damage")
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
