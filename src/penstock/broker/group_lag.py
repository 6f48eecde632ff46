"""The lag of groups, measured at this node's partitions.

One look covers any number of offsets: first the numbers that are in memory, then the times of records that are not known yet, a bounded
number of them and a few at a time, so that a dashboard cannot keep the disk busy. What went past that bound has no time lag in this
look; since answers are remembered, the next look gets further.
Not here: the arithmetic (lag.py), and which groups there are (group_views.py).
"""

from collections.abc import Iterable
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from penstock.broker.lag import Lag, Span, lag_of, next_unread
from penstock.broker.patience import Patience
from penstock.broker.record_times import RecordTimes
from penstock.broker.together import together
from penstock.partition.partition import Partition
from penstock.vocabulary import TopicPartition

if TYPE_CHECKING:
    from penstock.broker.node import Node

LOOKUPS_MAX = 256  # In one look: each may be a cold read.
LOOKUPS_AT_A_TIME = 16


class CommittedOffset(NamedTuple):
    group: str
    where: TopicPartition
    offset: int


class PartitionLag(NamedTuple):
    group: str
    where: TopicPartition
    committed: int
    span: Span | None  # None: the partition is not there any more, or nobody knows where it ends.
    lag: Lag | None


class GroupLags:
    def __init__(self, node: "Node") -> None:
        self._node = node
        self._times = RecordTimes(node.env)

    async def measure(self, offsets: Iterable[CommittedOffset]) -> list[PartitionLag]:
        """A row for each offset, in the order given."""
        patience = Patience(self._node.env)
        found = []
        for committed in offsets:
            found.append((committed, self._find(committed.where)))
            await patience.pause_if_over()
        await self._learn_times(found, patience)
        rows = []
        for committed, partition in found:
            rows.append(self._row(committed, partition))
            await patience.pause_if_over()
        return rows

    async def _learn_times(self, found: list[tuple[CommittedOffset, Partition | None]], patience: Patience) -> None:
        unknown: dict[tuple[Partition, int], None] = {}
        for committed, partition in found:
            await patience.pause_if_over()
            if partition is None or (offset := next_unread(committed.offset, span_of(partition))) is None:
                continue
            if len(unknown) < LOOKUPS_MAX and self._times.known(partition, offset) is None:
                unknown[partition, offset] = None
        await together((partial(self._times.find, *each) for each in unknown), LOOKUPS_AT_A_TIME)

    def _find(self, where: TopicPartition) -> Partition | None:
        partition = self._node.partitions.find(*where)
        return partition if partition is not None and partition.end_is_known else None

    def _row(self, committed: CommittedOffset, partition: Partition | None) -> PartitionLag:
        group, where, offset = committed
        if partition is None:
            return PartitionLag(group, where, offset, None, None)
        span, wall_ms = span_of(partition), self._node.env.wall_ms()
        unread = next_unread(offset, span)
        time_ms = ages_out_ms = None
        if unread is not None:
            time_ms, ages_out_ms = self._times.known(partition, unread), partition.log.ages_out_ms(unread, wall_ms)
        lag = lag_of(offset, span, next_timestamp_ms=time_ms, ages_out_ms=ages_out_ms, wall_ms=wall_ms)
        return PartitionLag(group, where, offset, span, lag)


def span_of(partition: Partition) -> Span:
    return Span(partition.log.start_offset, partition.high_watermark)
