"""Thousands of steps of a crowd, watched by the checkers; and coordinators that are broken on purpose, which they must catch."""

import pytest
from groups.checkers import Violation
from groups.crowd import Crowd
from groups.variants import VARIANTS

from penstock.errors import BrokenPromise
from penstock.simulator.knobs import replaced

SEEDS = 40
STEPS = 600


@pytest.mark.invariant("groups.classic-generation", "groups.parked-requests-answered-once", "groups.committed-offset-changes")
def test_a_crowd_finds_nothing_that_does_not_hold_and_meets_everything_on_the_way() -> None:
    seen: dict[str, int] = {}
    for seed in range(SEEDS):
        crowd = Crowd(seed)
        try:
            crowd.run(STEPS)
        except (Violation, BrokenPromise) as found:
            pytest.fail(f"seed {seed}: {found}")
        for what, times in crowd.checker.seen.items():
            seen[what] = seen.get(what, 0) + times
    rare = {what: times for what, times in seen.items() if times < 3}
    expected = [
        "joins", "syncs", "commits", "restarts", "dropped decisions", "generations recorded", "groups emptied", "groups deleted",
        "offsets expired", "static members came", "joins refused with MEMBER_ID_REQUIRED", "joins refused with FENCED_INSTANCE_ID",
        "joins refused with UNKNOWN_MEMBER_ID", "joins refused with NOT_COORDINATOR", "joins refused with GROUP_MAX_SIZE_REACHED",
        "joins refused with INCONSISTENT_GROUP_PROTOCOL", "syncs refused with REBALANCE_IN_PROGRESS",
        "syncs refused with ILLEGAL_GENERATION", "commits refused with ILLEGAL_GENERATION", "commits refused with REBALANCE_IN_PROGRESS",
        "commits refused with OFFSET_METADATA_TOO_LARGE", "commits refused with FENCED_INSTANCE_ID",
    ]  # fmt: skip
    assert [what for what in expected if seen.get(what, 0) < 3] == [], f"too rare: {rare}"


@pytest.mark.soak(stays="tests/groups/test_random_steps.py::test_a_crowd_finds_nothing_that_does_not_hold_and_meets_everything_on_the_way")
def test_a_large_crowd_for_long() -> None:
    for seed in range(1_000, 1_400):
        crowd = Crowd(seed)
        try:
            crowd.run(3_000)
        except (Violation, BrokenPromise) as found:
            pytest.fail(f"seed {seed}: {found}")


@pytest.mark.invariant("groups.classic-generation")
@pytest.mark.parametrize("variant", VARIANTS)
def test_a_broken_coordinator_is_caught(variant: str) -> None:
    with replaced(VARIANTS[variant]()), pytest.raises((Violation, BrokenPromise)):
        for seed in range(SEEDS):
            Crowd(seed).run(STEPS)


def test_the_same_seed_tells_the_same_story() -> None:
    stories = []
    for _ in range(2):
        crowd = Crowd(7)
        crowd.run(STEPS)
        stories.append((list(crowd.log.items()), crowd.checker.seen))
    assert stories[0] == stories[1]
