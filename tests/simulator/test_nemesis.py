"""A seed draws its own trouble; the trouble is repeatable, comes in every kind, and ends when it is told to."""

from collections import Counter

import pytest
from line_log import Diary, LogServer, send_lines

from penstock.simulator.faults import DAMAGE, HARMLESS, KINDS
from penstock.simulator.nemesis import Nemesis, Plan, draw_plan
from penstock.simulator.world import World

CLIENTS = ["client-1", "client-2"]


class Run:
    """A plan carried out on the toy log, to its calm end."""

    def __init__(self, plan: Plan, *, flushes: bool = True) -> None:
        self.diary = Diary()
        with World(plan.seed) as world:
            server = LogServer(flushes=flushes)
            world.start("node", server.serve)
            for name in CLIENTS:
                world.start(name, lambda env, name=name: send_lines(env, name, self.diary))  # type: ignore[misc]
            nemesis = Nemesis(world, plan, nodes=["node"], clients=CLIENTS, start=lambda node: world.start(node, server.serve))
            nemesis.unleash()
            world.run_for(plan.seconds)
            nemesis.calm()
            self.before_the_calm = len(self.diary.acknowledged)
            world.run_for(8)
            self.is_up = world.is_running("node")
            self.fired = world.fired()
            self.strikes = len(nemesis.struck)
            self.complaints = world.complaints()
            self.trace_hash = world.trace_hash()
            disk = world.hosts["node"].disk
            self.kept = set(disk.snapshot("log").splitlines(keepends=True)) if "log" in disk.files() else set()

    @property
    def missing(self) -> set[bytes]:
        return self.diary.acknowledged - self.kept


def test_each_seed_draws_its_own_mix() -> None:
    knobs = {"segment_bytes": (1_000_000, 100, 5_000)}
    plans = [draw_plan(seed, 30, knobs=knobs) for seed in range(50)]
    assert plans == [draw_plan(seed, 30, knobs=knobs) for seed in range(50)]
    assert len({plan.kinds for plan in plans}) > 40
    assert {kind for plan in plans for kind in plan.kinds} == set(HARMLESS)
    assert len({len(plan.faults) for plan in plans}) > 20
    assert {plan.knobs["segment_bytes"] for plan in plans} == {1_000_000, 100, 5_000}
    assert len({plan.links.delay_seconds for plan in plans}) == 50


def test_no_harmless_fault_takes_what_was_acknowledged_and_in_the_calm_all_is_well() -> None:
    fired: Counter[str] = Counter()
    for seed in range(25):
        run = Run(draw_plan(seed, 10))
        assert run.missing == set(), f"seed {seed}"
        assert run.complaints == []
        assert run.is_up
        assert len(run.diary.acknowledged) > run.before_the_calm
        fired += run.fired
    assert set(fired) >= {
        *("power cut", "kill", "pause", "slow host", "clock jump", "clock drift", "one-way cut", "partition", "stall", "reset"),
        *("bad links", "disk full", "write failure", "flush failure", "read failure", "slow flush"),
    }


@pytest.mark.parametrize("kind", sorted(HARMLESS))
def test_every_kind_alone_leaves_a_history_that_can_be_repeated(kind: str) -> None:
    plan = draw_plan(7, 5, kinds=[kind])
    first = Run(plan)
    assert first.strikes > 0
    assert first.missing == set()
    assert Run(plan).trace_hash == first.trace_hash


@pytest.mark.parametrize("kind", sorted(DAMAGE))
def test_damage_is_done(kind: str) -> None:
    """Only what can be seen from outside: the fault was fired, or the toy's single file gave it nothing to swap."""
    run = Run(draw_plan(3, 10, kinds=[kind]))
    assert run.strikes > 0
    assert sum(run.fired.values()) > 0 or kind == "swapped files"


def test_a_server_that_acknowledges_too_early_does_not_get_far() -> None:
    assert any(Run(draw_plan(seed, 10, kinds=["power cut"]), flushes=False).missing for seed in range(10))


def test_a_plan_can_be_thinned_out() -> None:
    plan = draw_plan(1, 30)
    assert plan.without(0, 2).faults == (plan.faults[1], *plan.faults[3:])


def test_a_tender_moment_can_be_answered_with_a_fault() -> None:
    with World(1) as world:
        world.start("node", LogServer().serve)
        plan = Plan(seed=1, seconds=1, kinds=("power cut",), faults=(), provoked=1.0)
        nemesis = Nemesis(world, plan, nodes=["node"], clients=[], start=lambda node: world.start(node, LogServer().serve))
        nemesis.unleash()
        world.run_for(0.1)
        nemesis.provoke()
        world.run_for(5)
        assert world.hosts["node"].endings == ["power cut"]
        assert world.is_running("node")


def test_every_kind_has_a_name_of_its_own() -> None:
    assert len(KINDS) == len(HARMLESS) + len(DAMAGE) >= 25
