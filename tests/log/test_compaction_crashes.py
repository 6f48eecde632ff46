"""The power goes at every single operation of a compacted log's life, also while it starts again: the last value of every key is there.

Tombstones that were not due stay too, deleted keys never come back, and no offset ever holds anything else than what was written there.
"""

from collections.abc import Callable, Coroutine
from contextlib import suppress
from dataclasses import replace
from functools import cache
from itertools import pairwise
from typing import Any

import pytest
from log.bench import FIRST_MS, Moment, Outcomes, RecordingDisk, run
from log.compacting import SMALL, Keyed

from penstock.errors import DiskFailed
from penstock.log.config import DAY_MS
from penstock.simulator.disk import PowerCut, SimDisk
from penstock.simulator.platter import Loss

VALUE = b"v" * 40
KEPT_SECONDS = 60.0


class Life:
    """A log that is written, compacted and cut short in turns, and what was promised of it."""

    def __init__(self, disk: SimDisk) -> None:
        self.disk = disk
        self.bench = Keyed(disk, replace(SMALL, segment_bytes=500, retention_ms=-1))
        self.flushed_end = 0
        self.start_max = 0
        self.written = 0
        self.may_lack: list[bytes] = []
        self.ended_at = ""

    def __repr__(self) -> str:
        return f"<a life that ended at {self.ended_at}>"

    @classmethod
    def at(cls, moment: Moment, seed: int) -> "Life":
        disk, memory = moment.revive(seed)
        life = cls(disk)
        life.ended_at = f"operation {seed}, {moment.operation or 'its end'}"
        life.flushed_end, life.start_max, life.written, life.may_lack = memory[:4]
        life.bench.ledger, life.bench.config, life.bench.env.wall = memory[4:]
        return life

    def memory(self) -> tuple[object, ...]:
        bench = self.bench
        return self.flushed_end, self.start_max, self.written, self.may_lack, bench.ledger, bench.config, bench.env.wall

    def is_new(self, outcomes: Outcomes, loss: Loss | None) -> bool:
        """`loss` is of the cut before, or of those that follow: each kind is tried at each state."""
        return outcomes.is_new(self.disk, loss, self.flushed_end, self.start_max, tuple(self.may_lack), self.bench.env.wall)

    async def live(self) -> None:
        await self.bench.open()
        await self.write(14)
        await self.round()
        await self.write(10, epoch=1)
        self.bench.put((b"key-0", None), epoch=1)
        await self.write(8, epoch=1)
        await self.round(stay_seconds=KEPT_SECONDS)
        self.bench.env.wall += SMALL.delete_retention_ms
        await self.write(8, epoch=1)
        self.may_lack.append(b"key-0")
        await self.round()
        await self.bench.checkpoint()
        await self.write(6, epoch=2)
        await self.round(keys_bytes=8 * 24)
        await self.bench.close()
        self.flushed_end = self.bench.log.end_offset

    async def write(self, count: int, *, epoch: int = 0) -> None:
        for _ in range(count):
            self.written += 1
            key = b"key-%d" % (1 + self.written % 4)
            self.bench.put((key, b"%d:" % self.written + VALUE), epoch=epoch, producer_id=5, sequence=self.written)
            if self.written % 4 == 0:
                await self.flush()
        await self.flush()

    async def flush(self) -> None:
        await self.bench.log.flush()
        self.flushed_end = self.bench.log.flushed_end

    async def round(self, **options: Any) -> None:
        assert await self.bench.compact(**options) is not None
        self.flushed_end = self.bench.log.flushed_end

    async def check(self) -> None:
        log = self.bench.log
        assert log.failure is None
        assert log.flushed_end == log.end_offset >= self.flushed_end
        self.bench.forget_from(log.end_offset)
        await self.bench.check(may_lack=self.may_lack)
        last = max((offset for offset in self.bench.ledger.values), default=None)
        if last is not None and self.written:
            assert self.bench.last_of_producers.get(5, -1) <= last
        names = self.disk.list(self.bench.directory)
        assert not [name for name in names if name.endswith((".tmp", ".deleted", ".dropped"))]
        bases = [segment.base_offset for segment in log._shelf.segments]
        assert len({name[:20] for name in names if name.endswith(".log")}) <= len(bases), "files are left that nobody needs"

    async def go_on(self) -> None:
        """Is compacted again, appends, stops in order, starts again."""
        self.bench.env.wall += 1
        self.may_lack.append(b"key-0")
        epoch = max(2, self.bench.log.epochs.latest)
        await self.write(9, epoch=epoch)
        await self.bench.compact()
        await self.bench.check(may_lack=self.may_lack)
        await self.bench.close()
        await self.bench.open(is_clean=True)
        self.flushed_end = self.bench.log.end_offset
        await self.check()


@cache
def moments_of(live: Callable[[Life], Coroutine[Any, Any, None]]) -> list[Moment]:
    async def recorded() -> list[Moment]:
        disk = RecordingDisk()
        life = Life(disk)
        return await disk.record(live(life), life.memory)

    return run(recorded())


@pytest.mark.invariant("log.compaction-keeps-last")
def test_a_power_cut_at_any_operation_leaves_the_last_value_of_every_key() -> None:
    async def story() -> None:
        for loss in (*Loss, None):
            for number, moment in enumerate(moments):
                life = Life.at(moment, number)
                life.disk.power_cut(loss)
                if life.is_new(outcomes, loss):
                    await starts_and_goes_on(life)

    moments, outcomes = moments_of(Life.live), Outcomes()
    run(story())
    assert outcomes.states >= 650


async def starts_and_goes_on(life: Life) -> None:
    await life.bench.open()
    await life.check()
    await life.go_on()


@pytest.mark.invariant("log.compaction-keeps-last")
def test_a_kill_and_then_a_power_cut_at_any_operation_of_the_next_start_leave_it_too() -> None:
    """The process is killed in the middle of a swap, so names are in the kernel's memory alone; then the machine goes while it starts."""

    async def story() -> None:
        for number, moment in enumerate(moments):
            life = Life.at(moment, number)
            life.disk.kill()
            loss = None if number % 2 else Loss.SECTORS
            if life.is_new(outcomes, loss):
                await starts_with_cuts(life, loss)

    moments, outcomes = moments_of(Life.live), Outcomes()
    run(story())
    assert outcomes.states >= 250


async def starts_with_cuts(life: Life, loss: Loss | None) -> None:
    disk, interruptions = life.disk, 0
    while True:
        disk.crash_at(interruptions + 1)
        try:
            await life.bench.open()
            break
        except PowerCut:
            disk.power_cut(loss)
            interruptions += 1
    disk.crash_at(1 << 40)
    await life.check()


@pytest.mark.invariant("log.compaction-keeps-last", "log.compaction-swap-atomic")
def test_a_kill_in_the_middle_of_a_swap_and_a_power_cut_in_the_next_start_leave_it_too() -> None:
    """The new name is in the kernel's memory alone when the next process finds it. It must not remove the old files on its word."""
    moments = moments_of(Life.live)
    swaps = [after for before, after in pairwise(moments) if before.operation.startswith("rename") and "-" in before.operation]
    assert len(swaps) > 5
    for number, moment in enumerate(swaps):
        for operation in range(1, 9):
            for loss in (Loss.SECTORS, Loss.ALL):
                run(killed_in_a_swap(Life.at(moment, number * 100 + operation), operation, loss))


async def killed_in_a_swap(life: Life, operation: int, loss: Loss) -> None:
    """A copy got its final name just before."""
    life.disk.kill()
    life.disk.crash_at(operation)
    with suppress(PowerCut):
        await life.bench.open()
    life.disk.power_cut(loss)
    await life.bench.open()
    await life.check()


@pytest.mark.invariant("log.compaction-keeps-last")
@pytest.mark.parametrize("gone", [("checkpoint",), ("checkpoint.previous",), ("checkpoint", "checkpoint.previous")])
def test_a_power_cut_at_any_operation_and_the_loss_of_caches_leave_it_too(gone: tuple[str, ...]) -> None:
    async def story() -> None:
        for number, moment in enumerate(moments[::2]):
            life = Life.at(moment, number)
            life.disk.power_cut()
            for name in gone:
                if life.disk.exists(f"{life.bench.directory}/{name}"):
                    life.disk.lose(f"{life.bench.directory}/{name}")
            if life.is_new(outcomes, None):
                await starts_and_goes_on(life)

    moments, outcomes = moments_of(Life.live), Outcomes()
    run(story())
    assert outcomes.states >= 80


@pytest.mark.invariant("log.compaction-keeps-last")
def test_a_failed_flush_at_any_operation_loses_nothing() -> None:
    """The log goes offline, and the next process on the same machine, and the one after a power cut, find everything."""
    for number in range(1, 60):
        run(failed_flush(number))


async def failed_flush(number: int) -> None:
    disk = SimDisk(seed=number)
    life = Life(disk)
    countdown = [number]

    def concerns(path: str) -> bool:
        countdown[0] -= 1
        return countdown[0] == 0 and path not in ("", "topics", "topics/ab")

    disk.fail_next_flush_where(concerns)
    with suppress(DiskFailed):
        await life.live()
    disk.pacify()
    disk.kill()
    await life.bench.open()
    await life.check()
    disk.power_cut()
    await life.bench.open()
    await life.check()


@pytest.mark.invariant("log.compaction-keeps-last")
def test_a_deleted_key_never_comes_back_however_often_a_round_is_broken_off() -> None:
    """Its value stands in one group, its tombstone in a later one. Both rounds that could take them are cut short, at any operation."""
    assert run(deleted_key()) > 10


async def deleted_key() -> int:
    """How many moments there are to break the first round off."""
    life = Life(RecordingDisk())
    await life.bench.open()
    life.bench.put((b"key-0", b"deleted"))
    await life.write(8)
    life.bench.put((b"key-0", None))
    await life.write(8)
    firsts = await round_of(life)
    for first, moment in enumerate(firsts):
        life = Life.at(moment, first)
        await go_again(life, first)
        await life.check()
        life.bench.env.wall += SMALL.delete_retention_ms
        for second, later in enumerate(await round_of(life)):
            life = Life.at(later, first * 1_000 + second)
            await go_again(life, second)
            life.may_lack.append(b"key-0")
            await life.check()
    return len(firsts)


async def round_of(life: Life) -> list[Moment]:
    async def compact() -> None:
        await life.bench.compact(stay_seconds=KEPT_SECONDS)

    await life.bench.checkpoint()
    assert isinstance(life.disk, RecordingDisk)
    return await life.disk.record(compact(), life.memory)


async def go_again(life: Life, number: int) -> None:
    life.disk.power_cut(Loss.SUFFIX if number % 2 else Loss.NONE)
    await life.bench.open()


async def live_with_retention(life: Life) -> None:
    """Compaction and retention together, as `compact,delete` asks for."""
    life.bench.config = replace(life.bench.config, retention_ms=DAY_MS)
    await life.bench.open()
    await life.write(14)
    await life.round(stay_seconds=KEPT_SECONDS)
    life.bench.env.wall = FIRST_MS + DAY_MS // 2
    await life.write(12)
    await life.round(stay_seconds=KEPT_SECONDS)
    life.start_max = life.bench.log.end_offset
    await life.bench.retain(FIRST_MS + DAY_MS + 10)
    await life.write(6)
    life.start_max = life.bench.log.end_offset
    await life.bench.retain(FIRST_MS + 2 * DAY_MS)
    await life.bench.close()


@pytest.mark.invariant("log.compaction-keeps-last")
def test_a_power_cut_during_compaction_with_retention_takes_only_what_was_old() -> None:
    async def story() -> None:
        for number, moment in enumerate(moments):
            for loss in (Loss.SECTORS, None):
                life = Life.at(moment, number)
                life.disk.power_cut(loss)
                if life.is_new(outcomes, loss):
                    await starts_where_retention_came(life)

    moments, outcomes = moments_of(live_with_retention), Outcomes()
    run(story())
    assert outcomes.states >= 225


async def starts_where_retention_came(life: Life) -> None:
    await life.bench.open()
    log = life.bench.log
    assert log.failure is None
    assert log.start_offset <= life.start_max
    life.bench.forget_from(log.end_offset)
    await life.bench.check(from_offset=log.start_offset)
    await life.write(9)
    await life.bench.compact()
    await life.bench.check(from_offset=log.start_offset)


async def live_and_be_cut(life: Life) -> None:
    """A compacted log that a follower must cut."""
    await life.bench.open()
    await life.write(20)
    await life.round(stay_seconds=KEPT_SECONDS)
    await life.write(6)
    life.flushed_end = 0
    await life.bench.log.truncate_to(10)
    await life.bench.log.flush()


@pytest.mark.invariant("log.compaction-keeps-last")
@pytest.mark.parametrize("loss", [*Loss, None], ids=lambda loss: loss.name if loss else "drawn")
def test_a_power_cut_while_a_compacted_log_is_cut_leaves_either_log(loss: Loss | None) -> None:
    async def story() -> None:
        for number, moment in enumerate(moments):
            life = Life.at(moment, number)
            life.disk.power_cut(loss)
            if life.is_new(outcomes, loss):
                await starts_cut_or_whole(life, loss)

    moments, outcomes = moments_of(live_and_be_cut), Outcomes()
    run(story())
    assert outcomes.states >= 15


async def starts_cut_or_whole(life: Life, loss: Loss | None) -> None:
    await life.bench.open()
    log = life.bench.log
    assert log.failure is None
    for record in await life.bench.records():
        assert life.bench.ledger.values[record.offset] == (record.key, record.value)
    end = log.end_offset
    life.bench.forget_from(end)
    for number in range(12):
        life.bench.put((b"key-%d" % (number % 3), b"again %d" % number + VALUE), epoch=5)
    await log.flush()
    life.disk.power_cut(loss)
    await life.bench.open()
    assert (life.bench.log.failure, life.bench.log.end_offset) == (None, end + 12)
    found = {record.key: record.offset for record in await life.bench.records()}
    for key in (b"key-0", b"key-1", b"key-2"):
        assert found[key] == life.bench.ledger.last[key][0]
