"""A good history of a group under the new protocol passes every rule; one that breaks a promise is caught by the rule of that promise."""

from collections.abc import Callable

import pytest

from penstock.simulator.checkers import check
from penstock.simulator.diary import Diary
from penstock.simulator.membership_diary import Beat, Membership, MembershipDiary
from penstock.simulator.membership_rules import MEMBERSHIP_RULES
from penstock.vocabulary import TopicPartition

pytestmark = pytest.mark.invariant("groups.consumer-one-owner", "groups.consumer-epochs-grow", "groups.consumer-all-assigned")

P, Q = TopicPartition("orders", 0), TopicPartition("orders", 1)
SESSION_MS, REBALANCE_MS = 1_000, 2_000


def good_history() -> Diary:
    """a owns both and gives Q back to b; then a falls silent, and b gets P when a's session is over, while a still believes."""
    diary = Diary()
    told = diary.memberships
    a, b = (told.joins("g", name, session_ms=SESSION_MS, rebalance_ms=REBALANCE_MS) for name in "ab")
    for member in (a, b):
        member.topics["orders"] = None
    beats(a, (0.0, 1), (0.5, 1), (1.0, 2), (1.5, 2))
    a.gains(P, 0.1)
    a.gains(Q, 0.1)
    a.loses(Q, 1.0)
    beats(b, (0.4, 2), (0.9, 2), (1.4, 2), (1.9, 2), (2.6, 3))
    b.gains(Q, 1.5)
    b.gains(P, 2.7)
    a.loses_everything(3.0)
    told.rests_at("g", "b", wanted=[P, Q], owned=(P, Q))
    return diary


def beats(member: Membership, *several: tuple[float, int]) -> None:
    member.beats += [Beat(since, since + 0.1, epoch) for since, epoch in several]


def test_a_good_history_has_no_violations() -> None:
    assert check(good_history()) == []


def test_an_answer_that_was_on_its_way_for_longer_than_a_session_gives_nothing() -> None:
    """c is given P, falls silent in the group's eyes, and hears of it when b has had P for long: its next beat tells it better."""
    diary = good_history()
    c = diary.memberships.joins("g", "c", session_ms=SESSION_MS, rebalance_ms=REBALANCE_MS)
    c.topics["orders"] = None
    for since in (1.7, 2.2):
        c.beats = [Beat(since, 2.8, 2)]
        c.tenures.clear()
        c.gains(P, 2.8)
        c.loses(P, 2.9)
        assert bool(check(diary)) is (since == 2.2)


def a_partition_is_given_before_it_is_given_back(told: MembershipDiary) -> None:
    told.members[1].tenures[0].began = 0.95


def a_partition_is_given_before_the_session_is_over(told: MembershipDiary) -> None:
    told.members[1].tenures[1].began = 2.4


def a_partition_is_given_to_a_second_while_the_first_is_never_heard_of_again(told: MembershipDiary) -> None:
    told.members[0].tenures[0].ended = None
    told.members[1].tenures[1].began = 2.0


def an_epoch_goes_back(told: MembershipDiary) -> None:
    beats(told.members[1], (3.0, 2))


def a_partition_is_given_that_nobody_wanted(told: MembershipDiary) -> None:
    told.members[1].gains(TopicPartition("bills", 0), 3.0)


def a_partition_is_left_over(told: MembershipDiary) -> None:
    told.rests["g"].owned["b"] = (Q,)


def two_own_one_at_rest(told: MembershipDiary) -> None:
    told.rests["g"].owned["a"] = (Q,)


BROKEN: dict[Callable[[MembershipDiary], None], str] = {
    a_partition_is_given_before_it_is_given_back: "one owner at a time",
    a_partition_is_given_before_the_session_is_over: "one owner at a time",
    a_partition_is_given_to_a_second_while_the_first_is_never_heard_of_again: "one owner at a time",
    an_epoch_goes_back: "a member's epoch never goes back",
    a_partition_is_given_that_nobody_wanted: "only what is wanted is owned",
    a_partition_is_left_over: "everything is owned at rest",
    two_own_one_at_rest: "everything is owned at rest",
}


@pytest.mark.parametrize(("break_it", "rule"), BROKEN.items(), ids=lambda value: getattr(value, "__name__", ""))
def test_a_broken_promise_is_caught_by_its_rule(break_it: Callable[[MembershipDiary], None], rule: str) -> None:
    diary = good_history()
    break_it(diary.memberships)
    assert rule in {violation.rule for violation in check(diary)}


def test_each_rule_is_broken_by_a_story_of_its_own() -> None:
    assert set(BROKEN.values()) == set(MEMBERSHIP_RULES)
