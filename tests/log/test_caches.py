"""Checkpoints and indexes are caches: without them, or with wrong ones, a log opens to the same end and serves the same bytes.

Covers rows 7 and 9 of the crash-safety checklist.
"""

from collections.abc import Callable
from dataclasses import replace

import pytest
from log.bench import ALL, DIRECTORY, FIRST_MS, IDENTITY, SMALL, Bench, run

from penstock.log import checkpoint, index_files
from penstock.log.config import LogConfig, LogIdentity
from penstock.log.faults import LogDamaged, NewerFormat
from penstock.log.growing_log import EXTRA_PER_APPENDED
from penstock.log.small_files import seal
from penstock.simulator.disk import SimDisk
from penstock.simulator.platter import Loss
from penstock.vocabulary import TopicId

CHECKPOINT, PREVIOUS = f"{DIRECTORY}/checkpoint", f"{DIRECTORY}/checkpoint.previous"
INDEX = f"{DIRECTORY}/00000000000000000011.index"
OTHER = "topics/cd/3"


async def write(
    disk: SimDisk, config: LogConfig = SMALL, *, directory: str = DIRECTORY, identity: LogIdentity = IDENTITY, value: bytes = b"v" * 100
) -> Bench:
    """A log with several segments of eleven batches and two checkpoints, closed in order."""
    bench = Bench(disk, config, directory=directory, identity=identity)
    await bench.open()
    bench.append(20, value=value)
    await bench.checkpoint()
    bench.append(20, value=value)
    await bench.close()
    return bench


async def write_other(disk: SimDisk) -> None:
    """Another partition with the same offsets in the same segments, at other positions."""
    identity = LogIdentity(TopicId(b"fedcba9876543210"), 3)
    await write(disk, LogConfig(segment_bytes=3_200, index_interval_bytes=300), directory=OTHER, identity=identity, value=b"w" * 210)
    assert disk.exists(INDEX.replace(DIRECTORY, OTHER))


async def check(bench: Bench, whole: bytes, *, is_clean: bool) -> None:
    log = await bench.open(is_clean=is_clean)
    assert log.failure is None
    assert (log.start_offset, log.end_offset) == (0, 40)
    assert bench.seen == list(range(40))
    assert await bench.read_all() == whole
    for offset in (0, 13, 21, 39):
        found = await log.find_timestamp(FIRST_MS + offset, ALL)
        assert found is not None
        assert found.offset == offset
    log.abandon()


Harm = Callable[[SimDisk, str], None]


def lose(disk: SimDisk, path: str) -> None:
    disk.lose(path)


def empty(disk: SimDisk, path: str) -> None:
    disk.restore(path, b"")


def shorten(disk: SimDisk, path: str) -> None:
    disk.restore(path, disk.snapshot(path)[:-1])


def halve(disk: SimDisk, path: str) -> None:
    content = disk.snapshot(path)
    disk.restore(path, content[: len(content) // 2])


def lengthen(disk: SimDisk, path: str) -> None:
    disk.restore(path, disk.snapshot(path) + b"\0")


def fill_with_zeros(disk: SimDisk, path: str) -> None:
    disk.restore(path, bytes(len(disk.snapshot(path))))


def swap(disk: SimDisk, path: str) -> None:
    """The same file of another partition, which has the same shape and other numbers."""
    disk.restore(path, disk.snapshot(path.replace(DIRECTORY, OTHER)))


HARMS: list[Harm] = [lose, empty, shorten, halve, lengthen, fill_with_zeros, swap]


@pytest.mark.invariant("log.caches-are-optional")
@pytest.mark.parametrize("harm", HARMS, ids=lambda harm: harm.__name__)
@pytest.mark.parametrize("victims", [(CHECKPOINT,), (PREVIOUS,), (CHECKPOINT, PREVIOUS), (INDEX,), (INDEX, CHECKPOINT, PREVIOUS)], ids=str)
@pytest.mark.parametrize("is_clean", [True, False])
def test_a_cache_that_is_missing_damaged_or_foreign_changes_nothing(harm: Harm, victims: tuple[str, ...], is_clean: bool) -> None:
    async def story() -> None:
        disk = SimDisk()
        await write_other(disk)
        bench = await write(disk)
        whole = b"".join(disk.snapshot(path) for path in disk.files() if path.startswith(DIRECTORY) and path.endswith(".log"))
        for victim in victims:
            harm(disk, victim)
        await check(bench, whole, is_clean=is_clean)
        await bench.open()
        await bench.close()
        await check(bench, whole, is_clean=True)

    run(story())


@pytest.mark.invariant("log.caches-are-optional")
@pytest.mark.parametrize("victim", [CHECKPOINT, INDEX])
def test_a_cache_with_any_byte_flipped_changes_nothing(victim: str) -> None:
    async def story() -> None:
        disk = SimDisk()
        bench = await write(disk)
        whole = b"".join(disk.snapshot(path) for path in disk.files() if path.endswith(".log"))
        files = {path: disk.snapshot(path) for path in disk.files()}
        for position in range(len(files[victim])):
            disk.rot(victim, position)
            await check(bench, whole, is_clean=position % 2 == 0)
            for path, content in files.items():
                if not disk.exists(path):
                    disk.close(disk.open(path, create=True))
                disk.restore(path, content)

    run(story())


def test_an_index_of_an_earlier_life_of_its_segment_is_not_believed() -> None:
    """Stale: the same log, the same segment, fewer bytes."""

    async def story() -> None:
        disk = SimDisk()
        bench = Bench(disk, SMALL)
        await bench.open()
        bench.append(11)
        bench.log._roll()
        await bench.checkpoint()
        index = disk.snapshot(bench.path(0, ".index"))
        await bench.log.truncate_to(7)
        bench.append(3, value=b"other" * 30)
        bench.log._roll()
        bench.append(9)
        await bench.close()
        disk.restore(bench.path(0, ".index"), index)
        await bench.open(is_clean=True)
        for offset in range(bench.log.end_offset):
            assert await bench.log.read_later(offset, bytes_max=1, end_offset=ALL)

    run(story())


@pytest.mark.invariant("log.small-files-atomic")
def test_the_older_checkpoint_serves_when_the_newer_one_cannot_be_read() -> None:
    async def story() -> None:
        disk = SimDisk()
        bench = await write(disk)
        disk.rot(CHECKPOINT, 50)
        log = await bench.open(is_clean=True)
        assert len(bench.restored[0]) == 20 * 8
        assert log.report.scanned_batches == 20
        assert log.report.notes
        assert not disk.exists(CHECKPOINT), "a damaged one must not become the previous one"

    run(story())


def test_an_older_checkpoint_that_retention_has_passed_is_not_used() -> None:
    async def story() -> None:
        disk = SimDisk()
        bench = await write(disk)
        stale = disk.snapshot(PREVIOUS)
        await bench.open(is_clean=True)
        await bench.retain(FIRST_MS + 10**12)
        bench.append(5)
        await bench.close()
        disk.restore(PREVIOUS, stale)
        disk.rot(CHECKPOINT, 50)
        log = await bench.open()
        assert (log.failure, log.start_offset, log.end_offset) == (None, 40, 45)
        assert bench.restored == [b""]
        assert bench.seen == [40, 41, 42, 43, 44]

    run(story())


def test_an_older_checkpoint_may_list_segments_that_retention_has_taken() -> None:
    async def story() -> None:
        disk = SimDisk()
        bench = await write(disk)
        await bench.open(is_clean=True)
        await bench.checkpoint()
        bench.log.raise_start(24)
        plan = bench.log.expired(FIRST_MS, 40)
        assert plan is not None
        await bench.log.delete_segments(plan)
        disk.rot(CHECKPOINT, 50)
        disk.kill()
        log = await bench.open()
        assert (log.failure, log.start_offset, log.end_offset) == (None, 22, 40)
        assert bench.seen == list(range(40))

    run(story())


@pytest.mark.parametrize("module", [checkpoint, index_files])
def test_a_file_of_a_newer_format_is_refused_by_name(module: object) -> None:
    async def story() -> None:
        disk = SimDisk()
        bench = await write(disk)
        victim = CHECKPOINT if module is checkpoint else INDEX
        disk.restore(victim, seal(module._KIND, module.VERSION + 1, b"what this means is not known yet"))  # type: ignore[attr-defined]
        with pytest.raises(NewerFormat, match=f"has format {module.VERSION + 1}, this Penstock knows {module.VERSION}"):
            await bench.open(is_clean=True)
            await bench.log.read_later(13, bytes_max=1, end_offset=ALL)

    run(story())


@pytest.mark.invariant("log.small-files-atomic")
def test_a_checkpoint_that_was_written_outlives_the_power() -> None:
    async def story() -> None:
        disk = SimDisk()
        bench = Bench(disk, SMALL)
        await bench.open()
        for _ in range(2):
            bench.append(15)
            await bench.checkpoint()
            written = disk.snapshot(CHECKPOINT)
            disk.power_cut(Loss.ALL)
            assert disk.snapshot(CHECKPOINT) == written
            await bench.open()
            assert bench.log.report.scanned_batches == 0

    run(story())


def test_a_checkpoint_claims_only_what_is_flushed_and_never_replaces_a_later_one() -> None:
    async def story() -> None:
        disk = SimDisk()
        bench = Bench(disk, SMALL)
        await bench.open()
        bench.append(5)
        early = bench.log.begin_checkpoint(bench.state())
        bench.append(5)
        late = bench.log.begin_checkpoint(bench.state())
        await bench.log.flush()
        await bench.log.write_checkpoint(late)
        content = disk.snapshot(CHECKPOINT)
        await bench.log.write_checkpoint(early)
        assert disk.snapshot(CHECKPOINT) == content

    run(story())


def test_a_checkpoint_is_due_after_so_many_bytes_a_roll_or_a_new_epoch() -> None:
    async def story() -> None:
        disk = SimDisk()
        bench = Bench(disk, SMALL)
        await bench.open()
        assert not bench.log.wants_checkpoint
        bench.append(1)
        assert bench.log.wants_checkpoint, "an epoch began"
        await bench.checkpoint()
        bench.append(5)
        assert not bench.log.wants_checkpoint
        bench.append(10)
        assert bench.log.wants_checkpoint, "a segment was closed"
        await bench.checkpoint()
        bench.append(1)
        assert not bench.log.wants_checkpoint
        bench.append(1, epoch=1)
        assert bench.log.wants_checkpoint
        disk.kill()
        await bench.open()
        assert bench.log.wants_checkpoint, "it was never written"

    run(story())


def test_all_checkpoints_together_grow_with_the_log_and_not_with_its_square() -> None:
    """Whatever their owner has to say, as long as that grows with the log too."""

    async def written(batches: int) -> tuple[int, int]:
        bench = Bench(SimDisk(), replace(SMALL, segment_bytes=1 << 20, checkpoint_bytes=500))
        await bench.open()
        of_owner = 0
        for number in range(batches):
            bench.append(1)
            if bench.log.wants_checkpoint:
                extra = bytes(100 * number)
                of_owner += len(extra)
                captured = bench.log.begin_checkpoint(extra)
                await bench.log.flush()
                await bench.log.write_checkpoint(captured)
        return of_owner, bench.log.size_bytes

    async def story() -> None:
        for batches in (200, 400, 800):
            of_owner, appended = await written(batches)
            assert 0 < of_owner <= (EXTRA_PER_APPENDED + 1) * appended

    run(story())


def test_a_damaged_index_entry_never_leads_to_wrong_bytes() -> None:
    """As if the index had been believed: every entry is off by one batch."""

    async def story() -> None:
        disk = SimDisk()
        bench = await write(disk)
        await bench.open(is_clean=True)
        held = bench.log._reader.pin(bench.log._shelf.segments[1])
        index = await bench.log._reader.index_of(bench.log._shelf.segments[1], held)
        for entry in range(1, len(index.offsets)):
            index.offsets[entry] += 1
        refused = 0
        for offset in range(21, 10, -1):
            try:
                read = await bench.log.read_later(offset, bytes_max=1, end_offset=40)
                assert int.from_bytes(read[:8], "big") == offset
            except LogDamaged:
                refused += 1
        assert refused
        bench.log._files.unpin(held)

    run(story())
