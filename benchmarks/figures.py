"""What was measured: values by measure and subject, one per round, shown as medians beside ratios.

Rounds that differ more than tenfold have no median here, and no ratio: the middle of 7 ms and 1.6 s is a figure that no round showed.
Their lowest and their highest value are shown instead.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from benchmarks.tables import count, ratio, table

_WITHOUT_DECIMALS = ("files", "MB", "MB/s")
SPREAD_MAX = 10.0  # Highest over lowest round, up to which their median is shown.


@dataclass(frozen=True, slots=True)
class Measure:
    title: str
    unit: str

    def __str__(self) -> str:
        return f"{self.title}, {self.unit}"


@dataclass(frozen=True, slots=True)
class Ratio:
    """One subject's figures over another's."""

    subject: str
    base: str

    def __str__(self) -> str:
        return f"{self.subject} : {self.base}"


@dataclass(frozen=True, slots=True)
class Goal:
    """A ratio that must be at least, or at most, a number."""

    measure: Measure
    ratio: Ratio
    bound: float
    is_at_least: bool

    def is_met(self, value: float) -> bool:
        return value >= self.bound if self.is_at_least else value <= self.bound


class Figures:
    def __init__(self) -> None:
        self._rounds: dict[Measure, dict[str, list[float]]] = {}

    def add(self, subject: str, measure: Measure, value: float) -> None:
        self._rounds.setdefault(measure, {}).setdefault(subject, []).append(value)

    def rounds(self, subject: str, measure: Measure) -> Sequence[float]:
        return self._rounds.get(measure, {}).get(subject, ())

    def value(self, subject: str, measure: Measure) -> float | None:
        """Returns the median of the rounds; None if there are none, or if they differ too much to have one."""
        return median_of(self.rounds(subject, measure))

    def ratio(self, pair: Ratio, measure: Measure) -> float | None:
        value, base = self.value(pair.subject, measure), self.value(pair.base, measure)
        return value / base if value is not None and base else None

    def subjects(self) -> list[str]:
        return list(dict.fromkeys(subject for row in self._rounds.values() for subject in row))

    def table(self, ratios: Sequence[Ratio] = ()) -> str:
        subjects = self.subjects()
        rows = []
        for measure in self._rounds:
            cells = [shown(self.rounds(subject, measure), measure.unit) for subject in subjects]
            shares = [self.ratio(pair, measure) for pair in ratios]
            rows.append([str(measure), *cells, *(_shown_ratio(share) for share in shares)])
        return table(["", *subjects, *map(str, ratios)], rows)

    def goals_table(self, goals: Sequence[Goal]) -> str:
        rows = []
        for goal in goals:
            reached = self.ratio(goal.ratio, goal.measure)
            verdict = self._why_no_ratio(goal) if reached is None else "met" if goal.is_met(reached) else "missed"
            wanted = f"{'≥' if goal.is_at_least else '≤'} {goal.bound:g}"
            rows.append([f"{goal.measure}: {goal.ratio}", wanted, _shown_ratio(reached), verdict])
        return table(["ratio", "goal", "reached", ""], rows)

    def _why_no_ratio(self, goal: Goal) -> str:
        is_measured = all(self.rounds(subject, goal.measure) for subject in (goal.ratio.subject, goal.ratio.base))
        return "rounds differ tenfold" if is_measured else "not measured"

    def as_json(self) -> list[dict[str, object]]:
        return [
            {"measure": measure.title, "unit": measure.unit, "subject": subject, "rounds": rounds, "median": median_of(rounds)}
            for measure, row in self._rounds.items()
            for subject, rounds in row.items()
        ]


def median_of(rounds: Sequence[float]) -> float | None:
    """Returns the median; None of no rounds, and of rounds that differ more than tenfold."""
    return median(rounds) if rounds and max(rounds) <= SPREAD_MAX * min(rounds) else None


def shown(rounds: Sequence[float], unit: str) -> str:
    """Returns the median as text, or the lowest and the highest round where they differ more than tenfold."""
    if not rounds:
        return ""
    middle = median_of(rounds)
    return _figure(middle, unit) if middle is not None else f"{_figure(min(rounds), unit)} to {_figure(max(rounds), unit)}"


def _figure(value: float, unit: str) -> str:
    return f"{value:,.0f}" if unit in _WITHOUT_DECIMALS else count(value)


def _shown_ratio(value: float | None) -> str:
    return "" if value is None else ratio(value, 1.0)
