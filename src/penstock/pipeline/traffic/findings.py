"""Everything that one report tells, window by window, with the windows in which nothing happened filled in.

Rows of the steps' small tables come in any order and only for windows that have something; here they become series of equal length.
Not here: how it looks (page.py).
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from penstock.pipeline.traffic.expected import Anomaly, Expected, expectations
from penstock.pipeline.traffic.skew import Skew

WINDOWS_MAX = 2_000  # More than a screen has dots.
AHEAD_SECONDS_MAX = 86_400


class WindowRow(NamedTuple):
    topic: str
    partition: int
    start: int  # Seconds since 1970.
    records: int
    bytes: int


class DelayRow(NamedTuple):
    start: int
    p50_ms: float
    p99_ms: float
    max_ms: float


class LagRow(NamedTuple):
    start: int
    lag: int


@dataclass(frozen=True, slots=True)
class Delays:
    """Latency by the window in which records were written; None where nothing arrived."""

    p50_ms: list[float | None]
    p99_ms: list[float | None]
    max_ms: list[float | None]


@dataclass(frozen=True, slots=True)
class TopicFindings:
    topic: str
    window_s: int
    starts: list[int]
    records: list[int]
    bytes: list[int]
    expected: list[Expected]
    anomalies: list[Anomaly]
    skew: Skew
    lags: dict[str, list[int | None]] = field(default_factory=dict)  # By group.
    last_lags: dict[str, int] = field(default_factory=dict)  # At the last look.
    delays: dict[str, Delays] = field(default_factory=dict)  # By group.
    ages: Delays | None = None  # Of what the values tell of, where the caller says which field has the time.
    strays: int = 0  # Records with a time before 1970 or in the future, which are in no window.

    @property
    def record_count(self) -> int:
        return sum(self.records)

    @property
    def byte_count(self) -> int:
        return sum(self.bytes)

    @property
    def seconds(self) -> int:
        return len(self.starts) * self.window_s


@dataclass(frozen=True, slots=True)
class Findings:
    source: str  # The brokers' address.
    made_at_s: float
    topics: list[TopicFindings]


def all_starts(written: Sequence[int], sampled: Sequence[int], window_s: int) -> list[int]:
    """Every window from the first to the last, also the empty ones; the newest ones where they are too many.

    Samples that were taken long after the last record was written do not count: they would squeeze it out of sight."""
    seen = [*written, *sampled]
    if written and seen and (max(seen) - min(seen)) // window_s >= WINDOWS_MAX:
        seen = list(written)
    if not seen:
        return []
    last = max(seen)
    first = max(min(seen), last - (WINDOWS_MAX - 1) * window_s)
    return list(range(first, last + 1, window_s))


def is_plausible(start: int, now_s: float) -> bool:
    """Whether something can have been written then. A clock may be a little fast; a producer may write any 64 bits as a time."""
    return 0 <= start <= now_s + AHEAD_SECONDS_MAX


def topic_findings(
    topic: str,
    window_s: int,
    windows: Sequence[WindowRow],
    *,
    skew: Skew,
    lags: Mapping[str, Sequence[LagRow]],
    delays: Mapping[str, Sequence[DelayRow]],
    ages: Sequence[DelayRow] = (),
    expected_rate: float | None = None,
    now_s: float = math.inf,
) -> TopicFindings:
    """`expected_rate` is in records a second; without one the windows before say what is expected.

    Records whose times cannot be are counted apart: one of them among a million would leave a picture of nothing.
    """
    strays = sum(row.records for row in windows if not is_plausible(row.start, now_s))
    windows = [row for row in windows if is_plausible(row.start, now_s)]
    starts = all_starts([row.start for row in windows], [row.start for rows in lags.values() for row in rows], window_s)
    records, sizes = dict.fromkeys(starts, 0), dict.fromkeys(starts, 0)
    for row in windows:
        if row.start in records:
            records[row.start] += row.records
            sizes[row.start] += row.bytes
    counts = list(records.values())
    # The first window and the last are cut off somewhere: what they lack says nothing.
    inner, odd = expectations(counts[1:-1], None if expected_rate is None else expected_rate * window_s)
    outer = [Expected(None)]
    return TopicFindings(
        topic, window_s, starts, counts, list(sizes.values()),
        expected=(outer + inner + outer)[: len(counts)],
        anomalies=[Anomaly(one.first + 1, one.end + 1, one.oddity, one.count, one.expected) for one in odd],
        skew=skew,
        lags={group: _carried({row.start: row.lag for row in rows}, starts) for group, rows in sorted(lags.items())},
        last_lags={group: max(rows).lag for group, rows in sorted(lags.items())},
        delays={group: _delays(rows, starts) for group, rows in sorted(delays.items())},
        ages=_delays(ages, starts) if ages else None,
        strays=strays,
    )  # fmt: skip


def _delays(rows: Sequence[DelayRow], starts: Sequence[int]) -> Delays:
    by_start = {row.start: row for row in rows}
    found = [by_start.get(start) for start in starts]
    return Delays(
        [row.p50_ms if row else None for row in found],
        [row.p99_ms if row else None for row in found],
        [row.max_ms if row else None for row in found],
    )


def _carried(by_start: Mapping[int, int], starts: Sequence[int]) -> list[int | None]:
    """Nothing before the first sample and after the last; between two samples the earlier one holds."""
    last = max(by_start, default=0)
    series: list[int | None] = []
    for start in starts:
        before = series[-1] if series else None
        series.append(by_start.get(start, before) if start <= last else None)
    return series
