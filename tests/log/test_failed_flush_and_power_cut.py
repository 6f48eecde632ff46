"""A flush fails, its bytes are lost, and what was appended meanwhile is kept: a hole that nobody was promised. It is told from damage.

Found by simulation: where the hole began a few bytes before the end of a sector, the log stayed offline until somebody looked.
"""

from collections.abc import Callable

import pytest
from log.bench import DIRECTORY, Bench, bases_in, batch_at, run
from tiers import pick_step

from penstock.log.config import LogConfig
from penstock.simulator.disk import PowerCut, SimDisk
from penstock.simulator.platter import SECTOR_BYTES, Loss
from penstock.wire.batches import HEADER_BYTES

pytestmark = pytest.mark.invariant("log.torn-tail")

ONE_SEGMENT = LogConfig(index_interval_bytes=300)
TELLS_NOTHING = 2  # So many bytes before the end of a sector: of the second batch's offset, they are zeros in any case.
# Every place where a sector may end inside of the header, and some where it does not.
PLACES = sorted({*range(0, SECTOR_BYTES, pick_step(test=8, slow=1)), *range(SECTOR_BYTES - HEADER_BYTES - 2, SECTOR_BYTES)})
BESIDE_VALUE_BYTES = len(batch_at(0, value=b"v" * 1_000)) - 1_000


async def acknowledge_up_to(place: int, disk: SimDisk) -> Bench:
    """One batch is flushed, and the next will begin at this place of a sector."""
    bench = Bench(disk, ONE_SEGMENT)
    await bench.open()
    bench.append(value=b"v" * (2 * SECTOR_BYTES + place - BESIDE_VALUE_BYTES))
    await bench.log.flush()
    assert len(disk.flushed(bench.path(0))) == 2 * SECTOR_BYTES + place
    return bench


async def holed(place: int, *, seed: int = 0) -> tuple[Bench, SimDisk]:
    """The second batch is under a flush that fails, the third is appended before it has; then the power goes."""
    disk = SimDisk(seed)
    bench = await acknowledge_up_to(place, disk)
    bench.append(value=b"")
    ticket = bench.log.begin_flush()
    assert ticket is not None
    flushing = disk.sync(ticket.files, ticket.directories)
    flushing.send(None)  # It has begun.
    bench.append()
    disk.fail_next_flush(bench.path(0))
    with pytest.raises(StopIteration) as ended:
        flushing.send(None)
    bench.log.end_flush(ticket, ended.value.value)
    assert (bench.log.flushed_end, bench.log.failure is None) == (1, False)
    disk.power_cut(Loss.NONE)
    assert bytes(batch_at(2)) in disk.snapshot(bench.path(0)), "what came later is there"
    return bench, disk


async def assert_it_goes_on(bench: Bench, disk: SimDisk) -> None:
    assert (bench.log.failure, bench.log.end_offset, bench.log.flushed_end) == (None, 1, 1)
    bench.append(2)
    await bench.log.flush()
    disk.power_cut(Loss.ALL)
    await bench.open()
    assert (bench.log.failure, bases_in(await bench.read_all())) == (None, [0, 1, 2])


@pytest.mark.repeats
def test_what_a_failed_flush_has_lost_is_told_from_damage_wherever_it_begins() -> None:
    async def story() -> None:
        for place in PLACES:
            bench, disk = await holed(place)
            await bench.open()
            await assert_it_goes_on(bench, disk)

    run(story())


def test_a_power_cut_at_any_change_of_that_recovery_leads_to_the_same_end() -> None:
    async def story(moment: int) -> bool:
        bench, disk = await holed(SECTOR_BYTES - TELLS_NOTHING, seed=moment)
        disk.crash_at(moment)
        try:
            await bench.open()
        except PowerCut:
            disk.power_cut()
            await bench.open()
            await assert_it_goes_on(bench, disk)
            return True
        return False

    moment = 1
    while run(story(moment)):
        moment += 1
    assert moment > 3


def of_number(number: int, struck: list[str]) -> Callable[[str], bool]:
    """Holds for the so-manieth of what concerns the log."""
    asked = 0

    def concerns(path: str) -> bool:
        nonlocal asked
        asked += path.startswith(DIRECTORY)
        if asked == number and path.startswith(DIRECTORY):
            struck.append(path)
            return True
        return False

    return concerns


@pytest.mark.parametrize("end", ["the power goes", "it is killed"])
@pytest.mark.parametrize("trouble", ["a read", "a flush"])
def test_a_recovery_in_which_anything_fails_is_made_good_by_the_next(trouble: str, end: str) -> None:
    async def story(number: int) -> bool:
        bench, disk = await holed(SECTOR_BYTES - TELLS_NOTHING, seed=number)
        struck: list[str] = []
        fail = disk.fail_next_read_where if trouble == "a read" else disk.fail_next_flush_where
        fail(of_number(number, struck))
        await bench.open()
        assert bool(bench.log.failure) is bool(struck)
        if struck:
            bench.log.abandon()
            disk.power_cut() if end == "the power goes" else disk.kill()
            await bench.open()
            await assert_it_goes_on(bench, disk)
        return bool(struck)

    number = 1
    while run(story(number)):
        number += 1
    assert number > 2


@pytest.mark.parametrize("room", [0, 10, 500])
def test_that_recovery_needs_no_room(room: int) -> None:
    async def story() -> None:
        bench, disk = await holed(SECTOR_BYTES - TELLS_NOTHING)
        disk.capacity_bytes = sum(len(disk.snapshot(path)) for path in disk.files()) + room
        await bench.open()
        disk.pacify()
        await assert_it_goes_on(bench, disk)

    run(story())


def test_an_acknowledged_header_of_which_not_all_is_zeros_is_damage() -> None:
    """No flush failed under these: whatever part of the header reads as zeros, what was acknowledged is not cut."""

    async def story(zeros: int) -> None:
        disk = SimDisk()
        bench = await acknowledge_up_to(SECTOR_BYTES - TELLS_NOTHING, disk)
        position = len(disk.flushed(bench.path(0)))
        bench.append(2)
        await bench.log.flush()
        disk.kill()
        whole = disk.snapshot(bench.path(0))
        damaged = whole[:position] + bytes(zeros) + whole[position + zeros :]
        disk.restore(bench.path(0), damaged)
        await bench.open()
        assert bench.log.failure is not None
        assert "nothing was cut off" in bench.log.failure
        assert disk.snapshot(bench.path(0)) == damaged

    for zeros in range(8, HEADER_BYTES):
        run(story(zeros))
