"""Pending offsets are counted and bounded; to end a transaction is never refused and takes no more."""

import pytest
from groups.pending_scene import PendingScene, Q

from penstock.errors import ErrorCode
from penstock.groups.commands import NewOffset
from penstock.groups.replies import PendingEnded

pytestmark = pytest.mark.invariant("groups.pending-memory-counted")

OK, FULL = ErrorCode.NONE, ErrorCode.COORDINATOR_NOT_AVAILABLE


def test_offsets_that_do_not_fit_come_again_and_those_that_are_there_may_change() -> None:
    scene = PendingScene()
    scene.pend(NewOffset("t", 0, 1, metadata="note"))
    scene.bytes_max = scene.coordinator.held_bytes + 1_500
    offsets = (NewOffset("t", 0, 2, metadata="Note"), NewOffset("t", 1, 1, metadata=700 * "x"), NewOffset("t", 2, 1))
    assert scene.pend(*offsets) == [OK, OK, FULL]
    assert scene.pend(NewOffset("t", 0, 3, metadata=1_000 * "x")) == [FULL]
    assert scene.unstable() == [("t", 0), ("t", 1)]
    scene.end(commits=True)
    assert scene.offsets() == {("t", 0): 2, ("t", 1): 1}


@pytest.mark.parametrize("offsets", [1, 2, 20])
@pytest.mark.parametrize("topics", [1, 20])
def test_a_commit_takes_no_more_than_what_was_pending(offsets: int, topics: int) -> None:
    scene = PendingScene()
    scene.pend(*(NewOffset(f"t{n % topics}", n, 1, metadata="ünïcode" * n) for n in range(offsets)))
    scene.bytes_max = held_bytes = scene.coordinator.held_bytes
    assert scene.end(commits=True) == PendingEnded(offsets=offsets)
    assert scene.coordinator.held_bytes <= held_bytes


@pytest.mark.parametrize("commits", [True, False])
def test_what_is_counted_holds_after_a_restart_and_what_is_gone_takes_nothing(commits: bool) -> None:
    scene = PendingScene()
    for number in range(3):
        scene.pend(NewOffset("t", 0, number, metadata="ünïcode" * number), NewOffset("t", number, 1))
        scene.pend(NewOffset("t", 0, 1), producer=Q, group="other")
        held_bytes = scene.coordinator.held_bytes
        scene.restart()
        assert scene.coordinator.held_bytes == held_bytes > 2_000
    scene.end(commits=commits)
    scene.end(commits=commits, producer=Q)
    for group in ("g", "other"):
        scene.delete_group(group)
    assert scene.coordinator.held_bytes == 0
    assert all(value is None for value in scene.log.values()), "nothing but tombstones is left"
