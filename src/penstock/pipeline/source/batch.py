"""The reader of a batch query: from one set of offsets to another, both looked up when the query is planned.

Filters on topic, partition, offset and timestamp narrow what is planned. Spark hands them over only where
`spark.sql.python.filterPushdown.enabled` is set, as `penstock.pipeline.session` does, and refuses a reader that wants them where it is not;
`_Pushing` keeps it from refusing, so that the source also works in a session that somebody else has made.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, Filter, InputPartition
from pyspark.sql.types import StructType

from penstock.pipeline.datasource import settle_in_worker
from penstock.pipeline.options import WrongOption
from penstock.pipeline.source.dead_letters import of_gap, write
from penstock.pipeline.source.filters import Narrowing, narrow
from penstock.pipeline.source.lookup import Lookup
from penstock.pipeline.source.loss import AGED_OUT, CUT_OFF, Gap, Losses
from penstock.pipeline.source.options import SourceOptions, read_options
from penstock.pipeline.source.ranges import Range, split
from penstock.pipeline.source.reading import read_range
from penstock.pipeline.source.schema import check_schema
from penstock.pipeline.source.subscription import Subscribed


class BatchReader(DataSourceReader):
    def __init__(self, options: Mapping[str, str], schema: StructType) -> None:
        check_schema(schema)
        self._options: SourceOptions = read_options(options, is_stream=False)
        self._schema = schema
        self._narrowing = Narrowing()
        self.pushFilters = _Pushing(self)  # type: ignore[method-assign]

    def partitions(self) -> list[InputPartition]:
        lookup = Lookup(self._options)
        ranges = plan(self._options, lookup, self._narrowing)
        return [InputPartition(each) for each in split(ranges, self._options.splitting)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if partition.value is None:  # What Spark makes of no partitions at all.
            return iter(())
        return read_range(self._options, self._schema, partition.value, self._narrowing.timestamps_ms)

    def narrow(self, filters: Iterable[Filter]) -> list[Filter]:
        self._narrowing, left = narrow(filters)
        return left


class _Pushing:
    """`pushFilters` of a reader that does not mind if it is never called.

    Spark takes a reader for one that must have filters, and refuses it where they are switched off, if its method is not the base's own.
    """

    __func__ = staticmethod(DataSourceReader.pushFilters)

    def __init__(self, reader: BatchReader) -> None:
        self._reader = reader

    def __call__(self, filters: list[Any]) -> Iterable[Any]:
        return self._reader.narrow(filters)


def plan(options: SourceOptions, lookup: Lookup, narrowing: Narrowing) -> list[Range]:
    """What is to be read of each partition."""
    subscribed = lookup.subscribed()
    starts, ends = lookup.start(subscribed), lookup.end(subscribed)
    chosen = Subscribed(tuple(where for where in subscribed.partitions if narrowing.has(where)), subscribed.topic_ids)
    losses = Losses(fails=options.fails_on_data_loss)
    firsts, lasts = lookup.earliest(chosen.partitions), lookup.latest(chosen.partitions)
    ranges = []
    for where in chosen.partitions:
        if starts[where] > ends[where]:
            problem = f"{where} would begin at offset {starts[where]} and end before offset {ends[where]}"
            raise WrongOption(problem, "let it end where it begins, or later")
        start, end = max(starts[where], narrowing.offsets.low), min(ends[where], narrowing.offsets.end)
        asked = Range(where, chosen.topic_ids[where.topic], start, max(start, end))
        ranges.append(_kept(asked, losses, first=firsts[where], last=lasts[where]))
    gaps = losses.take()
    if gaps and options.dead_letter_topic is not None:
        lookup.broker.run(write(lookup.broker.client, options.dead_letter_topic, [of_gap(gap) for gap in gaps]))
    return _not_older(ranges, lookup, narrowing.timestamps_ms.low)


def _kept(asked: Range, losses: Losses, *, first: int, last: int) -> Range:
    """The part of a range that is still there."""
    if asked.size == 0:
        return asked
    if asked.start < first:
        losses.report(Gap(asked.where, asked.start, min(first, asked.end), AGED_OUT))
    if asked.end > last:
        losses.report(Gap(asked.where, max(asked.start, last), asked.end, CUT_OFF))
    start = max(asked.start, first)
    return replace(asked, start=start, end=max(start, min(asked.end, last)))


def _not_older(ranges: list[Range], lookup: Lookup, timestamp_ms: int) -> list[Range]:
    """Ranges without what stands before the first record of that time: everything there is older.

    Brokers can be asked for times after 1970 only. Records of older times, and those of none, which count as a moment before it, are read.
    """
    if timestamp_ms <= 0:
        return ranges
    found = lookup.not_older([each.where for each in ranges], timestamp_ms)
    begins = [each.end if (offset := found[each.where]) is None else min(offset, each.end) for each in ranges]
    return [replace(each, start=max(each.start, begin)) for each, begin in zip(ranges, begins, strict=True)]


settle_in_worker()
