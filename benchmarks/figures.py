"""What was measured: values by measure and subject, one per round, shown as medians beside ratios."""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from benchmarks.tables import count, ratio, table

_WITHOUT_DECIMALS = ("files", "MB", "MB/s")


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

    def value(self, subject: str, measure: Measure) -> float | None:
        rounds = self._rounds.get(measure, {}).get(subject)
        return median(rounds) if rounds else None

    def ratio(self, pair: Ratio, measure: Measure) -> float | None:
        value, base = self.value(pair.subject, measure), self.value(pair.base, measure)
        return value / base if value is not None and base else None

    def subjects(self) -> list[str]:
        return list(dict.fromkeys(subject for row in self._rounds.values() for subject in row))

    def table(self, ratios: Sequence[Ratio] = ()) -> str:
        subjects = self.subjects()
        rows = []
        for measure in self._rounds:
            values = [self.value(subject, measure) for subject in subjects]
            shares = [self.ratio(pair, measure) for pair in ratios]
            rows.append([str(measure), *(_shown(value, measure.unit) for value in values), *(_shown_ratio(share) for share in shares)])
        return table(["", *subjects, *map(str, ratios)], rows)

    def goals_table(self, goals: Sequence[Goal]) -> str:
        rows = []
        for goal in goals:
            reached = self.ratio(goal.ratio, goal.measure)
            verdict = "not measured" if reached is None else "met" if goal.is_met(reached) else "missed"
            wanted = f"{'≥' if goal.is_at_least else '≤'} {goal.bound:g}"
            rows.append([f"{goal.measure}: {goal.ratio}", wanted, _shown_ratio(reached), verdict])
        return table(["ratio", "goal", "reached", ""], rows)

    def as_json(self) -> list[dict[str, object]]:
        return [
            {"measure": measure.title, "unit": measure.unit, "subject": subject, "rounds": rounds, "median": median(rounds)}
            for measure, row in self._rounds.items()
            for subject, rounds in row.items()
        ]


def _shown(value: float | None, unit: str) -> str:
    if value is None:
        return ""
    return f"{value:,.0f}" if unit in _WITHOUT_DECIMALS else count(value)


def _shown_ratio(value: float | None) -> str:
    return "" if value is None else ratio(value, 1.0)
