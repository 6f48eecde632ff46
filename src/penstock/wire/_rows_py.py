"""The compiled loop's twin in Python, from columns to records: same bytes, some hundred times slower. See `_columns_py`."""

from array import array
from collections.abc import Sequence

from penstock.errors import MalformedInput
from penstock.vocabulary import Buffer
from penstock.wire.column_layout import NO_PARTITION, BinaryColumn, Encoded, HeadersColumn, RecordColumns, TimestampColumn
from penstock.wire.murmur2 import partition_of_key
from penstock.wire.varints import varint

_LENGTH_MAX = 2**31 - 1  # Of a record.
_WALL_MS_MAX = 2**62  # So that the distance to any other timestamp fits into 64 bits.


def partition_rows(key: BinaryColumn, rows: int, partition_count: int, selection: Buffer | None = None) -> bytes:
    _check_partition_count(partition_count)
    cells, partitions = _Cells(key, "key"), array("i")
    for row in _selected(rows, selection):
        cell = cells.at(row, row)
        partitions.append(NO_PARTITION if cell is None else partition_of_key(cell, partition_count))
    return partitions.tobytes()


def rows_by_partition(partitions: Buffer, partition_count: int, selection: Buffer | None = None) -> list[memoryview]:
    _check_partition_count(partition_count)
    chosen = _numbers(partitions)
    rows = range(len(chosen)) if selection is None else _numbers(selection)
    if len(rows) != len(chosen):
        raise ValueError("there must be a partition for each selected row")
    found = [array("i") for _ in range(partition_count)]
    for row, partition in zip(rows, chosen, strict=True):
        if not 0 <= partition < partition_count:
            raise MalformedInput(f"row {row}: there is no partition {partition}, only 0 to {partition_count - 1}")
        found[partition].append(row)
    return [memoryview(one) for one in found]


def encode_records(
    columns: RecordColumns, selection: Buffer | None = None, *, start: int = 0, bytes_max: int, wall_ms: int
) -> Encoded:
    rows = _selected(columns.rows, selection)
    if not 0 <= start < len(rows):
        raise ValueError("there is no row to encode")
    if not -1 <= wall_ms <= _WALL_MS_MAX:
        raise ValueError("the wall clock cannot show that")
    cells = _RowCells(columns, wall_ms)
    base_timestamp = max_timestamp = cells.timestamp_ms(rows[start])
    payload, count = bytearray(), 0
    for row in rows[start:]:
        timestamp = cells.timestamp_ms(row)
        record = cells.record(row, count, timestamp - base_timestamp)
        if count and len(payload) + len(record) > bytes_max:
            break
        payload += record
        count += 1
        max_timestamp = max(max_timestamp, timestamp)
    return Encoded(bytes(payload), count, base_timestamp, max_timestamp)


class _RowCells:
    """The cells of a row, in every column, as a record has them."""

    def __init__(self, columns: RecordColumns, wall_ms: int) -> None:
        self._key = None if columns.key is None else _Cells(columns.key, "key")
        self._value = None if columns.value is None else _Cells(columns.value, "value")
        self._headers = None if columns.headers is None else _HeaderCells(columns.headers)
        self._timestamps = columns.timestamps
        self._wall_ms = wall_ms

    def timestamp_ms(self, row: int) -> int:
        column = self._timestamps
        if column is None or not _is_valid(column, row, "timestamp", row):
            return self._wall_ms
        values = memoryview(column.values).cast("B")
        at = 8 * (column.first + row)
        if not 0 <= at <= len(values) - 8:
            raise _contradiction(row, "timestamp")
        micros: int = array("q", bytes(values[at : at + 8]))[0]
        return micros // 1000

    def record(self, row: int, delta: int, timestamp_delta: int) -> bytes:
        key = None if self._key is None else self._key.at(row, row)
        value = None if self._value is None else self._value.at(row, row)
        headers = [] if self._headers is None else self._headers.at(row)
        fields = [b"\0", varint(timestamp_delta), varint(delta), _nullable(key), _nullable(value), varint(len(headers))]
        for name, content in headers:
            fields += (_nullable(name), _nullable(content))
        body = b"".join(fields)
        if len(body) > _LENGTH_MAX:
            raise MalformedInput(f"row {row}: it is too long for a record")
        return varint(len(body)) + body


class _Cells:
    def __init__(self, column: BinaryColumn, name: str) -> None:
        self._column = column
        self._name = name
        self._offsets, self._data = _numbers(column.offsets), memoryview(column.data)

    def at(self, index: int, row: int) -> bytes | None:
        """The cell at `index`, which is part of the row."""
        if not _is_valid(self._column, index, self._name, row):
            return None
        start, end = _range_at(self._offsets, self._column.first + index, len(self._data), self._name, row)
        return bytes(self._data[start:end])


class _HeaderCells:
    def __init__(self, column: HeadersColumn) -> None:
        self._column = column
        self._offsets = _numbers(column.offsets)
        self._names, self._contents = _Cells(column.names, "headers"), _Cells(column.contents, "headers")

    def at(self, row: int) -> list[tuple[bytes, bytes | None]]:
        if not _is_valid(self._column, row, "headers", row):
            return []
        start, end = _range_at(self._offsets, self._column.first + row, _LENGTH_MAX, "headers", row)
        headers = []
        for index in range(start, end):
            name = self._names.at(index, row)
            if name is None:
                raise MalformedInput(f"row {row}: a header has no name")
            headers.append((name, self._contents.at(index, row)))
        return headers


def _selected(rows: int, selection: Buffer | None) -> Sequence[int]:
    if selection is None:
        return range(rows)
    chosen = _numbers(selection)
    for row in chosen:
        if not 0 <= row < rows:
            raise MalformedInput(f"row {row} was selected, but there are only {rows}")
    return chosen


def _numbers(buffer: Buffer) -> Sequence[int]:
    flat = memoryview(buffer).cast("B")
    return array("i", bytes(flat[: len(flat) & ~3]))


def _is_valid(column: BinaryColumn | HeadersColumn | TimestampColumn, index: int, name: str, row: int) -> bool:
    at = column.first + index
    if column.validity is None:
        return True
    if not 0 <= at < 8 * len(column.validity):
        raise _contradiction(row, name)
    return bool(memoryview(column.validity).cast("B")[at >> 3] >> (at & 7) & 1)


def _range_at(offsets: Sequence[int], at: int, end_max: int, name: str, row: int) -> tuple[int, int]:
    if not 0 <= at < len(offsets) - 1 or not 0 <= offsets[at] <= offsets[at + 1] <= end_max:
        raise _contradiction(row, name)
    return offsets[at], offsets[at + 1]


def _contradiction(row: int, name: str) -> MalformedInput:
    return MalformedInput(f"row {row}: the column of its {name} contradicts itself")


def _nullable(cell: bytes | None) -> bytes:
    return b"\x01" if cell is None else varint(len(cell)) + cell


def _check_partition_count(partition_count: int) -> None:
    if not 0 < partition_count <= _LENGTH_MAX:
        raise ValueError("a topic has at least one partition")
