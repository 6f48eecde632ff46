"""Thousands of steps of transactional producers against a naive model; and coordinators that are broken on purpose, which it must catch."""

from collections.abc import Iterator

import pytest
from groups.checkers import Violation
from groups.pending_variants import VARIANTS
from groups.pending_walk import Walk

from penstock.errors import BrokenPromise
from penstock.groups import image, pending, pending_image
from penstock.simulator.knobs import replaced

SEEDS = 30
STEPS = 300


@pytest.fixture(autouse=True)
def _small_pieces() -> Iterator[None]:
    """So that ends and snapshots go on while other things happen."""
    with replaced([(pending, "ENDED_AT_ONCE", 3), (image, "_PIECE_RECORDS", 3), (pending_image, "_PIECE_RECORDS", 2)]):
        yield


@pytest.mark.invariant("groups.transactional-offsets-atomic", "groups.stable-offsets-wait")
def test_producers_find_nothing_that_does_not_hold_and_meet_everything_on_the_way() -> None:
    seen: dict[str, int] = {}
    for seed in range(SEEDS):
        walk = Walk(seed)
        try:
            walk.run(STEPS)
        except (Violation, BrokenPromise) as found:
            pytest.fail(f"seed {seed}: {found}")
        for what, times in walk.seen.items():
            seen[what] = seen.get(what, 0) + times
    expected = [
        "ends", "pieces of ends", "late ends", "restarts", "snapshots", "dropped decisions", "not open any more",
        "offsets in transactions: NONE", "offsets in transactions: INVALID_TXN_STATE", "offsets in transactions: INVALID_PRODUCER_EPOCH",
        "offsets in transactions: NOT_COORDINATOR",
    ]  # fmt: skip
    assert [what for what in expected if seen.get(what, 0) < 10] == [], f"too rare: {seen}"


@pytest.mark.soak(stays="tests/groups/test_pending_walk.py::test_producers_find_nothing_that_does_not_hold_and_meet_everything_on_the_way")
def test_producers_for_long() -> None:
    for seed in range(1_000, 1_500):
        try:
            Walk(seed).run(1_500)
        except (Violation, BrokenPromise) as found:
            pytest.fail(f"seed {seed}: {found}")


@pytest.mark.invariant("groups.transactional-offsets-atomic")
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
        stories.append((walk.batches, walk.seen))
    assert stories[0] == stories[1]
