"""No offset is taken for a transaction after its end, however old the answer is that it was open."""

import gc

import pytest
from groups.pending_scene import P, PendingScene, Q

from penstock.errors import ErrorCode
from penstock.groups.bounds import ENDED_AT_ONCE
from penstock.groups.commands import NewOffset
from penstock.groups.pending_records import NO_NUMBER
from penstock.groups.replies import PendingEnded

pytestmark = pytest.mark.invariant("groups.transactional-offsets-atomic")

OK = ErrorCode.NONE
OFFSET = NewOffset("t", 0, 1)
LARGE = tuple(NewOffset("t", n, 1) for n in range(2 * ENDED_AT_ONCE + 1))


@pytest.mark.parametrize("commits", [True, False])
@pytest.mark.parametrize("has_something", [True, False])
def test_an_offset_that_was_on_its_way_when_its_transaction_ended_is_refused(commits: bool, has_something: bool) -> None:
    scene = PendingScene()
    if has_something:
        scene.pend(OFFSET)
    guard = scene.coordinator.guard(P)
    scene.end(commits=commits)
    before = scene.offsets()
    assert scene.pend(NewOffset("t", 0, 99), guard=guard) == [ErrorCode.INVALID_TXN_STATE]
    assert (scene.offsets(), scene.unstable()) == (before, [])


def test_an_offset_of_an_epoch_that_has_ended_is_of_an_old_producer() -> None:
    scene = PendingScene()
    guard = scene.coordinator.guard(P)
    scene.end(commits=False, epoch=1)
    assert scene.pend(OFFSET, epoch=0, guard=guard) == [ErrorCode.INVALID_PRODUCER_EPOCH]


def test_the_late_end_of_an_older_transaction_does_not_stop_the_next_one() -> None:
    scene = PendingScene()
    guard = scene.coordinator.guard(P)
    scene.end(commits=True, number=4)
    assert scene.pend(OFFSET, number=4, guard=guard) == [ErrorCode.INVALID_TXN_STATE]
    assert scene.pend(OFFSET, number=5, guard=guard) == [OK]


def test_an_end_without_a_number_makes_everybody_ask_again() -> None:
    scene = PendingScene()
    guard = scene.coordinator.guard(P)
    scene.end_whichever(commits=False, epoch=3)
    assert scene.pend(OFFSET, epoch=3, number=9, guard=guard) == [ErrorCode.NOT_COORDINATOR]
    assert scene.pend(OFFSET, epoch=3, number=9, guard=scene.coordinator.guard(P)) == [OK]


def test_the_end_of_another_producers_transaction_stops_nothing() -> None:
    scene = PendingScene()
    guard = scene.coordinator.guard(P)
    scene.end(commits=True, producer=Q)
    assert scene.pend(OFFSET, guard=guard) == [OK]


def test_a_guard_that_is_taken_after_the_end_knows_nothing_of_it() -> None:
    """Whoever asks now hears from the coordinator of transactions that this one is over."""
    scene = PendingScene()
    scene.end(commits=True, number=1)
    assert scene.pend(OFFSET, number=2, guard=scene.coordinator.guard(P)) == [OK]


def test_an_end_that_could_not_be_stored_stops_what_was_on_its_way_all_the_same() -> None:
    scene = PendingScene()
    scene.pend(OFFSET)
    guard = scene.coordinator.guard(P)
    scene.is_disk_full = True
    with pytest.raises(KeyError):
        scene.end(commits=True)
    scene.is_disk_full = False
    assert scene.pend(NewOffset("t", 0, 2), guard=guard) == [ErrorCode.INVALID_TXN_STATE]
    assert scene.pend_on(NewOffset("t", 0, 2)) == [ErrorCode.INVALID_TXN_STATE]
    assert scene.end(commits=True) == PendingEnded(offsets=1)
    assert scene.offsets() == {("t", 0): 1}


def test_a_guard_of_another_life_is_worth_nothing() -> None:
    scene = PendingScene()
    guard = scene.coordinator.guard(P)
    scene.restart()
    assert scene.pend(OFFSET, guard=guard) == [ErrorCode.NOT_COORDINATOR]
    assert scene.pend(OFFSET) == [OK]


def test_a_guard_of_another_producer_is_worth_nothing() -> None:
    scene = PendingScene()
    other = scene.coordinator.guard(Q)
    assert scene.pend(OFFSET, guard=other) == [ErrorCode.NOT_COORDINATOR]


def test_more_of_what_is_open_here_needs_no_guard() -> None:
    scene = PendingScene()
    assert scene.coordinator.needs_verification(P, 0)
    assert scene.pend_on(OFFSET) == [ErrorCode.INVALID_TXN_STATE]
    scene.pend(OFFSET)
    assert not scene.coordinator.needs_verification(P, 0)
    assert scene.coordinator.needs_verification(P, 1)
    assert scene.coordinator.needs_verification(Q, 0)
    assert scene.pend_on(NewOffset("t", 1, 2), group="other") == [OK]
    assert scene.pend_on(OFFSET, epoch=1) == [ErrorCode.INVALID_TXN_STATE]
    assert scene.pend_on(OFFSET, producer=Q) == [ErrorCode.INVALID_TXN_STATE]
    scene.end(commits=True)
    assert scene.coordinator.needs_verification(P, 0)
    assert scene.pend_on(OFFSET) == [ErrorCode.INVALID_TXN_STATE]


def test_a_restarted_coordinator_asks_again_for_its_end_may_have_begun_before() -> None:
    scene = PendingScene()
    scene.pend(*LARGE)
    assert not scene.end(commits=True).is_over
    scene.restart()
    assert scene.coordinator.needs_verification(P, 0)
    assert scene.pend_on(OFFSET) == [ErrorCode.INVALID_TXN_STATE]


def test_an_older_epoch_or_number_than_what_is_open_here_is_refused() -> None:
    scene = PendingScene()
    scene.pend(OFFSET, epoch=3, number=8)
    assert scene.pend(OFFSET, epoch=2, number=9) == [ErrorCode.INVALID_PRODUCER_EPOCH]
    assert scene.pend(OFFSET, epoch=3, number=7) == [ErrorCode.INVALID_TXN_STATE]
    assert [(each.producer_epoch, each.number) for each in scene.coordinator.open_transactions()] == [(3, 8)]


def test_a_transaction_that_nobody_knows_the_number_of_is_not_begun() -> None:
    """Its end could not be told from that of another."""
    scene = PendingScene()
    assert scene.pend(OFFSET, number=NO_NUMBER) == [ErrorCode.INVALID_TXN_STATE]
    scene.pend(OFFSET, number=3)
    assert scene.pend(OFFSET, number=NO_NUMBER) == [OK]
    assert [each.number for each in scene.coordinator.open_transactions()] == [3]


def test_a_guard_is_forgotten_when_nobody_holds_it() -> None:
    scene = PendingScene()
    guards = [scene.coordinator.guard(P), scene.coordinator.guard(P), scene.coordinator.guard(Q)]
    assert guards[0] is guards[1]
    held = scene.coordinator._sessions.guards._held
    assert len(held) == 2
    guards.clear()
    gc.collect()
    assert len(held) == 0


# Ends in pieces


@pytest.mark.parametrize("commits", [True, False])
def test_an_end_of_which_a_part_was_stored_comes_to_the_same_when_it_is_given_again(commits: bool) -> None:
    scene = PendingScene()
    scene.pend(NewOffset("t", 0, 1), NewOffset("t", 1, 1), producer=Q)
    scene.pend(NewOffset("t", 1, 2), NewOffset("t", 2, 2), NewOffset("t", 3, 2), group="g")
    scene.pend_on(NewOffset("t", 0, 3), group="other")
    before = scene.log.copy()
    scene.end(commits=commits)
    whole, stored = scene.log.copy(), scene.batches[-1]
    for cut in range(len(stored)):
        scene.log = before | dict(stored[:cut])
        scene.restart()
        assert scene.end(commits=commits).is_over
        assert scene.log == whole, f"{cut} of {len(stored)} records were stored"


def test_a_large_transaction_ends_in_pieces_and_takes_no_more_meanwhile() -> None:
    scene = PendingScene()
    scene.pend(*LARGE)
    scene.sizes.clear()
    assert scene.end(commits=True) == PendingEnded(offsets=ENDED_AT_ONCE, is_over=False)
    assert scene.coordinator.needs_verification(P, 0)
    assert scene.pend_on(NewOffset("late", 0, 1)) == [ErrorCode.INVALID_TXN_STATE]
    assert scene.end(commits=True) == PendingEnded(offsets=ENDED_AT_ONCE, is_over=False)
    assert scene.end(commits=True) == PendingEnded(offsets=1)
    assert max(scene.sizes) == 2 * ENDED_AT_ONCE
    assert (len(scene.offsets()), scene.unstable()) == (len(LARGE), [])
    assert scene.pend(NewOffset("t", 0, 2), number=2) == [OK]
    assert scene.pend_on(NewOffset("t", 1, 2)) == [OK], "the next transaction is open"


def test_whoever_wants_stable_offsets_sees_no_half_of_a_transaction() -> None:
    scene = PendingScene()
    scene.pend(*LARGE)
    scene.end(commits=True)
    for _ in range(2):
        views = scene.coordinator.offsets("g", [("t", n) for n in range(len(LARGE))], require_stable=True)
        assert [view.offset for view in views if not view.is_unstable] == [1] * ENDED_AT_ONCE
        assert any(view.is_unstable for view in views), "so all of it is asked for again"
        scene.restart()
    while not scene.end(commits=True).is_over:
        pass
    assert len(scene.offsets()) == len(LARGE)


def test_between_two_pieces_a_plain_commit_holds() -> None:
    scene = PendingScene()
    scene.pend(*LARGE)
    scene.end(commits=True)
    scene.commit(NewOffset("t", 0, 77), NewOffset("t", len(LARGE) - 1, 78))
    while not scene.end(commits=True).is_over:
        pass
    assert (scene.offset("t", 0).offset, scene.offset("t", len(LARGE) - 1).offset) == (77, 78)


def test_a_group_that_is_deleted_between_two_pieces_stays_away() -> None:
    scene = PendingScene()
    scene.pend(*LARGE)
    scene.end(commits=True)
    while scene.delete_group() == OK and scene.coordinator.holds("g"):
        pass
    assert scene.end(commits=True) == PendingEnded()
    assert not scene.coordinator.holds("g")
    assert scene.pend(OFFSET, number=2) == [OK]
