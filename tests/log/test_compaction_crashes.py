"""The power goes at every single operation of a compacted log's life, also while it starts again: the last value of every key is there.

Tombstones that were not due stay too, deleted keys never come back, and no offset ever holds anything else than what was written there.
"""

from collections.abc import Callable, Coroutine
from contextlib import suppress
from dataclasses import replace
from typing import Any

import pytest
from log.bench import FIRST_MS, live_until, run
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


def operations_of(live: Callable[[Life], Coroutine[Any, Any, None]]) -> int:
    disk = SimDisk()
    run(live(Life(disk)))
    return disk.operations


LIFE = operations_of(Life.live)


@pytest.mark.parametrize("loss", [*Loss, None], ids=lambda loss: loss.name if loss else "drawn")
def test_a_power_cut_at_any_operation_leaves_the_last_value_of_every_key(loss: Loss | None) -> None:
    assert LIFE > 200
    for moment in range(1, LIFE + 2):
        run(cut_at(moment, SimDisk(seed=moment), loss))


async def cut_at(moment: int, disk: SimDisk, loss: Loss | None) -> None:
    life = Life(disk)
    await live_until(moment, disk, life.live())
    disk.power_cut(loss)
    await life.bench.open()
    await life.check()
    await life.go_on()


def test_a_kill_and_then_a_power_cut_at_any_operation_of_the_next_start_leave_it_too() -> None:
    """The process is killed in the middle of a swap, so names are in the kernel's memory alone; then the machine goes while it starts."""
    for moment in range(1, LIFE + 2):
        run(killed_then_cut(moment, Loss.SECTORS if moment % 2 else None))


async def killed_then_cut(moment: int, loss: Loss | None) -> None:
    disk = SimDisk(seed=moment)
    life = Life(disk)
    await live_until(moment, disk, life.live())
    disk.kill()
    interruptions = 0
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


def test_a_kill_in_the_middle_of_a_swap_and_a_power_cut_in_the_next_start_leave_it_too() -> None:
    """The new name is in the kernel's memory alone when the next process finds it. It must not remove the old files on its word."""
    swaps = moments_of_swaps()
    assert len(swaps) > 5
    for moment in swaps:
        for operation in range(1, 9):
            for loss in (Loss.SECTORS, Loss.ALL):
                run(killed_in_a_swap(moment, operation, loss))


def moments_of_swaps() -> list[int]:
    """Right after a copy got its final name."""
    told: list[str] = []
    disk = SimDisk(tell=lambda operation, path, size: told.append(f"{operation} {path}"))
    run(Life(disk).live())
    return [number + 2 for number, line in enumerate(told) if line.startswith("rename") and "-" in line]


async def killed_in_a_swap(moment: int, operation: int, loss: Loss) -> None:
    disk = SimDisk(seed=moment * 100 + operation)
    life = Life(disk)
    await live_until(moment, disk, life.live())
    disk.kill()
    disk.crash_at(operation)
    with suppress(PowerCut):
        await life.bench.open()
    disk.power_cut(loss)
    await life.bench.open()
    await life.check()


@pytest.mark.parametrize("gone", [("checkpoint",), ("checkpoint.previous",), ("checkpoint", "checkpoint.previous")])
def test_a_power_cut_at_any_operation_and_the_loss_of_caches_leave_it_too(gone: tuple[str, ...]) -> None:
    for moment in range(1, LIFE + 2, 2):
        run(cut_without_caches(moment, gone))


async def cut_without_caches(moment: int, gone: tuple[str, ...]) -> None:
    disk = SimDisk(seed=moment)
    life = Life(disk)
    await live_until(moment, disk, life.live())
    disk.power_cut()
    for name in gone:
        if disk.exists(f"{life.bench.directory}/{name}"):
            disk.lose(f"{life.bench.directory}/{name}")
    await life.bench.open()
    await life.check()
    await life.go_on()


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


def test_a_deleted_key_never_comes_back_however_often_a_round_is_broken_off() -> None:
    """Its value stands in one group, its tombstone in a later one. Both rounds that could take them are cut short, at any operation."""
    first = 1
    while run(deleted_key(first, 0)):
        second = 1
        while run(deleted_key(first, second)):
            second += 1
        first += 1
    assert first > 10


async def deleted_key(first: int, second: int) -> bool:
    """Whether both rounds were cut short, or the only one that was to be."""
    disk = SimDisk(seed=first * 1_000 + second)
    life = Life(disk)
    await life.bench.open()
    life.bench.put((b"key-0", b"deleted"))
    await life.write(8)
    life.bench.put((b"key-0", None))
    await life.write(8)
    was_cut = await broken_off(life, first)
    if second:
        life.bench.env.wall += SMALL.delete_retention_ms
        was_cut = await broken_off(life, second) and was_cut
        life.may_lack.append(b"key-0")
    await life.check()
    return was_cut


async def broken_off(life: Life, moment: int) -> bool:
    await life.bench.checkpoint()
    life.disk.crash_at(moment)
    was_cut = False
    try:
        await life.bench.compact(stay_seconds=KEPT_SECONDS)
    except PowerCut:
        was_cut = True
    life.disk.power_cut(Loss.NONE if moment % 2 else Loss.SUFFIX)
    await life.bench.open()
    return was_cut


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


def test_a_power_cut_during_compaction_with_retention_takes_only_what_was_old() -> None:
    for moment in range(1, operations_of(live_with_retention) + 2):
        for loss in (Loss.SECTORS, None):
            run(cut_with_retention(moment, loss))


async def cut_with_retention(moment: int, loss: Loss | None) -> None:
    disk = SimDisk(seed=moment)
    life = Life(disk)
    await live_until(moment, disk, live_with_retention(life))
    disk.power_cut(loss)
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


@pytest.mark.parametrize("loss", [*Loss, None], ids=lambda loss: loss.name if loss else "drawn")
def test_a_power_cut_while_a_compacted_log_is_cut_leaves_either_log(loss: Loss | None) -> None:
    for moment in range(1, operations_of(live_and_be_cut) + 2):
        run(cut_while_cutting(moment, loss))


async def cut_while_cutting(moment: int, loss: Loss | None) -> None:
    disk = SimDisk(seed=moment)
    life = Life(disk)
    await live_until(moment, disk, live_and_be_cut(life))
    disk.power_cut(loss)
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
    disk.power_cut(loss)
    await life.bench.open()
    assert (life.bench.log.failure, life.bench.log.end_offset) == (None, end + 12)
    found = {record.key: record.offset for record in await life.bench.records()}
    for key in (b"key-0", b"key-1", b"key-2"):
        assert found[key] == life.bench.ledger.last[key][0]
