"""The checkers of the worlds bite: each finds what it is made for, and nothing in what is right."""

import pytest

from penstock.consensus.effects import PersistEntries
from penstock.consensus.nouns import DirectoryId, Entry, Kind, Term
from penstock.consensus.voters import Voters
from penstock.simulator.cores.diary import Asked, Result, check_register
from penstock.simulator.cores.judging import Judge, Violation
from penstock.simulator.cores.store import Store
from penstock.vocabulary import Offset


def wrote(value: int, began: float, ended: float, result: Result = Result.DONE) -> Asked:
    return Asked(0, value, began, ended if result is Result.DONE else float("inf"), result)


def read(value: int, began: float, ended: float) -> Asked:
    return Asked(1, None, began, ended, Result.DONE, value)


@pytest.mark.parametrize(
    "story",
    [
        [read(0, 0, 1), wrote(1, 2, 3), read(1, 4, 5)],
        [wrote(1, 0, 10), read(0, 1, 2), read(1, 3, 4)],
        [wrote(1, 0, 1, Result.UNKNOWN), read(0, 5, 6), read(1, 7, 8)],
        [wrote(1, 0, 10), wrote(2, 0, 10), read(2, 1, 2), read(1, 3, 4)],
        [wrote(1, 0, 1, Result.UNKNOWN), read(0, 5, 6)],
    ],
)
def test_what_a_register_could_have_answered_passes(story: list[Asked]) -> None:
    check_register(story)


@pytest.mark.parametrize(
    "story",
    [
        [wrote(1, 0, 1), read(0, 2, 3)],
        [wrote(1, 0, 1), wrote(2, 2, 3), read(1, 4, 5)],
        [wrote(1, 0, 10), read(1, 1, 2), read(0, 3, 4)],
        [wrote(1, 0, 1, Result.UNKNOWN), read(1, 5, 6), read(0, 7, 8)],
        [wrote(1, 0, 10), wrote(2, 0, 10), read(2, 1, 2), read(1, 3, 4), read(2, 5, 6)],
        [read(7, 0, 1)],
        [wrote(1, 5, 6), read(1, 0, 1)],
        [wrote(1, 0, 1, Result.REFUSED), read(1, 2, 3)],
    ],
)
def test_what_no_register_could_have_answered_is_found(story: list[Asked]) -> None:
    with pytest.raises(Violation, match="linearizable"):
        check_register(story)


def store(*entries: tuple[int, bytes]) -> Store:
    made = Store(DirectoryId(bytes(16)))
    made.write(PersistEntries(1, Offset(0), tuple(Entry(Term(term), Kind.PAYLOAD, payload) for term, payload in entries)))
    made.flush(1)
    return made


def test_logs_that_agree_late_and_differ_early_are_found() -> None:
    judge = Judge(Voters())
    judge.check_logs_match([store((1, b"a"), (2, b"b")), store((1, b"a"), (3, b"c"))])
    with pytest.raises(Violation, match="agree before it"):
        judge.check_logs_match([store((1, b"a"), (3, b"c")), store((2, b"b"), (3, b"c"))])
    with pytest.raises(Violation, match="agree before it"):
        judge.check_logs_match([store((1, b"a")), store((1, b"b"))])
