"""An archive read back as a stream, as though it were the topic: in the order of offsets in each partition, at a bounded rate.

    spark.readStream.format("penstock-lake").option("path", "/data/archive").option("topic", "orders").load()

| option | what it means | default |
|---|---|---|
| `path` | where the archive is | must be given |
| `tableFormat` | parquet or delta | parquet |
| `topic` | which of the archived topics | the only one |
| `rowsPerSecond` | the most rows a second | no bound |
| `rowsPerBatch` | the most rows of a batch | 100000 |
| `startingTimestamp`, `endingTimestamp` | only records from this moment on, and before that one, in milliseconds since 1970 | all |

Offsets are those that the records had in the topic, so that a checkpoint says how far it came in the topic's own terms. One task reads one
partition of a batch and gives its rows in order, whatever the order of files and of rows in them; it holds some `HELD_BYTES` of them in
memory, and no fewer than one row group of a file. What is archived while it runs is not
read; the next run with the same checkpoint goes on with it.
Not here: which files hold which offsets (positions.py) and the rate (pacing.py).
"""

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from penstock.pipeline.complaints import PipelineComplaint
from penstock.pipeline.datasource import settle_in_worker
from penstock.pipeline.lake.pacing import Pace
from penstock.pipeline.lake.positions import Span, Times, spans_of, topics_of
from penstock.pipeline.lake.staging import open_directory
from penstock.pipeline.lake.table import FORMATS, open_table
from penstock.pipeline.options import Options, WrongOption

OPTIONS = ("path", "tableFormat", "topic", "rowsPerSecond", "rowsPerBatch", "startingTimestamp", "endingTimestamp")
ROWS_PER_BATCH = 100_000
ROWS_PER_ARROW_BATCH = 10_000  # More at a time were measured to gain nothing.
HELD_BYTES = 64 * 2**20  # Of rows as a task brings them into order. As much again is on its way to Spark.
LOOK_SECONDS = 1.0  # Between two looks at whether more was archived.
WAIT_SECONDS_MAX = 1.0  # A query that is asked to stop waits so long at most.

Offsets = dict[str, dict[str, int]]  # As the source "penstock" writes them.


@dataclass(frozen=True, slots=True)
class Wish:
    path: str
    format: str
    topic: str
    rows_per_second: float | None
    rows_per_batch: int
    times: Times
    directory: str  # Of the files.


@dataclass(frozen=True, slots=True)
class Part(InputPartition):
    """What one task reads: offsets of one partition, and the files that hold them."""

    partition: int
    first: int
    end: int
    paths: tuple[str, ...]


def read_wish(given: Mapping[str, str]) -> Wish:
    options = Options(given)
    options.refuse_misspelled(OPTIONS, of_whom="the lake")
    path = options.text("path", None)
    if not path:
        raise WrongOption("the option path is missing", "say where the archive is: .option('path', '/data/archive')")
    form = options.choice("tableFormat", "parquet", FORMATS)
    snapshot = open_table(path, form).snapshot()
    rate = options.whole("rowsPerSecond", None, low=1)
    return Wish(
        path=path,
        format=form,
        topic=chosen_topic(options.text("topic", None), topics_of(snapshot), path),
        rows_per_second=None if rate is None else float(rate),
        rows_per_batch=options.whole("rowsPerBatch", ROWS_PER_BATCH, low=1),
        times=Times(options.whole("startingTimestamp", None), options.whole("endingTimestamp", None)),
        directory=snapshot.directory,
    )


def chosen_topic(asked: str | None, there: Sequence[str], path: str) -> str:
    if asked is None and len(there) == 1:
        return there[0]
    if asked in there:
        return str(asked)
    held = ", ".join(there) or "no topic"
    if asked is None:
        raise PipelineComplaint(f"the archive {path} holds {held}", "say which by the option topic")
    raise PipelineComplaint(f"the archive {path} holds {held}, and not {asked!r}", "name one that it holds by the option topic")


class ArchiveReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    def __init__(self, options: Mapping[str, str], schema: StructType) -> None:
        self._wish = read_wish(options)
        self._schema = to_arrow_schema(schema, timezone="UTC")
        self._pace: Pace | None = None
        self._spans = self._look()  # What there is to be read. Looked at anew where nothing is left of it.
        self._is_bounded = False  # Whether the query is to end with what is there now.
        self._looked_at = time.monotonic()

    def initialOffset(self) -> Offsets:
        firsts: dict[int, int] = {}
        for span in self._spans:
            firsts.setdefault(span.partition, span.first)
        return self._offsets(firsts)

    def prepareForTriggerAvailableNow(self) -> None:
        self._spans, self._is_bounded = self._look(), True

    def latestOffset(self, start: Offsets, limit: ReadLimit) -> Offsets:
        at = self._positions(start)
        if not self._has_more(at) or not (rows := self._rows_allowed()):
            return start
        ends, taken = advance(self._spans, at, rows)
        if self._pace is not None:
            self._pace.take(taken)
        return self._offsets(ends)

    def getDefaultReadLimit(self) -> ReadLimit:
        return ReadAllAvailable()  # The bounds of this reader are its own: a rate cannot be said in Spark's terms.

    def reportLatestOffset(self) -> Offsets:
        ends: dict[int, int] = {}
        for span in self._spans:
            ends[span.partition] = max(span.end, ends.get(span.partition, 0))
        return self._offsets(ends)

    def partitions(self, start: Offsets, end: Offsets) -> Sequence[InputPartition]:
        before, after = self._positions(start), self._positions(end)
        return [
            Part(partition, before.get(partition, 0), until, tuple(self._paths(partition, before.get(partition, 0), until)))
            for partition, until in sorted(after.items())
            if until > before.get(partition, 0)
        ]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, Part), "planned by partitions()"
        for rows in read_rows(partition, self._wish):
            named = rows.append_column("topic", pa.repeat(self._wish.topic, rows.num_rows))
            yield from named.select(self._schema.names).cast(self._schema).to_batches(max_chunksize=ROWS_PER_ARROW_BATCH)

    def commit(self, end: Offsets) -> None:
        return

    def _has_more(self, at: Mapping[int, int]) -> bool:
        def has_more() -> bool:
            return any(span.end > at.get(span.partition, 0) for span in self._spans)

        if not has_more() and not self._is_bounded and time.monotonic() - self._looked_at > LOOK_SECONDS:
            self._spans, self._looked_at = self._look(), time.monotonic()
        return has_more()

    def _rows_allowed(self) -> int:
        if self._wish.rows_per_second is None:
            return self._wish.rows_per_batch
        now = time.monotonic()
        self._pace = self._pace or Pace(self._wish.rows_per_second, now)
        while not (rows := self._pace.rows_at(time.monotonic())):
            if not self._is_bounded and time.monotonic() > now + WAIT_SECONDS_MAX:
                return 0  # A bounded query would take that for the end.
            time.sleep(min(self._pace.seconds_until(time.monotonic()), WAIT_SECONDS_MAX))
        return min(rows, self._wish.rows_per_batch)

    def _look(self) -> list[Span]:
        return spans_of(open_table(self._wish.path, self._wish.format).snapshot(), self._wish.topic, self._wish.times)

    def _paths(self, partition: int, first: int, end: int) -> Iterator[str]:
        for span in self._spans:
            if span.partition == partition and span.first < end and span.end > first:
                yield span.path

    def _offsets(self, positions: Mapping[int, int]) -> Offsets:
        return {self._wish.topic: {str(partition): offset for partition, offset in sorted(positions.items())}}

    def _positions(self, offsets: Offsets) -> dict[int, int]:
        return {int(partition): offset for partition, offset in offsets.get(self._wish.topic, {}).items()}


def advance(spans: Sequence[Span], at: Mapping[int, int], rows: int) -> tuple[dict[int, int], int]:
    """How far each partition may go with so many rows in all, shared by what each has left; and how many rows that makes.

    So all partitions come to their end together. Within a span with gaps rows are taken to be spread evenly: then a few more or fewer go.
    """
    left = {partition: [span for span in spans if span.partition == partition] for partition in sorted({span.partition for span in spans})}
    counts = {partition: _rows_between(own, at.get(partition, 0), _end_of(own)) for partition, own in left.items()}
    total = sum(counts.values())
    ends, taken = dict(at), 0
    for partition, own in left.items():
        share = -(-rows * counts[partition] // total) if total else 0
        position = at.get(partition, 0)
        ends[partition] = _advance_one(own, position, share)
        taken += _rows_between(own, position, ends[partition])
    return ends, taken


def _advance_one(spans: Sequence[Span], position: int, rows: int) -> int:
    """The furthest position before which there are no more than so many rows, but at least one."""
    ahead = [span for span in spans if span.end > position]
    if not ahead or rows == 0:
        return position
    near: list[Span] = []
    for span in ahead:  # By their first offsets; what begins after enough rows is of no interest.
        if near and span.first >= _end_of(near) and _rows_between(near, position, _end_of(near)) > rows:
            break
        near.append(span)
    low, high = max(position, near[0].first) + 1, _end_of(near)
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if _rows_between(near, position, middle) <= rows else (low, middle - 1)
    return low


def _rows_between(spans: Sequence[Span], first: int, end: int) -> int:
    shares = ((span, min(end, span.end) - max(first, span.first)) for span in spans)
    return sum(max(1, span.rows * share // (span.end - span.first)) for span, share in shares if share > 0)


def _end_of(spans: Sequence[Span]) -> int:
    return max((span.end for span in spans), default=0)


def read_rows(part: Part, wish: Wish, *, held_bytes: int = HELD_BYTES) -> Iterator[pa.Table]:
    """The rows of one part, in the order of their offsets, no more than so many bytes at a time, but at least a row."""
    filesystem, root = open_directory(wish.directory)
    wanted = (pc.field("partition") == part.partition) & (pc.field("offset") >= part.first) & (pc.field("offset") < part.end)
    in_time = wish.times.expression()
    wanted = wanted if in_time is None else wanted & in_time
    files = ds.dataset([f"{root}/{path}" for path in part.paths], format="parquet", filesystem=filesystem)
    rows_held = max(1, held_bytes // _row_bytes(files, part))
    if rows_held >= part.end - part.first:
        yield files.to_table(filter=wanted, use_threads=False).sort_by("offset")
        return
    offsets = sorted(files.to_table(["offset"], filter=wanted, use_threads=False)["offset"].to_pylist())
    for at in range(0, len(offsets), rows_held):
        first, last = offsets[at], offsets[min(at + rows_held, len(offsets)) - 1]
        near = wanted & (pc.field("offset") >= first) & (pc.field("offset") <= last)
        ahead = {"batch_size": rows_held, "batch_readahead": 0, "fragment_readahead": 1, "use_threads": False}
        yield files.to_table(filter=near, **ahead).sort_by("offset")


def _row_bytes(files: ds.Dataset, part: Part) -> int:
    """Of the row group with the largest rows, as the files' footers have it; groups of other offsets are left out where that is known."""
    largest = 1
    for fragment in files.get_fragments():
        for group in fragment.row_groups:
            span = group.statistics.get("offset", {"min": part.first, "max": part.first})
            if group.num_rows and span["min"] < part.end and span["max"] >= part.first:
                largest = max(largest, group.total_byte_size // group.num_rows)
    return largest


settle_in_worker()
