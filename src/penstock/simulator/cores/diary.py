"""What clients asked and heard, and whether one register could have answered so.

Every written value is unique, so the question has a quick answer (Gibbons and Korach, 1997): each value has a zone, from the first end to
the last beginning among its write and its reads. Zones in which the value must have been there may not overlap, and no zone in which it
may have been there for a moment lies wholly inside of another's.
"""

from dataclasses import dataclass
from enum import Enum
from itertools import pairwise

from penstock.simulator.cores.judging import Violation


class Result(Enum):
    OPEN = "open"
    DONE = "done"
    REFUSED = "refused"
    UNKNOWN = "unknown"


@dataclass(slots=True, eq=False)
class Asked:
    """One question of a client: a value to be written, or None to read."""

    client: int
    value: int | None
    began: float
    ended: float = float("inf")
    result: Result = Result.OPEN
    read: int = 0  # What a read returned; 0 is what was there in the beginning.


def check_register(asked: list[Asked]) -> None:
    """Raises if no order of these questions, each somewhere between its beginning and its end, gives these answers."""
    began: dict[int, float] = {0: -1.0}
    first_end: dict[int, float] = {0: -1.0}
    last_beginning: dict[int, float] = {0: -1.0}
    for one in asked:
        if one.value is not None and one.result is not Result.REFUSED:
            began[one.value] = last_beginning[one.value] = one.began
            first_end[one.value] = one.ended if one.result is Result.DONE else float("inf")
    for one in asked:
        if one.value is None and one.result is Result.DONE:
            if one.read not in began or one.ended < began[one.read]:
                raise Violation("reads are linearizable", f"{one.read} was read, which nobody had written by then")
            first_end[one.read] = min(first_end[one.read], one.ended)
            last_beginning[one.read] = max(last_beginning[one.read], one.began)
    _check_zones({value: (first_end[value], last_beginning[value]) for value in began if first_end[value] < float("inf")})


def _check_zones(zones: dict[int, tuple[float, float]]) -> None:
    certain = sorted((end, beginning, value) for value, (end, beginning) in zones.items() if end < beginning)
    for (_, beginning, value), (end, _, later) in pairwise(certain):
        if end < beginning:
            raise Violation("reads are linearizable", f"{value} and {later} were both there for certain at the same time")
    momentary = sorted((beginning, end, value) for value, (end, beginning) in zones.items() if end >= beginning)
    at = 0
    for beginning, end, value in momentary:
        while at < len(certain) and certain[at][1] < beginning:
            at += 1
        if at < len(certain) and certain[at][0] < beginning and end < certain[at][1]:
            raise Violation("reads are linearizable", f"{value} came and went while {certain[at][2]} was there for certain")
