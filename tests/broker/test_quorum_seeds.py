"""Stories of a metadata quorum, each from one number: who dies when, what is lost on the way, which disk lies. In the end all is calm,
and everything that was granted must be there, the same everywhere.
"""

from collections.abc import Coroutine
from contextlib import suppress
from random import Random
from typing import Any

import pytest
from broker.assembly import Assembly, worlds
from tiers import pick

from penstock.broker import quorum_persisting, quorum_snapshots, quorum_store
from penstock.broker.quorum import CommitUnknown
from penstock.errors import DiskFailed
from penstock.log.config import LogConfig
from penstock.simulator.disk_faults import DiskFaults
from penstock.simulator.platter import LOSSES

pytestmark = pytest.mark.invariant("consensus.answer-after-flush")

STEPS = 60


def faults_of(rng: Random) -> DiskFaults:
    is_bad = rng.random() < 0.4
    return DiskFaults(
        sync_seconds_max=rng.choice((0.002, 0.02)),
        slow_sync=rng.choice((0.0, 0.02)),
        slow_sync_seconds=0.5,
        cold_read=rng.choice((0.0, 0.3)),
        write_failure=0.002 if is_bad else 0.0,
        flush_failure=0.003 if is_bad else 0.0,
        name_flush_failure=0.003 if is_bad else 0.0,
        failed_pages_stay=rng.random() < 0.5,
    )


class Story:
    def __init__(self, assembly: Assembly, rng: Random) -> None:
        self.assembly = assembly
        self.rng = rng
        self.happened: dict[str, int] = {}

    def go(self) -> None:
        moves = (
            (self.ask, 10), (self.wait, 6), (self.kill, 2), (self.cut_power, 2), (self.ambush, 1), (self.stop, 1), (self.revive, 5),
            (self.isolate, 1), (self.part, 1), (self.heal, 2), (self.pause, 1), (self.lose, 1), (self.hand_over, 1), (self.fill_up, 1),
        )  # fmt: skip
        for _ in range(STEPS):
            (move,) = self.rng.choices([move for move, _ in moves], [weight for _, weight in moves])
            self.happened[move.__name__] = self.happened.get(move.__name__, 0) + 1
            move()
            self.assembly.world.run_for(self.rng.choice((0.0, 0.01, 0.1, 0.5)))

    def calm_down(self) -> None:
        assembly, world = self.assembly, self.assembly.world
        assembly.heal()
        for number, actor in assembly.actors.items():
            world.resume(actor.host)
            assembly.host(number).disk.pacify()
        world.run_for(1)
        for number, actor in assembly.actors.items():
            if actor.failures and world.is_running(actor.host):
                assembly.kill(number)
            if world.has_ended(actor.host):
                assembly.start(number)

    def one(self) -> int:
        return self.rng.choice(list(self.assembly.actors))

    def ask(self) -> None:
        """Mostly those who lead, or think so."""
        leading = [number for number, actor in self.assembly.actors.items() if self.assembly.is_leading(actor)]
        for _ in range(self.rng.choice((1, 3, 10))):
            self.assembly.ask_soon(self.rng.choice(leading) if leading and self.rng.random() < 0.9 else self.one())

    def wait(self) -> None:
        self.assembly.world.run_for(self.rng.choice((0.2, 1.0)))

    def kill(self) -> None:
        self.assembly.kill(self.one())

    def cut_power(self) -> None:
        self.assembly.power_cut(self.one(), self.rng.choice(LOSSES))

    def ambush(self) -> None:
        """The power goes at one of the next changes of a disk."""
        self.assembly.host(self.one()).disk.crash_at(self.rng.randint(1, 15))

    def stop(self) -> None:
        actor = self.assembly[self.one()]
        if self.assembly.world.is_running(actor.host):
            self.assembly.world.terminate(actor.host)

    def revive(self) -> None:
        for number, actor in self.assembly.actors.items():
            if self.assembly.world.is_running(actor.host) and actor.failures:
                self.assembly.kill(number)
            actor.failures.clear()
            if self.assembly.world.has_ended(actor.host):
                self.assembly.start(number)

    def isolate(self) -> None:
        self.assembly.isolate(self.one())

    def part(self) -> None:
        """One way only."""
        for _ in range(2):
            self.assembly.cut[self.one(), self.one()] = None

    def heal(self) -> None:
        self.assembly.heal()
        for number, actor in self.assembly.actors.items():
            self.assembly.world.resume(actor.host)
            self.assembly.host(number).disk.capacity_bytes = 1 << 50

    def pause(self) -> None:
        host = self.assembly[self.one()].host
        if self.assembly.world.is_running(host):
            self.assembly.world.pause(host)

    def lose(self) -> None:
        self.assembly.loss = self.rng.choice((0.05, 0.3))

    def hand_over(self) -> None:
        for number, actor in self.assembly.actors.items():
            if self.assembly.is_leading(actor):
                process = self.assembly.host(number).process
                assert process is not None
                self.assembly.world.loop.create_task(quietly(actor.living.transfer()), context=process.context.copy())

    def fill_up(self) -> None:
        disk = self.assembly.host(self.one()).disk
        disk.capacity_bytes -= max(0, disk.free_bytes() - self.rng.choice((0, 100, 1_000)))


async def quietly(work: Coroutine[Any, Any, bool]) -> None:
    with suppress(CommitUnknown, DiskFailed):
        await work


def tell(seed: int, monkeypatch: pytest.MonkeyPatch) -> tuple[Assembly, str]:
    rng = Random(f"{seed}/quorum")
    monkeypatch.setattr(quorum_snapshots, "SNAPSHOT_EVERY_BYTES", rng.choice((60, 300, 1 << 20)))
    monkeypatch.setattr("penstock.broker.quorum.ROOM_KEPT_BYTES", rng.choice((0, 2_000)))
    monkeypatch.setattr(quorum_persisting, "RETRY_SECONDS_MAX", 0.2)
    monkeypatch.setattr(quorum_store, "READ_BYTES", rng.choice((1, 300, 1 << 20)))
    config = LogConfig(segment_bytes=rng.choice((300, 2_000, 1 << 20)), retention_ms=-1, retention_bytes=-1)
    monkeypatch.setattr(quorum_store, "_CONFIG", config)
    with worlds(seed, faults=faults_of(rng)) as world:
        assembly = Assembly(world, rng.choice((1, 2, 3, 3, 5)), spares=rng.choice((0, 0, 1)))
        assembly.start_all()
        story = Story(assembly, rng)
        story.go()
        story.calm_down()
        assembly.settle(60)
        return assembly, world.trace_hash()


@pytest.mark.repeats
@pytest.mark.parametrize("first", range(0, pick(test=20, slow=60), 10))
def test_nothing_that_was_granted_is_lost_in_any_story(first: int, monkeypatch: pytest.MonkeyPatch) -> None:
    granted = 0
    for seed in range(first, first + 10):
        try:
            assembly, _ = tell(seed, monkeypatch)
        except BaseException as failure:
            raise AssertionError(f"seed {seed}: {failure!r}") from failure
        granted += len(assembly.granted)
    assert granted > 100


def test_equal_seeds_tell_equal_stories(monkeypatch: pytest.MonkeyPatch) -> None:
    assert tell(7, monkeypatch)[1] == tell(7, monkeypatch)[1]
