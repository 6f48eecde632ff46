"""Offsets in transactions: pending until the end, then all of them or none."""

import pytest
from groups.pending_scene import P, PendingScene, Q
from groups.scene import settled

from penstock.errors import ErrorCode
from penstock.groups.bounds import DELETED_AT_ONCE
from penstock.groups.commands import DeleteGroup, Leaving, NewOffset
from penstock.groups.replies import CommitReply, DeleteGroupReply, PendingEnded
from penstock.groups.states import GroupState
from penstock.groups.views import OffsetView, OpenTransaction
from penstock.settings import DAY_MS
from penstock.vocabulary import TopicId

pytestmark = pytest.mark.invariant("groups.transactional-offsets-atomic")

OK = ErrorCode.NONE
FIRST, SECOND = TopicId(b"the first of it "), TopicId(b"the second of it")
RETENTION_SECONDS = 7 * DAY_MS / 1000


def test_an_offset_is_there_when_its_transaction_is_committed_and_not_before() -> None:
    scene = PendingScene()
    began_ms = scene.wall_ms
    assert scene.pend(NewOffset("t", 3, 42, leader_epoch=5, metadata="ünïcode ✓")) == [OK]
    for _ in range(2):
        assert scene.offset("t", 3) == OffsetView("t", 3)
        scene.restart()
    scene.wait(9)
    assert scene.end(commits=True) == PendingEnded(offsets=1)
    for _ in range(2):
        assert scene.offset("t", 3) == OffsetView("t", 3, 42, 5, "ünïcode ✓", began_ms)
        scene.restart()
    assert scene.coordinator.committed_topics() == [("t", TopicId(bytes(16)))]


def test_nothing_is_left_of_an_aborted_transaction() -> None:
    scene = PendingScene()
    scene.commit(NewOffset("t", 0, 1))
    scene.pend(NewOffset("t", 0, 42), NewOffset("t", 1, 43))
    assert scene.end(commits=False) == PendingEnded(offsets=2)
    for _ in range(2):
        assert scene.offsets() == {("t", 0): 1}
        assert scene.unstable() == []
        scene.restart()


@pytest.mark.invariant("groups.stable-offsets-wait")
def test_whoever_wants_stable_offsets_hears_which_ones_are_not() -> None:
    scene = PendingScene()
    scene.commit(NewOffset("t", 0, 1), NewOffset("t", 1, 2))
    scene.pend(NewOffset("t", 1, 42), NewOffset("t", 2, 43))
    asked = [("t", 2), ("t", 0), ("t", 1), ("u", 0)]
    first, second = OffsetView("t", 0, 1, -1, "", scene.wall_ms), OffsetView("t", 1, 2, -1, "", scene.wall_ms)
    for _ in range(2):
        assert scene.coordinator.offsets("g", asked, require_stable=True) == [
            OffsetView("t", 2, is_unstable=True), first, OffsetView("t", 1, is_unstable=True), OffsetView("u", 0),
        ]  # fmt: skip
        assert scene.coordinator.offsets("g", None, require_stable=True) == [first, OffsetView("t", 1, is_unstable=True)]
        assert scene.coordinator.offsets("g", asked) == [OffsetView("t", 2), first, second, OffsetView("u", 0)]
        assert scene.unstable() == [("t", 1), ("t", 2)]
        assert scene.unstable("another") == []
        scene.restart()
    scene.end(commits=True)
    assert [view.offset for view in scene.coordinator.offsets("g", asked, require_stable=True)] == [43, 1, 42, -1]


def test_the_last_offset_of_a_transaction_for_a_partition_holds() -> None:
    scene = PendingScene()
    scene.pend(NewOffset("t", 0, 5), NewOffset("t", 0, 9))
    assert scene.pend_on(NewOffset("t", 0, 2)) == [OK]
    scene.end(commits=True)
    assert scene.offsets() == {("t", 0): 2}


def test_a_transaction_ends_for_all_groups_and_for_no_other_producer() -> None:
    scene = PendingScene()
    scene.pend(NewOffset("t", 0, 1), group="a")
    scene.pend(NewOffset("t", 0, 2), group="b")
    scene.pend(NewOffset("t", 1, 3), group="a", producer=Q)
    assert scene.coordinator.open_transactions() == [
        OpenTransaction(P, 0, 1, scene.wall_ms, ("a", "b"), 2), OpenTransaction(Q, 0, 1, scene.wall_ms, ("a",), 1),
    ]  # fmt: skip
    assert scene.end(commits=True).offsets == 2
    assert (scene.offsets("a"), scene.offsets("b")) == ({("t", 0): 1}, {("t", 0): 2})
    assert scene.unstable("a") == [("t", 1)]


def test_a_group_is_there_while_anything_of_it_is_pending() -> None:
    scene = PendingScene()
    scene.pend(NewOffset("t", 0, 1))
    for _ in range(2):
        assert [(listed.group, listed.state) for listed in scene.coordinator.groups()] == [("g", GroupState.EMPTY)]
        assert (scene.state, scene.coordinator.holds("g"), scene.coordinator.size) == (GroupState.EMPTY, True, 1)
        scene.restart()
    scene.end(commits=False)
    assert (scene.state, scene.coordinator.holds("g"), scene.coordinator.groups()) == (GroupState.DEAD, False, [])


# Which end means which transaction


@pytest.mark.parametrize("commits", [True, False])
def test_the_same_end_again_changes_nothing(commits: bool) -> None:
    scene = PendingScene()
    assert scene.end(commits=commits) == PendingEnded()
    scene.pend(NewOffset("t", 0, 1))
    scene.end(commits=commits)
    scene.commit(NewOffset("t", 0, 5))
    assert scene.end(commits=commits) == PendingEnded()
    assert scene.offsets() == {("t", 0): 5}


@pytest.mark.parametrize("commits", [True, False])
def test_the_late_end_of_an_older_transaction_does_not_end_the_next_one_of_the_same_epoch(commits: bool) -> None:
    scene = PendingScene()
    scene.pend(NewOffset("t", 0, 1), number=1)
    scene.end(commits=True, number=1)
    scene.pend(NewOffset("t", 0, 2), number=2)
    assert scene.end(commits=commits, number=1) == PendingEnded()
    assert (scene.offsets(), scene.unstable()) == ({("t", 0): 1}, [("t", 0)])
    assert scene.pend_on(NewOffset("t", 1, 3)) == [OK]
    scene.end(commits=True, number=2)
    assert scene.offsets() == {("t", 0): 2, ("t", 1): 3}


def test_the_end_of_an_older_epoch_is_refused() -> None:
    scene = PendingScene()
    scene.pend(NewOffset("t", 0, 1), epoch=4)
    assert scene.end(commits=False, epoch=3) == PendingEnded(ErrorCode.INVALID_PRODUCER_EPOCH)
    assert scene.end_whichever(commits=False, epoch=3) == PendingEnded(ErrorCode.INVALID_PRODUCER_EPOCH)
    assert scene.unstable() == [("t", 0)]


def test_an_end_with_a_bumped_epoch_ends_the_transaction() -> None:
    """That of one that took too long, and every one of a producer that bumps its epoch with each."""
    scene = PendingScene()
    scene.pend(NewOffset("t", 0, 1), epoch=4)
    assert scene.end(commits=True, epoch=5).offsets == 1
    assert scene.offsets() == {("t", 0): 1}


@pytest.mark.parametrize("commits", [True, False])
def test_an_end_without_a_number_ends_whatever_is_open(commits: bool) -> None:
    """An admin aborts a transaction that hangs."""
    scene = PendingScene()
    scene.pend(NewOffset("t", 0, 1), number=9)
    assert scene.end_whichever(commits=commits).offsets == 1
    assert scene.offsets() == ({("t", 0): 1} if commits else {})
    assert scene.unstable() == []


def test_what_a_lost_log_has_left_of_an_older_transaction_is_not_committed_with_a_newer_one() -> None:
    scene = PendingScene()
    scene.pend(NewOffset("t", 0, 1), number=1)
    assert scene.end(commits=True, number=2).offsets == 1
    assert (scene.offsets(), scene.unstable()) == ({}, [])


def test_what_a_lost_log_has_left_of_an_older_transaction_goes_when_a_newer_one_begins() -> None:
    scene = PendingScene()
    scene.pend(NewOffset("t", 0, 1), NewOffset("t", 1, 1), number=1)
    scene.pend(NewOffset("t", 0, 2), number=2)
    assert scene.unstable() == [("t", 0)]
    scene.end(commits=True, number=2)
    assert scene.offsets() == {("t", 0): 2}


# What came later holds


def test_a_plain_commit_holds_against_what_was_pending_before_it() -> None:
    scene = PendingScene()
    scene.pend(NewOffset("t", 0, 42), NewOffset("t", 1, 43))
    scene.commit(NewOffset("t", 0, 5))
    assert scene.unstable() == [("t", 1)], "no open transaction can change the other one any more"
    scene.end(commits=True)
    assert scene.offsets() == {("t", 0): 5, ("t", 1): 43}


def test_what_is_pending_after_a_plain_commit_holds_against_it() -> None:
    scene = PendingScene()
    scene.pend(NewOffset("t", 0, 42))
    scene.commit(NewOffset("t", 0, 5))
    assert scene.pend(NewOffset("t", 0, 6)) == [OK]
    scene.end(commits=True)
    assert scene.offsets() == {("t", 0): 6}


@pytest.mark.parametrize("is_restarted", [False, True])
@pytest.mark.parametrize("first", [P, Q])
def test_of_two_transactions_the_one_that_committed_later_holds_whichever_ends_first(first: int, is_restarted: bool) -> None:
    scene = PendingScene()
    scene.pend(NewOffset("t", 0, 1), NewOffset("t", 1, 1), producer=P)
    if is_restarted:
        scene.restart()
    scene.pend(NewOffset("t", 0, 2), producer=Q)
    for producer in (P, Q) if first == P else (Q, P):
        scene.end(commits=True, producer=producer)
    assert scene.offsets() == {("t", 0): 2, ("t", 1): 1}


def test_an_aborted_transaction_takes_nothing_from_an_earlier_one() -> None:
    scene = PendingScene()
    scene.pend(NewOffset("t", 0, 1), producer=P)
    scene.pend(NewOffset("t", 0, 2), producer=Q)
    scene.end(commits=False, producer=Q)
    assert scene.unstable() == [("t", 0)]
    scene.end(commits=True, producer=P)
    assert scene.offsets() == {("t", 0): 1}


# What goes with the group and the topic


def test_a_deleted_offset_does_not_come_back_with_the_transaction() -> None:
    scene = PendingScene()
    scene.commit(NewOffset("t", 0, 1))
    scene.pend(NewOffset("t", 0, 2), NewOffset("t", 1, 3), NewOffset("t", 2, 4))
    assert scene.delete_offsets(("t", 0), ("t", 1)).error is OK
    assert (scene.offsets(), scene.unstable()) == ({}, [("t", 2)])
    scene.end(commits=True)
    assert scene.offsets() == {("t", 2): 4}


def test_a_deleted_group_does_not_come_back_with_the_transaction() -> None:
    scene = PendingScene()
    scene.commit(NewOffset("t", 0, 1))
    scene.pend(NewOffset("t", 0, 2), NewOffset("u", 0, 3))
    scene.pend(NewOffset("t", 0, 2), group="other")
    assert scene.delete_group() == OK
    scene.end(commits=True)
    assert (scene.state, scene.offsets(), scene.offsets("other")) == (GroupState.DEAD, {}, {("t", 0): 2})
    scene.restart()
    assert scene.state is GroupState.DEAD


def test_a_group_with_much_pending_is_deleted_in_pieces_and_takes_no_more_meanwhile() -> None:
    scene = PendingScene()
    scene.pend(*(NewOffset("t", n, 1) for n in range(DELETED_AT_ONCE + 1)))
    assert scene.ask(DeleteGroup(token="first", group="g")) == DeleteGroupReply(OK, is_over=False)
    assert scene.pend(NewOffset("u", 0, 1)) == [ErrorCode.COORDINATOR_NOT_AVAILABLE]
    assert scene.delete_group() == OK
    assert (scene.state, scene.coordinator.held_bytes) == (GroupState.DEAD, 0)
    assert scene.pend(NewOffset("u", 0, 1)) == [OK]


def test_what_is_pending_for_a_deleted_topic_goes_with_it_and_for_the_next_of_its_name_stays() -> None:
    scene = PendingScene()
    scene.pend(NewOffset("t", 0, 1, topic_id=FIRST), NewOffset("t", 1, 2, topic_id=SECOND), NewOffset("t", 2, 3))
    assert scene.coordinator.committed_topics() == [("t", FIRST), ("t", SECOND), ("t", TopicId(bytes(16)))]
    assert scene.coordinator.has_offsets_of("t", FIRST)
    assert scene.forget("t", FIRST) == 2
    assert not scene.coordinator.has_offsets_of("t", FIRST)
    assert scene.forget("t", FIRST) == 0
    scene.end(commits=True)
    assert scene.offsets() == {("t", 1): 2}
    assert scene.coordinator.committed_topics() == [("t", SECOND)]


def test_an_offset_that_a_transaction_may_change_does_not_expire() -> None:
    scene = PendingScene()
    scene.commit(NewOffset("t", 0, 1), NewOffset("t", 1, 2))
    scene.pend(NewOffset("t", 1, 3))
    scene.wait(RETENTION_SECONDS + 3_600)
    assert scene.offsets() == {("t", 1): 2}
    scene.end(commits=False)
    scene.wait(3_600)
    assert scene.state is GroupState.DEAD


def test_an_empty_group_is_not_forgotten_under_a_transaction() -> None:
    scene = PendingScene()
    (member,) = settled(scene, 1)
    scene.pend(NewOffset("t", 0, 1), member_id=member, generation=scene.generation)
    scene.leave(Leaving(member))
    generation = scene.generation
    scene.wait(3_600)
    assert (scene.state, scene.generation) == (GroupState.EMPTY, generation)
    scene.end(commits=False)
    scene.wait(3_600)
    assert scene.state is GroupState.DEAD


# Who may commit


def test_a_member_of_the_current_generation_commits_in_every_phase() -> None:
    """As at Kafka: a rebalance is no reason to abort a transaction."""
    scene = PendingScene()
    leader, follower = settled(scene)
    generation = scene.generation
    assert scene.pend(NewOffset("t", 0, 1), member_id=leader, generation=generation) == [OK]
    newcomer = scene.joined(scene.join()).member_id
    scene.join(newcomer)
    assert scene.state is GroupState.PREPARING
    assert scene.pend(NewOffset("t", 0, 2), member_id=leader, generation=generation) == [OK]
    scene.join(leader)
    scene.join(follower)
    assert scene.state is GroupState.COMPLETING
    assert scene.pend(NewOffset("t", 0, 3), member_id=leader, generation=generation) == [ErrorCode.ILLEGAL_GENERATION]
    assert scene.pend(NewOffset("t", 0, 3), member_id=leader, generation=generation + 1) == [OK]


@pytest.mark.parametrize(
    ("member", "error"),
    [
        ({"member_id": "nobody", "generation": 1}, ErrorCode.UNKNOWN_MEMBER_ID),
        ({"member_id": "nobody"}, ErrorCode.UNKNOWN_MEMBER_ID),
        ({"generation": 1}, ErrorCode.UNKNOWN_MEMBER_ID),
        ({"member_id": "m1", "generation": 1, "instance_id": "nobody"}, ErrorCode.UNKNOWN_MEMBER_ID),
        ({"member_id": "fenced", "generation": 1, "instance_id": "i"}, ErrorCode.FENCED_INSTANCE_ID),
        ({"member_id": "m1", "generation": 0, "instance_id": "i"}, ErrorCode.ILLEGAL_GENERATION),
        ({"member_id": "m1", "generation": 2, "instance_id": "i"}, ErrorCode.ILLEGAL_GENERATION),
        ({"member_id": "m1", "instance_id": "i"}, ErrorCode.ILLEGAL_GENERATION),
        ({"member_id": "m1", "generation": 1, "instance_id": "i"}, OK),
        ({}, OK),  # Below version 3 nobody says who it is.
    ],
)
def test_who_says_who_it_is_must_be_right(member: dict[str, object], error: ErrorCode) -> None:
    scene = PendingScene()
    assert scene.joined(scene.join(instance="i")).member_id == "m1"
    scene.sync("m1", 1)
    assert scene.pend(NewOffset("t", 0, 1), NewOffset("t", 1, 1), **member) == [error, error]
    assert len(scene.unstable()) == (2 if error is OK else 0)


@pytest.mark.parametrize(("generation", "error"), [(-1, OK), (0, ErrorCode.ILLEGAL_GENERATION), (3, ErrorCode.ILLEGAL_GENERATION)])
def test_a_group_that_is_not_there_begins_without_a_generation_only(generation: int, error: ErrorCode) -> None:
    scene = PendingScene()
    assert scene.pend(NewOffset("t", 0, 1), member_id="m", generation=generation) == [error]
    assert scene.coordinator.holds("g") == (error is OK)


def test_an_empty_group_takes_offsets_of_anybody_without_a_generation() -> None:
    scene = PendingScene()
    (member,) = settled(scene, 1)
    scene.leave(Leaving(member))
    assert scene.pend(NewOffset("t", 0, 1), member_id=member) == [OK]
    assert scene.pend(NewOffset("t", 0, 1), member_id=member, generation=1) == [ErrorCode.UNKNOWN_MEMBER_ID]


def test_metadata_that_is_too_long_is_refused_for_its_partition_alone() -> None:
    scene = PendingScene()
    errors = scene.pend(NewOffset("t", 0, 1, metadata="x" * 4097), NewOffset("t", 1, 2, metadata="x" * 4096), NewOffset("t", 2, 3))
    assert errors == [ErrorCode.OFFSET_METADATA_TOO_LARGE, OK, OK]
    scene.end(commits=True)
    assert scene.offsets() == {("t", 1): 2, ("t", 2): 3}


def test_all_that_was_asked_is_answered_in_that_order() -> None:
    scene = PendingScene()
    scene.pend(NewOffset("b", 1, 1), NewOffset("a", 0, 2), NewOffset("b", 1, 3))
    (reply,) = (reply for reply in scene.answers.values() if isinstance(reply, CommitReply))
    assert reply == CommitReply((("b", 1, OK), ("a", 0, OK), ("b", 1, OK)))
