"""Thousands of steps of members of the new protocol, watched; and coordinators that are broken on purpose, which the walk must catch."""

import pytest
from groups.consumer.consumer_variants import VARIANTS
from groups.consumer.walk import Violation, Walk

from penstock.errors import BrokenPromise
from penstock.simulator.knobs import replaced

SEEDS = 40
STEPS = 250


@pytest.mark.invariant("groups.consumer-one-owner", "groups.consumer-sticky", "groups.consumer-epochs-grow", "groups.consumer-all-assigned")
def test_a_walk_finds_nothing_that_does_not_hold_and_meets_everything_on_the_way() -> None:
    seen: dict[str, int] = {}
    for seed in range(SEEDS):
        walk = Walk(seed)
        try:
            walk.run(STEPS)
        except (Violation, BrokenPromise) as found:
            pytest.fail(f"seed {seed}: {found}")
        for what, times in walk.company.seen.items():
            seen[what] = seen.get(what, 0) + times
    expected = [
        "epochs", "STABLE", "UNREVOKED", "UNRELEASED", "restarts", "rests", "dropped decisions", "answers missed", "beats NONE",
        "beats UNKNOWN_MEMBER_ID", "beats FENCED_MEMBER_EPOCH", "joins NONE", "joins GROUP_MAX_SIZE_REACHED", "came again under its id",
        "static joins NONE", "static joins UNRELEASED_INSTANCE_ID", "static ones stepped out",
    ]  # fmt: skip
    assert [what for what in expected if seen.get(what, 0) < 3] == [], f"too rare in {seen}"


@pytest.mark.soak(stays="tests/groups/consumer/test_walk.py::test_a_walk_finds_nothing_that_does_not_hold_and_meets_everything_on_the_way")
def test_a_long_walk() -> None:
    for seed in range(1_000, 1_600):
        try:
            Walk(seed).run(1_000)
        except (Violation, BrokenPromise) as found:
            pytest.fail(f"seed {seed}: {found}")


@pytest.mark.invariant("groups.consumer-one-owner", "groups.consumer-sticky", "groups.consumer-epochs-grow", "groups.consumer-all-assigned")
@pytest.mark.parametrize("variant", VARIANTS)
def test_a_broken_coordinator_is_caught(variant: str) -> None:
    with replaced(VARIANTS[variant]()), pytest.raises((Violation, BrokenPromise)):
        for seed in range(SEEDS):
            Walk(seed).run(STEPS)


def test_the_same_seed_tells_the_same_story() -> None:
    stories = []
    for _ in range(2):
        walk = Walk(7)
        walk.run(STEPS)
        stories.append((list(walk.company.log.items()), walk.company.seen))
    assert stories[0] == stories[1]
