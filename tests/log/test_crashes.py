"""The power goes at every single operation of a log's life, also while it recovers: nothing promised is lost, nothing is invented.

Covers rows 3, 7, 9, 10, 22 and 28 of the crash-safety checklist.
"""

from functools import cache

import pytest
from log.bench import DIRECTORY, FIRST_MS, SMALL, Bench, Moment, Outcomes, RecordingDisk, bases_in, run

from penstock.log.config import DAY_MS
from penstock.simulator.disk import PowerCut, SimDisk
from penstock.simulator.platter import Loss

OLD_MS = FIRST_MS + 30 * DAY_MS


class Life:
    """A log that is used in every way, and what was promised of it."""

    def __init__(self, disk: SimDisk) -> None:
        self.disk = disk
        self.bench = Bench(disk)
        self.written: dict[int, bytes] = {}  # By base offset.
        self.flushed_end = 0
        self.start_max = 0  # The log may start here, if retention got that far.
        self.ended_at = ""

    def __repr__(self) -> str:
        return f"<a life that ended at {self.ended_at}>"

    @classmethod
    def at(cls, moment: Moment, seed: int) -> "Life":
        disk, memory = moment.revive(seed)
        life = cls(disk)
        life.ended_at = f"operation {seed}, {moment.operation or 'its end'}"
        life.written, life.flushed_end, life.start_max = memory
        return life

    def memory(self) -> tuple[object, ...]:
        return self.written, self.flushed_end, self.start_max

    def is_new(self, outcomes: Outcomes) -> bool:
        return outcomes.is_new(self.disk, self.flushed_end, self.start_max)

    async def live(self) -> None:
        await self.bench.open()
        await self.write_and_flush(8)
        await self.bench.checkpoint()
        await self.write_and_flush(25)  # Rolls twice.
        await self.bench.checkpoint()
        await self.write_and_flush(9, epoch=1)
        await self.forget_all()
        await self.write_and_flush(14, epoch=1)
        self.write(7, epoch=2)
        await self.bench.close()
        self.flushed_end = self.bench.log.end_offset

    def write(self, count: int, **kwargs: int) -> None:
        log = self.bench.log
        for _ in range(count):
            base = log.end_offset
            self.bench.append(value=b"%d." % base * 30, **kwargs)
            read = log.read(base, bytes_max=1, end_offset=log.end_offset)
            assert read is not None
            self.written[base] = bytes(read)

    async def write_and_flush(self, count: int, **kwargs: int) -> None:
        for _ in range(count):
            self.write(1, **kwargs)
            if _ % 3 == 2:
                await self.bench.log.flush()
                self.flushed_end = self.bench.log.flushed_end

    async def forget_all(self) -> None:
        self.start_max = self.bench.log.end_offset
        await self.bench.retain(OLD_MS)

    async def check(self) -> None:
        """After the next start: what is there, and that it is of use."""
        log = self.bench.log
        assert log.failure is None
        assert log.flushed_end == log.end_offset >= self.flushed_end
        assert log.start_offset <= self.start_max
        found = await self.bench.read_all()
        expected = b"".join(batch for base, batch in self.written.items() if log.start_offset <= base < log.end_offset)
        assert found == expected
        assert self.bench.seen == [base for base in self.written if base < log.end_offset]

    async def go_on(self) -> None:
        """Appends, stops in order, starts again."""
        self.written = {base: batch for base, batch in self.written.items() if base < self.bench.log.end_offset}
        await self.write_and_flush(6, epoch=3)
        await self.bench.close()
        await self.bench.open(is_clean=True)
        await self.check()


@cache
def moments_of_a_life() -> list[Moment]:
    disk = RecordingDisk()
    life = Life(disk)
    return run(disk.record(life.live(), life.memory))


@pytest.mark.invariant("log.ack-after-flush")
def test_a_power_cut_at_any_operation_loses_nothing_that_was_promised() -> None:
    async def story() -> None:
        for loss in (*Loss, None):
            for number, moment in enumerate(moments):
                life = Life.at(moment, number)
                life.disk.power_cut(loss)
                if life.is_new(outcomes):
                    await life.bench.open()
                    await life.check()
                    await life.go_on()

    moments, outcomes = moments_of_a_life(), Outcomes()
    run(story())
    assert outcomes.states >= 190


def test_a_killed_process_loses_nothing_at_all() -> None:
    async def story() -> None:
        for number, moment in enumerate(moments):
            life = Life.at(moment, number)
            life.disk.kill()
            if life.is_new(outcomes):
                await life.bench.open()
                await life.check()

    moments, outcomes = moments_of_a_life(), Outcomes()
    run(story())
    assert outcomes.states >= 130


@pytest.mark.invariant("log.recovered-tail-flushed")
def test_what_a_killed_process_left_in_memory_is_flushed_before_anybody_hears_of_it() -> None:
    async def story() -> None:
        disk = SimDisk()
        life = Life(disk)
        await life.bench.open()
        life.write(30)
        disk.kill()
        await life.bench.open()
        assert life.bench.log.flushed_end == 30
        disk.power_cut(Loss.ALL)
        await life.bench.open()
        assert life.bench.log.end_offset == 30
        await life.check()

    run(story())


@pytest.mark.invariant("log.recovery-restartable")
@pytest.mark.parametrize("loss", [Loss.SECTORS, Loss.TORN, None], ids=lambda loss: loss.name if loss else "drawn")
def test_a_power_cut_during_recovery_changes_nothing_about_where_it_ends(loss: Loss | None) -> None:
    for seed in range(25):
        run(interrupted_recovery(seed, loss))


async def interrupted_recovery(seed: int, loss: Loss | None) -> None:
    disk = SimDisk(seed)
    life = Life(disk)
    await life.bench.open()
    await life.write_and_flush(20)
    await life.bench.checkpoint()
    await life.write_and_flush(11)
    life.write(30)
    disk.power_cut(loss)
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
    await life.go_on()


@pytest.mark.invariant("log.names-durable-first")
def test_the_first_flush_also_covers_the_names_of_a_new_log() -> None:
    """The directory of the partition, and those above it: without them a flushed file cannot be found again."""

    async def story() -> None:
        disk = SimDisk()
        bench = Bench(disk)
        await bench.open()
        bench.append(3)
        await bench.log.flush()
        disk.power_cut(Loss.ALL)
        await bench.open()
        assert bases_in(await bench.read_all()) == [0, 1, 2]

    run(story())


@pytest.mark.invariant("log.names-durable-first")
def test_a_rolled_segment_is_not_acknowledged_before_its_name_is_durable() -> None:
    async def story() -> None:
        disk = SimDisk()
        bench = Bench(disk, SMALL)
        await bench.open()
        bench.append(3)
        await bench.log.flush()
        bench.append(20)
        ticket = bench.log.begin_flush()
        assert ticket is not None
        assert DIRECTORY in ticket.directories
        assert len(ticket.files) == 3

    run(story())
