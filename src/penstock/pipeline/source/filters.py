"""Filters that reach the log: what a batch query asks of topic, partition, offset and timestamp decides what is read at all.

Topic, partition and offset are kept to exactly, so that Spark need not look again. A timestamp only says where to begin, and which batches
need not be unpacked: their order in the log is not that of their times, so Spark looks at every row again.
A filter that is not understood is left to Spark; nothing is lost by that.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any

from pyspark.sql.datasource import EqualTo, Filter, GreaterThan, GreaterThanOrEqual, In, IsNotNull, LessThan, LessThanOrEqual

from penstock.vocabulary import TopicPartition

LOWEST, HIGHEST = -(1 << 63), (1 << 63) - 1

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_NEVER_NULL = ("topic", "partition", "offset", "timestamp", "timestampType")


@dataclass(frozen=True, slots=True)
class Span:
    """Whole numbers from `low` up to, but not with, `end`."""

    low: int = LOWEST
    end: int = HIGHEST

    def __contains__(self, number: int) -> bool:
        return self.low <= number < self.end

    def cut(self, other: "Span") -> "Span":
        return Span(max(self.low, other.low), min(self.end, other.end))


EVERYTHING = Span()


@dataclass(frozen=True, slots=True)
class Narrowing:
    """What is left to read."""

    topics: frozenset[str] | None = None  # None: all.
    partitions: frozenset[int] | None = None
    partition_span: Span = EVERYTHING
    offsets: Span = EVERYTHING
    timestamps_ms: Span = EVERYTHING

    def has(self, where: TopicPartition) -> bool:
        is_named = self.topics is None or where.topic in self.topics
        return is_named and where.partition in self.partition_span and (self.partitions is None or where.partition in self.partitions)


def narrow(filters: Iterable[Filter]) -> tuple[Narrowing, list[Filter]]:
    """What the filters leave to read, and those of them that Spark must still see to."""
    narrowing, left = Narrowing(), []
    for each in filters:
        column = ".".join(getattr(each, "attribute", ()))
        understand = _COLUMNS.get(column)
        narrower = understand(narrowing, each) if understand is not None else None
        is_settled = isinstance(each, IsNotNull) and column in _NEVER_NULL
        narrowing = narrower or narrowing
        if not is_settled and (narrower is None or column == "timestamp"):
            left.append(each)
    return narrowing, left


def _by_topic(narrowing: Narrowing, given: Filter) -> Narrowing | None:
    names = _members(given, str)
    return None if names is None else replace(narrowing, topics=names if narrowing.topics is None else narrowing.topics & names)


def _by_partition(narrowing: Narrowing, given: Filter) -> Narrowing | None:
    numbers = _members(given, int)
    if numbers is not None:
        return replace(narrowing, partitions=numbers if narrowing.partitions is None else narrowing.partitions & numbers)
    span = _span(given, _whole)
    return None if span is None else replace(narrowing, partition_span=narrowing.partition_span.cut(span))


def _by_offset(narrowing: Narrowing, given: Filter) -> Narrowing | None:
    span = _span(given, _whole)
    return None if span is None else replace(narrowing, offsets=narrowing.offsets.cut(span))


def _by_timestamp(narrowing: Narrowing, given: Filter) -> Narrowing | None:
    """Records count in milliseconds, Spark in microseconds."""
    span = _span(given, _microseconds)
    if span is None:
        return None
    low = span.low if span.low == LOWEST else -(-span.low // 1_000)
    end = span.end if span.end == HIGHEST else -(-span.end // 1_000)
    return replace(narrowing, timestamps_ms=narrowing.timestamps_ms.cut(Span(low, end)))


_COLUMNS: dict[str, Callable[[Narrowing, Filter], Narrowing | None]] = {
    "topic": _by_topic,
    "partition": _by_partition,
    "offset": _by_offset,
    "timestamp": _by_timestamp,
}


def _members(given: Filter, kind: type) -> frozenset[Any] | None:
    values = (given.value,) if isinstance(given, EqualTo) else given.value if isinstance(given, In) else None
    if values is None or not all(isinstance(value, kind) and not isinstance(value, bool) for value in values):
        return None
    return frozenset(values)


def _span(given: Filter, number_of: Callable[[Any], int | None]) -> Span | None:
    number = number_of(getattr(given, "value", None))
    if number is None:
        return None
    match given:
        case EqualTo():
            return Span(number, number + 1)
        case GreaterThan():
            return Span(low=number + 1)
        case GreaterThanOrEqual():
            return Span(low=number)
        case LessThan():
            return Span(end=number)
        case LessThanOrEqual():
            return Span(end=number + 1)
        case _:
            return None


def _whole(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _microseconds(value: Any) -> int | None:
    if not isinstance(value, datetime) or value.tzinfo is None:
        return None
    return (value - _EPOCH) // timedelta(microseconds=1)
