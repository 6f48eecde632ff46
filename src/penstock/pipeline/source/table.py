"""A compacted topic as a table: the latest record of each key, without those whose value is null. `option("latestByKey", "true")`.

Spark plans a frame that a stream is joined with once, and reads it again in every micro-batch. So what is planned here is only which
partitions there are; how far they go is looked up when they are read. A row of the stream meets the table as it was when its batch began,
or later.

Rules:
- A worker keeps the table that it has read, and reads on from there: a table that did not change costs two questions to the broker.
- What was kept is dropped, and read from the beginning, where the log was cut at either end since, or nobody looked for some minutes: then
  a null that deleted a key may have come and been cleaned away unseen.
- All records of a key are in one partition, as producers see to; records without a key are no rows of a table.
- A table lives in a worker's memory, whole: one that is larger than `TABLE_BYTES_MAX` is refused.
"""

import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructField, StructType

from penstock.pipeline.complaints import PipelineComplaint
from penstock.pipeline.options import Options, WrongOption
from penstock.pipeline.source.lookup import Lookup
from penstock.pipeline.source.options import SourceOptions, read_options
from penstock.pipeline.source.ranges import Range
from penstock.pipeline.source.reading import read_range
from penstock.pipeline.source.schema import COLUMNS, check_schema
from penstock.vocabulary import TopicId, TopicPartition

LATEST_BY_KEY = "latestByKey"
TABLE_BYTES_MAX = 1 << 30
KEPT_BYTES_MAX = 256 << 20  # Of all tables in one worker; what is larger is read each time.
UNSEEN_SECONDS_MAX = 300.0  # Far less than delete.retention.ms, for which a null stays in the log (a day, unless told otherwise).
BATCH_ROWS = 10_000
MERGE_BYTES = 64 << 20  # So much is read before keys that came more than once are told apart.
_ENDS = (
    "startingOffsets", "endingOffsets", "startingTimestamp", "endingTimestamp", "startingOffsetsByTimestamp", "endingOffsetsByTimestamp",
)  # fmt: skip


class TableReader(DataSourceReader):
    def __init__(self, options: Mapping[str, str], schema: StructType) -> None:
        check_schema(schema)
        given = Options(options)
        for name in _ENDS:
            if name in given:
                raise WrongOption(f"{name} was set together with {LATEST_BY_KEY}", "leave it out: a table is all that the topic holds")
        self._options: SourceOptions = read_options(options, is_stream=False)
        self._schema = schema

    def partitions(self) -> list[InputPartition]:
        subscribed = Lookup(self._options).subscribed()
        return [InputPartition((where, subscribed.topic_ids[where.topic])) for where in subscribed.partitions]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if partition.value is None:  # What Spark makes of no partitions at all.
            return
        where, topic_id = partition.value
        rows = _tables.now(_Wanted(self._options, _with_key_and_value(self._schema), where, topic_id))
        asked: pa.Schema = to_arrow_schema(self._schema, timezone="UTC")
        yield from rows.select(asked.names).cast(asked).to_batches(max_chunksize=BATCH_ROWS)


def newest(rows: pa.Table) -> pa.Table:
    """Of each key the last row, where its value is not null; in their order."""
    keyed = rows.filter(pc.is_valid(rows["key"]))
    numbered = pa.table({"key": keyed["key"], "row": pa.array(range(keyed.num_rows), pa.int64())})
    last = numbered.group_by("key").aggregate([("row", "max")])["row_max"]
    kept = keyed.take(last.take(pc.sort_indices(last)))
    return kept.filter(pc.is_valid(kept["value"])).combine_chunks()


@dataclass(frozen=True, slots=True)
class _Wanted:
    options: SourceOptions
    schema: StructType
    where: TopicPartition
    topic_id: TopicId

    @property
    def identity(self) -> tuple[object, ...]:
        return (self.options.contact, self.options.fetching.is_committed_only, self.schema.simpleString(), self.where, self.topic_id)


@dataclass(slots=True)
class _Kept:
    rows: pa.Table
    end: int  # Every record before it is in the rows, or superseded by one that is.
    looked_at: float


class _Tables:
    """What this process has read, the longest unused first."""

    def __init__(self) -> None:
        self._kept: dict[tuple[object, ...], _Kept] = {}
        self._lock = threading.Lock()

    def now(self, wanted: _Wanted) -> pa.Table:
        """The table as it is at this moment."""
        with self._lock:
            known = self._kept.pop(wanted.identity, None)
        fresh = _read_on(wanted, known)
        if fresh.rows.nbytes <= KEPT_BYTES_MAX:
            with self._lock:
                self._kept[wanted.identity] = fresh
                self._make_room()
        return fresh.rows

    def _make_room(self) -> None:
        while sum(kept.rows.nbytes for kept in self._kept.values()) > KEPT_BYTES_MAX:
            del self._kept[next(iter(self._kept))]


def _read_on(wanted: _Wanted, known: _Kept | None) -> _Kept:
    lookup, where, now = Lookup(wanted.options), wanted.where, time.monotonic()
    first, end = lookup.earliest([where])[where], lookup.latest([where])[where]
    if known is None or not first <= known.end <= end or now - known.looked_at > UNSEEN_SECONDS_MAX:
        known = _Kept(to_arrow_schema(wanted.schema, timezone="UTC").empty_table(), first, now)
    rows = known.rows
    if known.end < end:
        rows = _merged(wanted, rows, Range(where, wanted.topic_id, known.end, end))
    return _Kept(rows, end, now)


def _merged(wanted: _Wanted, rows: pa.Table, news: Range) -> pa.Table:
    pending, pending_bytes = [rows], 0
    for batch in read_range(wanted.options, wanted.schema, news):
        pending.append(pa.Table.from_batches([batch]))
        pending_bytes += batch.nbytes
        if pending_bytes > MERGE_BYTES:
            pending, pending_bytes = [_checked(newest(pa.concat_tables(pending)), wanted.where)], 0
    return _checked(newest(pa.concat_tables(pending)), wanted.where)


def _checked(rows: pa.Table, where: TopicPartition) -> pa.Table:
    if rows.nbytes > TABLE_BYTES_MAX:
        raise PipelineComplaint(
            f"{where} is a table of more than {TABLE_BYTES_MAX >> 20} MiB, which a worker would have to hold in memory",
            "give the topic more partitions, or keep the table elsewhere (the job `snapshot` writes one) and join with that",
        )
    return rows


def _with_key_and_value(schema: StructType) -> StructType:
    missing = [name for name in ("key", "value") if name not in schema.fieldNames()]
    return StructType([*(StructField(name, COLUMNS[name]) for name in missing), *schema.fields])


_tables = _Tables()
