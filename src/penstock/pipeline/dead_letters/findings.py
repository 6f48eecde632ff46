"""Everything that a report on dead letters tells. Rows of the steps' small tables come in any order; here they are put into one.

The kinds of failure that bury the most are told one by one, the others together: a queue whose reasons are all different would otherwise
make a report that nobody can read. Windows in which nothing failed are filled in.
Not here: how it looks (page.py).
"""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

KINDS_SHOWN = 20  # Of a queue, in its table.
KINDS_DRAWN = 5  # As curves of their own.
WORKERS_SHOWN = 30
WINDOWS_MAX = 2_000  # More than a screen has dots.
OTHERS = "all others"


class KindRow(NamedTuple):
    queue: str
    kind: str
    letters: int
    workers: int
    attempts: float  # On average.
    first_ms: int
    last_ms: int
    example: str  # The newest reason, as it was given.
    example_id: str


class WindowRow(NamedTuple):
    queue: str
    kind: str
    start: int  # Seconds since 1970.
    letters: int


class WorkerRow(NamedTuple):
    queue: str
    worker: str
    failures: int  # Of all attempts.
    letters: int
    kinds: int
    held_p50_ms: float
    held_max_ms: float


@dataclass(frozen=True, slots=True)
class QueueFindings:
    """Of one queue whose messages were buried."""

    queue: str
    letters: int
    kinds: list[KindRow]  # Those that bury the most first, and no more than are shown.
    kinds_left: int  # How many kinds are not among them.
    letters_left: int
    workers: list[WorkerRow]
    workers_left: int
    starts: list[int]
    series: dict[str, list[int]] = field(default_factory=dict)  # Letters by the window, of the kinds that are drawn.


@dataclass(frozen=True, slots=True)
class Findings:
    source: str  # The brokers' address.
    made_at_s: float
    dead_letter_queues: list[str]
    window_s: int
    queues: list[QueueFindings]  # The ones with the most letters first.
    strangers: int  # Records that are no dead letters: somebody else wrote them there.
    listed: int  # Ids on the list of what to send back.


def queue_findings(
    window_s: int, kinds: Sequence[KindRow], windows: Sequence[WindowRow], workers: Sequence[WorkerRow]
) -> list[QueueFindings]:
    by_queue: dict[str, list[KindRow]] = defaultdict(list)
    for row in kinds:
        by_queue[row.queue].append(row)
    found = [
        _of_queue(
            queue,
            window_s,
            rows,
            [row for row in windows if row.queue == queue],
            [row for row in workers if row.queue == queue],
        )
        for queue, rows in by_queue.items()
    ]
    return sorted(found, key=lambda each: (-each.letters, each.queue))


def _of_queue(
    queue: str, window_s: int, kinds: Sequence[KindRow], windows: Sequence[WindowRow], workers: Sequence[WorkerRow]
) -> QueueFindings:
    ordered = sorted(kinds, key=lambda row: (-row.letters, row.kind))
    shown, left = ordered[:KINDS_SHOWN], ordered[KINDS_SHOWN:]
    busiest = sorted(workers, key=lambda row: (-row.failures, row.worker))
    starts = _all_starts([row.start for row in windows], window_s)
    return QueueFindings(
        queue,
        sum(row.letters for row in ordered),
        shown,
        len(left),
        sum(row.letters for row in left),
        busiest[:WORKERS_SHOWN],
        max(0, len(busiest) - WORKERS_SHOWN),
        starts,
        _series([row.kind for row in ordered], windows, starts),
    )


def _all_starts(seen: Sequence[int], window_s: int) -> list[int]:
    """Every window from the first to the last, also the empty ones; the newest ones where they are too many."""
    if not seen:
        return []
    last = max(seen)
    return list(range(max(min(seen), last - (WINDOWS_MAX - 1) * window_s), last + window_s, window_s))


def _series(kinds: Sequence[str], windows: Sequence[WindowRow], starts: Sequence[int]) -> dict[str, list[int]]:
    drawn = list(kinds) if len(kinds) <= KINDS_DRAWN else list(kinds[: KINDS_DRAWN - 1])
    names = drawn if len(drawn) == len(kinds) else [*drawn, OTHERS]
    place = {start: number for number, start in enumerate(starts)}
    series = {name: [0] * len(starts) for name in names}
    known = dict.fromkeys(drawn)
    for row in windows:
        if row.start in place:
            series[row.kind if row.kind in known else OTHERS][place[row.start]] += row.letters
    return series
