"""Arrow batches as Spark hands them over, cut into rows of one partition each: the columns of Spark's Kafka sink.

| column | type | |
|---|---|---|
| value | binary or string | required; null is a tombstone |
| key | binary or string | decides the partition, by Kafka's own hash |
| topic | string | required unless the option `topic` is set, which goes before it |
| partition | int | goes before the key |
| headers | array of struct of key string, value binary | |
| timestamp | timestamp | only with includeTimestamp |

Other columns are left out, as at Spark. Rows without key and partition go together to one partition after the other, in turns.
No object is made for a row: buffers go from Arrow to `wire.columns` as they are.
"""

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from penstock.pipeline.sink.failures import SinkFailure
from penstock.vocabulary import Buffer, TopicPartition
from penstock.wire.columns import (
    NO_PARTITION,
    BinaryColumn,
    HeadersColumn,
    RecordColumns,
    TimestampColumn,
    partition_rows,
    rows_by_partition,
)

GATHER_BYTES = 4 << 20  # Small Arrow batches are put together up to this, so that each partition gets large batches of records,
GATHER_ROWS = 100_000  # or up to so many rows.

PartitionCount = Callable[[str], int]


class Cut(NamedTuple):
    """Rows that go to one partition."""

    where: TopicPartition
    columns: RecordColumns
    rows: memoryview  # int32


def gathered(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The same rows in fewer, larger batches; none that is empty."""
    waiting: list[pa.RecordBatch] = []
    size = rows = 0
    for batch in batches:
        if not batch.num_rows:
            continue
        waiting.append(batch)
        size, rows = size + batch.nbytes, rows + batch.num_rows
        if size >= GATHER_BYTES or rows >= GATHER_ROWS:
            yield from _joined(waiting)
            waiting, size, rows = [], 0, 0
    if waiting:
        yield from _joined(waiting)


class Cutter:
    """Knows where rows go. One for each task."""

    def __init__(self, topic: str | None, partition_count: PartitionCount, *, turn: int, includes_timestamp: bool) -> None:
        self._topic = topic
        self._partition_count = partition_count
        self._turn = turn  # Which partition the next rows without a key go to, counted on from here.
        self._includes_timestamp = includes_timestamp

    def cut(self, batch: pa.RecordBatch) -> list[Cut]:
        columns = self._columns(batch)
        explicit = _column(batch, "partition")
        cuts = []
        for topic, selection in self._by_topic(batch):
            count = self._partition_count(topic)
            places = self._places(columns, explicit, topic, count, selection)
            chosen = rows_by_partition(places, count, selection)
            cuts += [Cut(TopicPartition(topic, index), columns, rows) for index, rows in enumerate(chosen) if len(rows)]
        return cuts

    def _columns(self, batch: pa.RecordBatch) -> RecordColumns:
        value, key, headers = (_column(batch, name) for name in ("value", "key", "headers"))
        stamps = _column(batch, "timestamp") if self._includes_timestamp else None
        return RecordColumns(
            batch.num_rows,
            value=_binary(value) if value is not None else None,
            key=_binary(key) if key is not None else None,
            headers=_headers(headers) if headers is not None else None,
            timestamps=_timestamps(stamps) if stamps is not None else None,
        )

    def _by_topic(self, batch: pa.RecordBatch) -> Iterator[tuple[str, Buffer | None]]:
        if self._topic is not None:
            yield self._topic, None
            return
        topics = _column(batch, "topic")
        if topics is None or topics.null_count:
            raise SinkFailure("a row has no topic: its column topic is null", "fill the column, or set the option topic for all rows")
        numbered = topics.dictionary_encode()
        names = numbered.dictionary.to_pylist()
        for name, rows in zip(names, rows_by_partition(_flat(numbered.indices.cast(pa.int32())), len(names)), strict=True):
            yield str(name), rows

    def _places(self, columns: RecordColumns, explicit: Any, topic: str, count: int, selection: Buffer | None) -> Buffer:
        """The partition of each selected row, as int32."""
        rows = columns.rows if selection is None else memoryview(selection).nbytes // 4
        if columns.key is None:
            places = pa.repeat(pa.scalar(NO_PARTITION, pa.int32()), rows)
        else:
            by_key = partition_rows(columns.key, columns.rows, count, selection)
            places = pa.Array.from_buffers(pa.int32(), rows, [None, pa.py_buffer(by_key)])
        if explicit is not None:
            wishes = explicit.cast(pa.int32())
            if selection is not None:
                wishes = wishes.take(pa.Array.from_buffers(pa.int32(), rows, [None, pa.py_buffer(selection)]))
            _check_wishes(wishes, topic, count)
            places = pc.coalesce(wishes, places)
        places = pc.if_else(pc.equal(places, NO_PARTITION), pa.scalar(self._turn % count, pa.int32()), places)
        self._turn += 1
        return _flat(places)


def _check_wishes(wishes: Any, topic: str, count: int) -> None:
    bounds = pc.min_max(wishes).as_py()
    for wish in (bounds["min"], bounds["max"]):
        if wish is not None and not 0 <= wish < count:
            raise SinkFailure(
                f"a row is for partition {wish} of topic {topic!r}, which has {count}, counted from 0",
                "correct the column partition, leave it null, or add partitions to the topic",
            )


def _joined(batches: list[pa.RecordBatch]) -> list[pa.RecordBatch]:
    """One batch, or more where Arrow cannot have so many bytes in one column."""
    return batches if len(batches) == 1 else pa.Table.from_batches(batches).combine_chunks().to_batches()


def _column(batch: pa.RecordBatch, name: str) -> Any:
    at = batch.schema.get_field_index(name)
    if at < 0:
        at = next((index for index, given in enumerate(batch.schema.names) if given.lower() == name), -1)
    return batch.column(at) if at >= 0 else None


def _binary(array: Any) -> BinaryColumn:
    if array.type not in (pa.binary(), pa.string()):
        array = array.cast(pa.binary())
    validity, offsets, data = array.buffers()
    return BinaryColumn(_view(validity), memoryview(offsets), _view(data) or b"", first=array.offset)


def _headers(array: Any) -> HeadersColumn:
    if not pa.types.is_list(array.type):
        array = array.cast(pa.list_(array.type.value_type))
    structs = array.values  # Its fields are sliced as it is.
    _check_names(array, structs)
    names, contents = (_binary(structs.field(name)) for name in ("key", "value"))
    validity, offsets = array.buffers()[:2]
    return HeadersColumn(_view(validity), memoryview(offsets), names, contents, first=array.offset)


def _check_names(array: Any, structs: Any) -> None:
    """Kafka has no header without a name. What stands behind a list that is null, or outside of a slice, does not count."""
    if (structs.null_count or structs.field("key").null_count) and pc.struct_field(array.flatten(), "key").null_count:
        raise SinkFailure(
            "a row has a header without a name: its column headers holds a null, or a struct whose key is null",
            "leave such headers out, for example with filter(headers, h -> h.key is not null)",
        )


def _timestamps(array: Any) -> TimestampColumn:
    micros = array.cast(pa.timestamp("us")) if pa.types.is_timestamp(array.type) and array.type.tz is None else array
    micros = micros.cast(pa.timestamp("us", tz="UTC")) if getattr(micros.type, "tz", None) else micros
    validity, values = micros.buffers()
    return TimestampColumn(_view(validity), memoryview(values), first=micros.offset)


def _flat(numbers: Any) -> Buffer:
    """The values of an int32 array without nulls."""
    return memoryview(numbers.buffers()[1])[4 * numbers.offset : 4 * (numbers.offset + len(numbers))]


def _view(buffer: Any) -> memoryview | None:
    return None if buffer is None else memoryview(buffer)
