"""The compiled loop's twin in Python: same columns, same records, some hundred times slower.

It serves where no C compiler was at hand when Penstock was installed, and as the oracle that the compiled loop is tested against.
Read `columns` for what it promises.
"""

from array import array
from collections.abc import Iterator, Sequence

from penstock.errors import MalformedInput
from penstock.vocabulary import Buffer
from penstock.wire.batches import BatchHeader
from penstock.wire.column_layout import (
    BYTES_MAX,
    NO_PARTITION,
    BinaryColumn,
    Columns,
    Encoded,
    HeadersColumn,
    MalformedRecords,
    RecordColumns,
    TimestampColumn,
    TimestampType,
    Wanted,
)
from penstock.wire.murmur2 import partition_of_key
from penstock.wire.record_layout import RecordSpans, Span, read_record
from penstock.wire.varints import varint
from penstock.wire.verdicts import TIMESTAMP_HIGHEST, TIMESTAMP_LOWEST

_OFFSET_HIGHEST = 2**63 - 1
_LENGTH_MAX = 2**31 - 1  # Of a record.


class ColumnsReader:
    def __init__(self, wanted: Wanted) -> None:
        self._wanted = wanted
        self._begin()

    @property
    def rows(self) -> int:
        return self._rows

    @property
    def bytes(self) -> int:
        return sum(len(column.data) for column in (self._key, self._value, self._names, self._contents))

    def has_room_for(self, payload: Buffer) -> bool:
        return self._rows == 0 or self.bytes + len(payload) <= BYTES_MAX

    def add(self, header: BatchHeader, payload: Buffer, *, first_offset: int, end_offset: int) -> int:
        if not self.has_room_for(payload):
            raise ValueError("the columns are full: take them first")
        before = self._rows
        for record in list(_walk(header, payload)):  # All of them are looked at before the first is added.
            if first_offset <= header.base_offset + record.offset_delta < end_offset:
                self._add_row(header, payload, record)
        return self._rows - before

    def take(self) -> Columns:
        wanted = self._wanted
        taken = Columns(
            rows=self._rows,
            offsets=self._offsets.tobytes() if wanted & Wanted.OFFSET else None,
            timestamps=self._timestamps.tobytes() if wanted & Wanted.TIMESTAMP else None,
            timestamp_types=self._timestamp_types.tobytes() if wanted & Wanted.TIMESTAMP_TYPE else None,
            key=self._key.column() if wanted & Wanted.KEY else None,
            value=self._value.column() if wanted & Wanted.VALUE else None,
            headers=self._headers() if wanted & Wanted.HEADERS else None,
        )
        self._begin()
        return taken

    def _begin(self) -> None:
        self._rows = 0
        self._offsets, self._timestamps, self._timestamp_types = array("q"), array("q"), array("i")
        self._key, self._value, self._names, self._contents = (_BinaryBuilder() for _ in range(4))
        self._has_headers, self._header_ends = _Bits(), array("i", [0])

    def _add_row(self, header: BatchHeader, payload: Buffer, record: RecordSpans) -> None:
        self._rows += 1
        self._offsets.append(header.base_offset + record.offset_delta)
        self._timestamps.append(_micros(_timestamp_ms(header, record)))
        self._timestamp_types.append(TimestampType.LOG_APPEND if header.uses_log_append_time else TimestampType.CREATE)
        if self._wanted & Wanted.KEY:
            self._key.append(_cut(payload, record.key))
        if self._wanted & Wanted.VALUE:
            self._value.append(_cut(payload, record.value))
        if self._wanted & Wanted.HEADERS:
            for name, content in record.headers:
                self._names.append(bytes(payload[slice(*name)]).decode(errors="replace").encode())
                self._contents.append(_cut(payload, content))
            self._header_ends.append(len(self._names))
            self._has_headers.append(bool(record.headers))

    def _headers(self) -> HeadersColumn:
        return HeadersColumn(self._has_headers.validity(), self._header_ends.tobytes(), self._names.column(), self._contents.column())


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


# In


def _walk(header: BatchHeader, payload: Buffer) -> Iterator[RecordSpans]:
    base, at, last_delta = header.base_offset, 0, -1
    if not 0 <= base <= _OFFSET_HIGHEST - max(0, header.last_offset_delta):
        raise MalformedRecords(base, 0, "its offset does not fit into 64 bits")
    if header.record_count < 0:
        raise MalformedRecords(base, 0, "the batch has a negative count of records")
    if len(payload) > BYTES_MAX:
        raise MalformedRecords(base, 0, f"the batch has more than {BYTES_MAX} bytes of records")
    for index in range(header.record_count):
        try:
            record = read_record(payload, at, len(payload))
        except MalformedInput as failure:
            raise MalformedRecords(base, index, str(failure)) from None
        if not last_delta < record.offset_delta <= header.last_offset_delta:
            raise MalformedRecords(base, index, "its offset does not ascend, or lies outside the batch")
        if not TIMESTAMP_LOWEST <= _timestamp_ms(header, record) <= TIMESTAMP_HIGHEST:
            raise MalformedRecords(base, index, "its timestamp does not fit into 64 bits")
        at, last_delta = record.end, record.offset_delta
        yield record
    if at != len(payload):
        raise MalformedRecords(base, header.record_count, "the batch is longer than its records")


def _timestamp_ms(header: BatchHeader, record: RecordSpans) -> int:
    return header.max_timestamp if header.uses_log_append_time else header.base_timestamp + record.timestamp_delta


def _micros(timestamp_ms: int) -> int:
    return min(max(timestamp_ms * 1000, TIMESTAMP_LOWEST), TIMESTAMP_HIGHEST)


def _cut(payload: Buffer, span: Span) -> bytes | None:
    return None if span[1] < 0 else bytes(payload[span[0] : span[1]])


class _Bits:
    def __init__(self) -> None:
        self._bits = bytearray()
        self._rows = self._nulls = 0

    def append(self, is_valid: bool) -> None:
        if self._rows % 8 == 0:
            self._bits.append(0)
        self._bits[-1] |= is_valid << self._rows % 8
        self._rows += 1
        self._nulls += not is_valid

    def validity(self) -> bytes | None:
        return bytes(self._bits) if self._nulls else None


class _BinaryBuilder:
    def __init__(self) -> None:
        self.data = bytearray()
        self._bits, self._ends = _Bits(), array("i", [0])

    def __len__(self) -> int:
        return len(self._ends) - 1

    def append(self, cell: bytes | None) -> None:
        self.data += cell or b""
        self._ends.append(len(self.data))
        self._bits.append(cell is not None)

    def column(self) -> BinaryColumn:
        return BinaryColumn(self._bits.validity(), self._ends.tobytes(), bytes(self.data))


# Out


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
