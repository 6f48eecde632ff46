"""What one task reads: a range of offsets of one partition; and how ranges are cut so that tasks have about the same to do.

Spark's Kafka source cuts in proportion, which comes out with more or fewer tasks than were asked for. Here the range whose tasks have the
most to do gets one more, until there are enough: the longest task is as short as can be, and their number is what was asked for.
Offsets are counted, not records: what compaction has taken cannot be seen from here.
"""

import heapq
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from penstock.pipeline.source.options import Splitting
from penstock.vocabulary import TopicId, TopicPartition

SKEW = 2  # A partition with more than this many fair shares is read by several tasks.
SPLIT_RECORDS_MIN = 50_000  # A task of fewer costs more to start than it saves.


@dataclass(frozen=True, slots=True)
class Range:
    where: TopicPartition
    topic_id: TopicId
    start: int
    end: int  # Half-open.

    @property
    def size(self) -> int:
        return self.end - self.start

    def __str__(self) -> str:
        return f"{self.where} from offset {self.start} to {self.end}"


def split(ranges: Sequence[Range], splitting: Splitting) -> list[Range]:
    """Cuts the ranges into tasks. Empty ones are left out; the others keep their order."""
    filled = [each for each in ranges if each.size > 0]
    parts = [1] * len(filled)
    if splitting.records_max is not None:
        parts = [-(-each.size // splitting.records_max) for each in filled]
    if splitting.is_even:
        parts = [max(pair) for pair in zip(parts, _even_parts(filled), strict=True)]
    if splitting.partitions_min is not None:
        parts = _at_least(filled, parts, splitting.partitions_min)
    return [piece for each, count in zip(filled, parts, strict=True) for piece in _cut(each, count)]


def _even_parts(ranges: Sequence[Range]) -> list[int]:
    """How many tasks each range is worth, if every partition were worth one."""
    if not ranges:
        return []
    fair = max(SPLIT_RECORDS_MIN, sum(each.size for each in ranges) / len(ranges))
    return [round(each.size / fair) if each.size > SKEW * fair else 1 for each in ranges]


def _at_least(ranges: Sequence[Range], parts: Sequence[int], wanted: int) -> list[int]:
    counts = list(parts)
    longest = [(-each.size / counts[place], place) for place, each in enumerate(ranges)]
    heapq.heapify(longest)
    missing = min(wanted, sum(each.size for each in ranges)) - sum(counts)
    for _ in range(missing):
        place = heapq.heappop(longest)[1]
        counts[place] += 1
        heapq.heappush(longest, (-ranges[place].size / counts[place], place))
    return counts


def _cut(whole: Range, count: int) -> list[Range]:
    edges = [whole.start + whole.size * part // count for part in range(count + 1)]
    return [replace(whole, start=start, end=end) for start, end in pairwise(edges) if end > start]
