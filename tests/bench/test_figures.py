"""Figures of several rounds: a median stands for rounds that agree, and never for rounds that differ more than tenfold."""

from pathlib import Path

import pytest
from benchmarks.figures import Figures, Goal, Measure, Ratio
from benchmarks.queues import PENSTOCK, QUICK, promises_table
from benchmarks.report import Report

OURS, THEIRS = "ours", "theirs"
PAIR = Ratio(OURS, THEIRS)
LATENCY = Measure("acknowledged, p50", "ms")


def figures(ours: list[float], theirs: list[float]) -> Figures:
    found = Figures()
    for subject, rounds in ((OURS, ours), (THEIRS, theirs)):
        for value in rounds:
            found.add(subject, LATENCY, value)
    return found


def cells(table: str, row: int = 0) -> list[str]:
    return [cell.strip() for cell in table.splitlines()[2 + row].strip("|").split("|")]


def test_rounds_that_agree_are_shown_as_their_median_with_a_ratio() -> None:
    found = figures([20.0, 24.0], [10.0, 12.0])
    assert cells(found.table([PAIR])) == ["acknowledged, p50, ms", "22", "11", "2.00"]


def test_rounds_that_differ_more_than_tenfold_are_shown_as_lowest_and_highest_without_a_ratio() -> None:
    found = figures([20.0, 24.0], [1_000.0, 100_000.0])
    assert cells(found.table([PAIR])) == ["acknowledged, p50, ms", "22", "1,000 to 100,000", ""]
    assert found.value(THEIRS, LATENCY) is None
    assert [row["median"] for row in found.as_json()] == [22.0, None]
    assert [row["rounds"] for row in found.as_json()] == [[20.0, 24.0], [1_000.0, 100_000.0]]


@pytest.mark.parametrize(("rounds", "text"), [([1.0, 10.0], "5.5"), ([1.0, 10.1], "1 to 10.1"), ([0.0, 0.0], "0"), ([0.0, 1.0], "0 to 1")])
def test_tenfold_is_the_limit(rounds: list[float], text: str) -> None:
    assert cells(figures(rounds, []).table())[1] == text


def test_a_goal_is_not_judged_by_rounds_that_differ_more_than_tenfold() -> None:
    goal = Goal(LATENCY, PAIR, 1.0, is_at_least=False)
    assert cells(figures([1.0], [7.0, 1_600.0]).goals_table([goal]))[2:] == ["", "rounds differ tenfold"]
    assert cells(figures([1.0], []).goals_table([goal]))[2:] == ["", "not measured"]
    assert cells(figures([1.0], [2.0, 4.0]).goals_table([goal]))[2:] == ["0.33", "met"]


@pytest.mark.parametrize(("rounds", "shown"), [([3.0, 40.0], ["3 to 40", "met"]), ([3.0, 400.0], ["3 to 400", "missed"])])
def test_a_latency_goal_holds_for_the_worst_of_rounds_that_differ_more_than_tenfold(
    tmp_path: Path, rounds: list[float], shown: list[str]
) -> None:
    report = Report("Queues", tmp_path)
    for value in rounds:
        report.figures.add(PENSTOCK, Measure("SQS API at 100/s, p99", "ms"), value)
    assert cells(promises_table(report, QUICK), row=1)[2:] == shown
