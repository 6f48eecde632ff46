"""The rate that was to be expected in each window, and the spans in which it came otherwise.

Expected is what the caller says, or the median of the windows before: it does not mind single wild ones, and it follows a day's slow swing.
A window differs when it is further from that than chance and the usual unrest explain: four times the larger of the median distance (as a
standard deviation), the noise of counting (a count of n strays by its root, and small ones by more) and a twentieth of the rate.
What differs is not learned from, until it has lasted so long that it must be the new rate.
Not here: windows of bytes or latency, which have no rate that is expected of them.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from math import sqrt
from statistics import median

HISTORY = 30  # Windows that the median is taken of.
LEARNING = 5  # Fewer say nothing.
NEW_RATE_AFTER = 10  # Windows in a row that differ in the same way.
UNREST_MAX = 4.0
_SIGMA_OF_MEDIAN_DISTANCE = 1.4826  # For a normal distribution.
_SHARE_ALWAYS_ALLOWED = 0.05


class Oddity(Enum):
    SPIKE = "spike"
    DROP = "drop"
    SILENCE = "silence"


@dataclass(frozen=True, slots=True)
class Expected:
    """What one window was expected to have; None while nothing is known yet."""

    count: float | None
    low: float = 0.0
    high: float = 0.0


@dataclass(frozen=True, slots=True)
class Anomaly:
    """A span of windows, half-open, that differ in the same way."""

    first: int
    end: int
    oddity: Oddity
    count: int  # Records in it.
    expected: float


def expectations(counts: Sequence[int], given: float | None = None) -> tuple[list[Expected], list[Anomaly]]:
    """For each window what was expected, and where it came otherwise. `given` is what the caller expects in every window."""
    expected: list[Expected] = []
    odd: list[Oddity | None] = []
    history: list[int] = []
    for number, count in enumerate(counts):
        wanted = _expect(history, given)
        expected.append(wanted)
        odd.append(_oddity(count, wanted))
        if odd[-1] is None:
            history = [*history, count][-HISTORY:]
        elif _lasted(odd) >= NEW_RATE_AFTER:
            history = list(counts[number - NEW_RATE_AFTER + 1 : number + 1])
    return expected, _spans(counts, expected, odd)


def _expect(history: Sequence[int], given: float | None) -> Expected:
    if given is not None:
        return _around(given, 0.0)
    if len(history) < LEARNING:
        return Expected(None)
    middle = median(history)
    return _around(middle, _SIGMA_OF_MEDIAN_DISTANCE * median(abs(count - middle) for count in history))


def _around(middle: float, unrest: float) -> Expected:
    allowed = UNREST_MAX * max(unrest, sqrt(middle) + 1, _SHARE_ALWAYS_ALLOWED * middle)
    return Expected(middle, max(0.0, middle - allowed), middle + allowed)


def _oddity(count: int, wanted: Expected) -> Oddity | None:
    if wanted.count is None:
        return None
    if count > wanted.high:
        return Oddity.SPIKE
    if count == 0 and wanted.low > 0:
        return Oddity.SILENCE
    return Oddity.DROP if count < wanted.low else None


def _lasted(odd: Sequence[Oddity | None]) -> int:
    lasted = 0
    for oddity in reversed(odd):
        if oddity is not odd[-1]:
            break
        lasted += 1
    return lasted


def _spans(counts: Sequence[int], expected: Sequence[Expected], odd: Sequence[Oddity | None]) -> list[Anomaly]:
    spans: list[Anomaly] = []
    for number, oddity in enumerate(odd):
        if oddity is None:
            continue
        wanted = expected[number].count or 0.0
        before = spans[-1] if spans and spans[-1].end == number and spans[-1].oddity is oddity else None
        if before is None:
            spans.append(Anomaly(number, number + 1, oddity, counts[number], wanted))
        else:
            spans[-1] = Anomaly(before.first, number + 1, oddity, before.count + counts[number], before.expected + wanted)
    return spans
