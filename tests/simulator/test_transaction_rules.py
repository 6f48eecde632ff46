"""A good history of transactions passes every rule; one that breaks a promise is caught by the rule of that promise."""

from collections.abc import Callable

import pytest

from penstock.simulator.checkers import check
from penstock.simulator.diary import Diary
from penstock.simulator.transaction_diary import Effect, Ending, Ends, Transaction, TransactionDiary
from penstock.simulator.transaction_rules import TRANSACTION_RULES
from penstock.vocabulary import TopicPartition

pytestmark = pytest.mark.invariant("transactions.all-or-nothing")

IN, P, Q = TopicPartition("in", 0), TopicPartition("out", 0), TopicPartition("out", 1)


def good_history() -> Diary:
    """The first worker commits inputs 0 and 1, aborts, and leaves a commit without an answer; its heir finds that taken, and goes on."""
    diary = Diary()
    told = diary.transactions
    first = told.took_over("id", "first", began=0.0, ended=0.1)
    committed = told.begins(first, "g", 1.0)
    sends(committed, [(P, b"a0", 0), (Q, b"a1", 1)], upto=2, at=1.1)
    committed.asks_for_commit(1.5)
    committed.ends(Ending.COMMITTED, 1.6)
    aborted = told.begins(first, "g", 2.0)
    sends(aborted, [(P, b"b2", 2), (Q, b"b3", 3)], upto=4, at=2.1)
    aborted.ends(Ending.ABORTED, 2.5)
    undecided = told.begins(first, "g", 3.0)
    sends(undecided, [(P, b"c2", 2), (Q, b"c3", 3)], upto=4, at=3.1)
    undecided.asks_for_commit(3.5)
    heir = told.took_over("id", "heir", began=4.0, ended=4.5)
    last = told.begins(heir, "g", 5.0)
    sends(last, [(P, b"d4", 4)], upto=5, at=5.1)
    last.asks_for_commit(5.5)
    last.ends(Ending.COMMITTED, 5.6)
    told.finals = {P: [(0, b"a0"), (4, b"c2"), (6, b"d4")], Q: [(0, b"a1"), (4, b"c3")]}
    for offset, value in told.finals[P]:
        told.read(P, "reader", offset, value, 6.0)
    told.committed["g", IN] = 5
    told.ends = {P: Ends(8, 8), Q: Ends(6, 6)}
    return diary


def sends(transaction: Transaction, effects: list[tuple[TopicPartition, bytes, int]], *, upto: int, at: float) -> None:
    transaction.effects += [Effect(where, value, (IN, source), at, at + 0.1) for where, value, source in effects]
    transaction.offsets = {IN: upto}


def of(diary: TransactionDiary, value: bytes) -> Transaction:
    return next(one for one in diary.transactions if any(effect.value == value for effect in one.effects))


def broken_by(diary: Diary) -> set[str]:
    return {violation.rule for violation in check(diary)}


def test_a_good_history_has_no_violations() -> None:
    assert check(good_history()) == []


def an_acknowledged_commit_is_lost(told: TransactionDiary) -> None:
    del told.finals[P][2]
    told.reads.pop()


def an_aborted_record_counts(told: TransactionDiary) -> None:
    told.finals[P].insert(1, (2, b"b2"))


def a_transaction_is_torn(told: TransactionDiary) -> None:
    told.finals[Q].pop()


def a_value_stands_twice(told: TransactionDiary) -> None:
    told.finals[Q].append((5, b"c3"))


def a_value_comes_from_nowhere(told: TransactionDiary) -> None:
    told.finals[Q].append((5, b"zz"))


def an_open_transaction_is_read(told: TransactionDiary) -> None:
    told.read(P, "hasty", 4, b"c2", 3.4)


def an_aborted_record_is_read_on_the_way(told: TransactionDiary) -> None:
    told.read(P, "hasty", 2, b"b2", 2.7)


def a_commit_is_taken_back(told: TransactionDiary) -> None:
    of(told, b"c2").ending = Ending.UNKNOWN
    told.finals = {P: [(0, b"a0"), (6, b"d4")], Q: [(0, b"a1")]}


def a_reader_skips(told: TransactionDiary) -> None:
    for offset, value in (told.finals[P][0], told.finals[P][2]):
        told.read(P, "skipping", offset, value, 7.0)


def a_reader_goes_back(told: TransactionDiary) -> None:
    for offset, value in (*told.finals[Q], told.finals[Q][0]):
        told.read(Q, "turning", offset, value, 7.0)


def an_input_is_processed_twice(told: TransactionDiary) -> None:
    sends(of(told, b"d4"), [(Q, b"d0", 0)], upto=5, at=5.1)
    told.finals[Q].append((6, b"d0"))


def offsets_lag_behind_the_output(told: TransactionDiary) -> None:
    told.committed["g", IN] = 4


def offsets_run_ahead_of_the_output(told: TransactionDiary) -> None:
    told.committed["g", IN] = 6


def a_zombie_commits(told: TransactionDiary) -> None:
    zombie = told.begins(told.takeovers[0], "g", 4.1)
    sends(zombie, [(Q, b"z", 5)], upto=6, at=4.2)
    zombie.asks_for_commit(4.6)
    zombie.ends(Ending.COMMITTED, 4.7)
    told.finals[Q].append((6, b"z"))
    told.committed["g", IN] = 6


def a_record_of_a_zombie_is_taken(told: TransactionDiary) -> None:
    sends(told.begins(told.takeovers[0], "g", 4.1), [(Q, b"z", 5)], upto=6, at=4.6)


def a_transaction_hangs(told: TransactionDiary) -> None:
    told.ends[Q] = Ends(5, 6)


BROKEN: dict[Callable[[TransactionDiary], None], str] = {
    an_acknowledged_commit_is_lost: "a transaction is all or nothing",
    an_aborted_record_counts: "a transaction is all or nothing",
    a_transaction_is_torn: "a transaction is all or nothing",
    a_value_stands_twice: "effects are once",
    a_value_comes_from_nowhere: "effects are once",
    an_open_transaction_is_read: "nothing is read before its commit",
    an_aborted_record_is_read_on_the_way: "nothing is read before its commit",
    a_commit_is_taken_back: "what was read as committed stays",
    a_reader_skips: "readers of committed records go on",
    a_reader_goes_back: "readers of committed records go on",
    an_input_is_processed_twice: "offsets and output agree",
    offsets_lag_behind_the_output: "offsets and output agree",
    offsets_run_ahead_of_the_output: "offsets and output agree",
    a_zombie_commits: "zombies are fenced",
    a_record_of_a_zombie_is_taken: "zombies are fenced",
    a_transaction_hangs: "no transaction hangs",
}


@pytest.mark.parametrize(("break_it", "rule"), BROKEN.items(), ids=lambda value: getattr(value, "__name__", ""))
def test_a_broken_promise_is_caught_by_its_rule(break_it: Callable[[TransactionDiary], None], rule: str) -> None:
    diary = good_history()
    break_it(diary.transactions)
    assert rule in broken_by(diary)


def test_each_rule_is_broken_by_a_story_of_its_own() -> None:
    assert set(BROKEN.values()) == set(TRANSACTION_RULES)
