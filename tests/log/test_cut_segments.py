"""Whole segments are cut off the end of a log, and the flush of their directory fails: if their names come back, no batch does."""

from collections.abc import Awaitable, Callable

import pytest
from log.bench import DIRECTORY, SMALL, Bench, bases_in, run

from penstock.errors import DiskFailed
from penstock.simulator.disk import SimDisk
from penstock.simulator.platter import Loss

pytestmark = pytest.mark.invariant("log.failed-flush-never-trusted")

KEPT = 5
LARGER = b"w" * 170


async def cut_at_a_start(bench: Bench, disk: SimDisk) -> None:
    """The first segment is torn, and those after it were never acknowledged."""
    disk.kill()
    first = disk.snapshot(bench.path(0))
    disk.restore(bench.path(0), first[: KEPT * len(first) // 11] + bytes(len(first) - KEPT * len(first) // 11))
    disk.fail_next_flush(DIRECTORY)
    await bench.open()
    assert bench.log.failure is not None


async def cut_by_a_follower(bench: Bench, disk: SimDisk) -> None:
    """Its leader has other records. The directory is flushed once before, to forget the checkpoints."""
    flushed = 0

    def is_second(path: str) -> bool:
        nonlocal flushed
        flushed += path == DIRECTORY
        return path == DIRECTORY and flushed == 2

    disk.fail_next_flush_where(is_second)
    with pytest.raises(DiskFailed):
        await bench.log.truncate_to(KEPT)


@pytest.mark.parametrize("cut", [cut_at_a_start, cut_by_a_follower])
@pytest.mark.parametrize("more", [3, 40], ids=["as short", "longer than before"])
def test_segments_that_come_back_bring_no_batches(cut: Callable[[Bench, SimDisk], Awaitable[None]], more: int) -> None:
    async def story() -> None:
        disk = SimDisk()
        bench = Bench(disk, SMALL)
        await bench.open()
        bench.append(30)
        await bench.log.flush()
        assert len([path for path in disk.files() if path.endswith(".log")]) == 3
        await cut(bench, disk)
        bench.log.abandon()
        disk.kill()
        await bench.open()
        assert (bench.log.failure, bench.log.end_offset) == (None, KEPT)
        bench.append(more, epoch=1, value=LARGER)  # Segments begin at other offsets than those that were cut off.
        await bench.log.flush()
        disk.power_cut(Loss.ALL)
        await bench.open(known_end=KEPT + more)
        assert bench.log.failure is None
        assert bases_in(await bench.read_all()) == list(range(KEPT + more))
        bench.append(3, epoch=1)
        await bench.log.flush()
        assert bases_in(await bench.read_all()) == list(range(KEPT + more + 3))

    run(story())
