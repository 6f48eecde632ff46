"""A good history of a consumer group passes every rule; one that breaks a promise is caught by the rule of that promise."""

from collections.abc import Callable

import pytest

from penstock.simulator.checkers import check
from penstock.simulator.diary import Diary, Outcome
from penstock.simulator.group_rules import GROUP_RULES
from penstock.vocabulary import TopicPartition

pytestmark = pytest.mark.invariant("groups.killed-members-lose-nothing")

P, Q = TopicPartition("orders", 0), TopicPartition("orders", 1)
COUNT = 10


def good_history() -> Diary:
    """Member a reads half and commits, b takes over in the next generation; the last commit was never answered, and was taken."""
    diary = Diary()
    for offset in range(COUNT):
        diary.attempt(P, "p", b"v%d" % offset, 0.0).acknowledged(offset, 0.5)
    diary.final(P, start_offset=0, end_offset=COUNT, records=[(offset, b"v%d" % offset) for offset in range(COUNT)])
    diary.group_readers["g"] = ["a", "b"]
    diary.assigned("g", 1, "id-a", (P, Q))
    diary.found_committed("g", P, -1, began=1.0, ended=1.1)
    read(diary, "a", 0, 6)
    committed(diary, 5, began=2.0, ended=2.1)
    diary.assigned("g", 2, "id-b", (P,))
    diary.assigned("g", 2, "id-a", (Q,))
    diary.found_committed("g", P, 5, began=3.0, ended=3.1)
    read(diary, "b", 5, COUNT)
    committed(diary, 8, began=4.0, ended=4.1)
    diary.committing("g", P, COUNT, 5.0)
    diary.found_committed("g", P, COUNT, began=6.0, ended=6.1)
    return diary


def read(diary: Diary, reader: str, first: int, end: int) -> None:
    diary.seek(P, reader, first)
    for offset in range(first, end):
        diary.read(P, reader, offset, b"v%d" % offset, 2.0)


def committed(diary: Diary, offset: int, *, began: float, ended: float) -> None:
    commit = diary.committing("g", P, offset, began)
    commit.outcome, commit.ended = Outcome.ACKNOWLEDGED, ended


def test_a_good_history_has_no_violations() -> None:
    assert check(good_history()) == []


def a_partition_has_two_owners(diary: Diary) -> None:
    diary.assigned("g", 2, "id-c", (P,))


def an_acknowledged_commit_is_forgotten(diary: Diary) -> None:
    diary.found_committed("g", P, 5, began=4.2, ended=4.3)


def an_offset_is_told_that_nobody_committed(diary: Diary) -> None:
    diary.found_committed("g", P, COUNT - 1, began=7.0, ended=7.1)


def an_offset_is_told_before_anybody_committed_it(diary: Diary) -> None:
    diary.found_committed("g", P, 8, began=3.5, ended=3.6)


def a_late_commit_goes_back(diary: Diary) -> None:
    committed(diary, 7, began=4.5, ended=4.6)


def what_was_told_is_taken_back(diary: Diary) -> None:
    """Of a commit that was never acknowledged: whoever was told of it could count on it all the same."""
    diary.committing("g", P, 9, 4.4)
    diary.found_committed("g", P, 9, began=5.0, ended=5.1)
    diary.found_committed("g", P, 8, began=5.2, ended=5.3)


def a_record_was_skipped(diary: Diary) -> None:
    diary.moves = [move for move in diary.moves if getattr(move, "offset", -1) != 6]


BROKEN: list[tuple[Callable[[Diary], None], str]] = [
    (a_partition_has_two_owners, "one owner in a generation"),
    (an_acknowledged_commit_is_forgotten, "a committed offset is kept"),
    (an_offset_is_told_that_nobody_committed, "a committed offset is kept"),
    (an_offset_is_told_before_anybody_committed_it, "a committed offset is kept"),
    (a_late_commit_goes_back, "committed offsets never go back"),
    (what_was_told_is_taken_back, "what was told of commits stays"),
    (a_record_was_skipped, "nothing that was committed was skipped"),
]


@pytest.mark.parametrize(("breaks", "rule"), BROKEN)
def test_a_broken_promise_is_caught_by_its_rule(breaks: Callable[[Diary], None], rule: str) -> None:
    diary = good_history()
    breaks(diary)
    assert rule in {violation.rule for violation in check(diary)}


def test_every_rule_has_a_history_that_breaks_it() -> None:
    assert {rule for _, rule in BROKEN} == set(GROUP_RULES)
