"""Where a group should read on: the arithmetic of setting committed offsets anew.

A reset never points outside the log: what lies before its start or past its end is moved to the nearest end, as Kafka's tools do, and
says so. A time that no record is as young as means the end. A shift needs something to shift from.
Not here: looking offsets up, and committing them. A group with members commits for itself, so the coordinator refuses others meanwhile.
"""

from dataclasses import dataclass
from typing import assert_never

from penstock.errors import ErrorCode, Refusal
from penstock.vocabulary import TopicPartition


@dataclass(frozen=True, slots=True)
class ToEarliest:
    pass


@dataclass(frozen=True, slots=True)
class ToLatest:
    pass


@dataclass(frozen=True, slots=True)
class ToTime:
    """To the first record that is not older."""

    timestamp_ms: int


@dataclass(frozen=True, slots=True)
class ToOffset:
    offset: int


@dataclass(frozen=True, slots=True)
class ShiftBy:
    """Forward, or back when negative, from what is committed."""

    records: int


Reset = ToEarliest | ToLatest | ToTime | ToOffset | ShiftBy


@dataclass(frozen=True, slots=True)
class Standing:
    """One partition, as it is for the group."""

    partition: TopicPartition
    committed: int | None
    start_offset: int
    end_offset: int
    offset_at_time: int | None = None  # Of the first record that isn't older than a wanted time; None where there is none.


@dataclass(frozen=True, slots=True)
class Move:
    partition: TopicPartition
    committed: int | None
    target: int
    note: str = ""  # Why it is not quite what was asked.


def plan_move(reset: Reset, standing: Standing) -> Move:
    """Raises Refusal where the reset has no meaning for this partition."""
    wanted = _wanted(reset, standing)
    target = min(max(wanted, standing.start_offset), standing.end_offset)
    note = ""
    if wanted < target:
        note = f"the log starts at {target}, after {wanted}"
    elif wanted > target:
        note = f"the log ends at {target}, before {wanted}"
    return Move(standing.partition, standing.committed, target, note)


def _wanted(reset: Reset, standing: Standing) -> int:
    match reset:
        case ToEarliest():
            return standing.start_offset
        case ToLatest():
            return standing.end_offset
        case ToTime():
            return standing.end_offset if standing.offset_at_time is None else standing.offset_at_time
        case ToOffset():
            return reset.offset
        case ShiftBy():
            if standing.committed is None:
                raise Refusal(ErrorCode.INVALID_REQUEST, f"{standing.partition} has no committed offset to shift from")
            return standing.committed + reset.records
        case _:
            assert_never(reset)
