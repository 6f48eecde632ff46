"""A start that was moved forward by hand: durable before it holds, and never at the price of what lies above it."""

import pytest
from log.bench import DIRECTORY, FIRST_MS, Bench, bases_in, run

from penstock.errors import BrokenPromise
from penstock.log.config import LogConfig
from penstock.simulator.disk import SimDisk
from penstock.simulator.platter import Loss

FIVE_A_SEGMENT = LogConfig(segment_bytes=900, retention_ms=-1, index_interval_bytes=300)


async def write(disk: SimDisk, batches: int) -> Bench:
    bench = Bench(disk, FIVE_A_SEGMENT)
    await bench.open()
    for _ in range(batches):
        bench.append(1, timestamps=(FIRST_MS,))
    await bench.log.flush()
    return bench


async def trim(bench: Bench, offset: int) -> None:
    await bench.log.write_checkpoint(bench.log.begin_checkpoint(b"", start_offset=offset))
    bench.log.raise_start(offset)


def test_a_checkpoint_may_know_of_a_later_start_than_the_log() -> None:
    async def story() -> None:
        disk = SimDisk()
        bench = await write(disk, 12)
        assert not bench.log.has_saved_start(7)
        await bench.log.write_checkpoint(bench.log.begin_checkpoint(b"", start_offset=7))
        assert (bench.log.start_offset, bench.log.has_saved_start(7), bench.log.has_saved_start(8)) == (0, True, False)
        await bench.log.write_checkpoint(bench.log.begin_checkpoint(b""))
        assert bench.log.has_saved_start(7), "one that doesn't know of it changes nothing"
        disk.power_cut(Loss.ALL)
        await bench.open()
        assert (bench.log.start_offset, bench.log.end_offset) == (7, 12)

    run(story())


def test_a_start_past_the_end_is_nobodys_wish() -> None:
    async def story() -> None:
        bench = await write(SimDisk(), 3)
        try:
            bench.log.begin_checkpoint(b"", start_offset=4)
        except BrokenPromise:
            return
        raise AssertionError("it was captured")

    run(story())


@pytest.mark.invariant("log.start-offset-durable")
def test_a_segment_that_grew_past_the_start_stays_when_those_before_it_go() -> None:
    """Everything is given up; the plan takes every segment; before it is carried out, a record comes into the last one.

    The checkpoint ends where the log now starts, so neither tells that this segment has more.
    """

    async def story() -> None:
        disk = SimDisk()
        bench = await write(disk, 18)
        await trim(bench, 18)
        plan = bench.log.expired(FIRST_MS, 18)
        assert plan is not None and plan.start_offset == 18
        bench.append(1, timestamps=(FIRST_MS,))
        await bench.log.flush()
        await bench.log.delete_segments(plan)
        assert [name for name in disk.list(DIRECTORY) if name.endswith(".log")] == ["00000000000000000015.log"]
        disk.power_cut(Loss.ALL)
        await bench.open()
        assert (bench.log.failure, bench.log.start_offset, bench.log.end_offset) == (None, 18, 19)
        assert bases_in(await bench.read_all())[-1] == 18

    run(story())
