"""The reader of a stream. Spark asks what there is, writes down how far the next batch goes, asks for its ranges, and reads them in tasks.

One process per query holds this reader for as long as the query runs and calls everything but `read`, which runs in tasks, on a copy.

Rules:
- A batch that was written down is read again as it was: its ranges come from its offsets alone.
- Partitions that are new begin at their earliest offset. What was there and is not any more is a loss (loss.py), and so is a topic that was
  made again: its id tells.
- Trigger.AvailableNow reads up to what there was when it began.
- What Spark asks to read on from is done; that is committed to the group, where one is named.
"""

import time
from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from penstock.pipeline.datasource import settle_in_worker
from penstock.pipeline.source.admission import Patience, at_most
from penstock.pipeline.source.following import Following, up_to
from penstock.pipeline.source.news import until_news
from penstock.pipeline.source.offsets import Offsets, beginning_of, from_json, to_json, with_beginning
from penstock.pipeline.source.options import SourceOptions, read_options
from penstock.pipeline.source.progress import GroupProgress
from penstock.pipeline.source.ranges import split
from penstock.pipeline.source.reading import read_range
from penstock.pipeline.source.schema import check_schema
from penstock.vocabulary import Instant

Json = dict[str, Any]


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    def __init__(self, options: Mapping[str, str], schema: StructType) -> None:
        check_schema(schema)
        self._options: SourceOptions = read_options(options, is_stream=True)
        self._schema = schema
        self._life: _Life | None = None  # Only in the query's own process: a copy that goes to a task has none.

    def initialOffset(self) -> Json:
        begun = self._living.initial = self._living.following.start()
        return self._to_json(begun)

    def getDefaultReadLimit(self) -> ReadLimit:
        admission = self._options.admission
        if admission.offsets_max is not None:
            return ReadMaxRows(admission.offsets_max)
        return ReadAllAvailable() if admission.offsets_min is None else ReadMinRows(admission.offsets_min)

    def latestOffset(self, start: Json, limit: ReadLimit) -> Json:
        begun, life = from_json(start), self._living
        life.begin_commit(begun)
        try:
            found = life.end_of_next(begun, limit)
        finally:
            life.finish_commit()
        if found.is_same_place(begun):
            return start
        is_first = life.initial is not None and life.initial.is_same_place(begun)
        ended = self._to_json(found)
        return with_beginning(ended, begun) if is_first and self._options.has_topic_ids else ended

    def prepareForTriggerAvailableNow(self) -> None:
        self._living.stop_at_now()

    def reportLatestOffset(self) -> Json | None:
        latest = self._living.latest
        return None if latest is None else self._to_json(latest)

    def partitions(self, start: Json, end: Json) -> list[InputPartition]:
        ranges = self._living.following.ranges(beginning_of(end) or from_json(start), from_json(end))
        return [InputPartition(each) for each in split(ranges, self._options.splitting)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return read_range(self._options, self._schema, partition.value)

    def commit(self, end: Json) -> None:
        """Too late to be of use: `latestOffset` has heard of it."""

    def stop(self) -> None:
        """The process ends; nothing is left behind."""

    @property
    def _living(self) -> "_Life":
        if self._life is None:
            self._life = _Life(self._options)
        return self._life

    def _to_json(self, offsets: Offsets) -> Json:
        return to_json(offsets, has_topic_ids=self._options.has_topic_ids)


class _Life:
    """What a query's process remembers between two questions."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        self.following = Following(options)
        self.initial: Offsets | None = None  # Where the query begins, if it is new.
        self.latest: Offsets | None = None  # What there was when last asked.
        self._target: Offsets | None = None  # Where Trigger.AvailableNow ends.
        self._patience = Patience(options.admission)
        broker = self.following.lookup.broker
        self._progress = None if options.group is None else GroupProgress(broker, options.group)

    def begin_commit(self, done: Offsets) -> None:
        if self._progress is not None:
            self._progress.begin(done.next)

    def finish_commit(self) -> None:
        if self._progress is not None:
            self._progress.finish()

    def stop_at_now(self) -> None:
        self._target = self.following.latest_of_all()

    def end_of_next(self, begun: Offsets, limit: ReadLimit) -> Offsets:
        """Where the next batch ends; where it begins, if there is to be none."""
        latest = self.latest = self._available(begun)
        if self._target is None and latest.is_same_place(begun):
            self._wait_for_news(latest)
            latest = self.latest = self._available(begun)
        starts = self.following.starts(begun, latest)
        if isinstance(limit, ReadAllAvailable) or not starts:
            return latest
        if self._target is None and not self._patience.is_enough(starts, latest.next, Instant(time.monotonic())):
            self._wait_for_news(latest)
            return begun
        if self._options.admission.offsets_max is None:
            return latest
        return Offsets(at_most(starts, latest.next, self._options.admission.offsets_max), latest.topic_ids)

    def _available(self, begun: Offsets) -> Offsets:
        latest = self.following.latest(begun)
        return latest if self._target is None else up_to(self._target, latest, begun)

    def _wait_for_news(self, latest: Offsets) -> None:
        broker = self.following.lookup.broker
        broker.run(until_news(broker.client, latest.next, is_committed_only=self._options.fetching.is_committed_only))


settle_in_worker()
