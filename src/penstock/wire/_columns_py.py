"""The compiled loop's twin in Python: same columns, some hundred times slower.

It serves where no C compiler was at hand when Penstock was installed, and as the oracle that the compiled loop is tested against.
Read `columns` for what it promises.
"""

from array import array
from collections.abc import Iterator

from penstock.errors import MalformedInput
from penstock.vocabulary import Buffer
from penstock.wire.batches import BatchHeader
from penstock.wire.column_layout import (
    BATCH_TOO_LARGE,
    BYTES_MAX,
    COUNT_NEGATIVE,
    FULL,
    LEFT_OVER,
    OFFSET_ASTRAY,
    OFFSETS_TOO_HIGH,
    TIMESTAMP_TOO_FAR,
    BinaryColumn,
    Columns,
    HeadersColumn,
    MalformedRecords,
    TimestampType,
    Wanted,
)
from penstock.wire.record_layout import RecordSpans, Span, read_record
from penstock.wire.verdicts import TIMESTAMP_HIGHEST, TIMESTAMP_LOWEST

_OFFSET_HIGHEST = 2**63 - 1


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
            raise ValueError(FULL)
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


def _walk(header: BatchHeader, payload: Buffer) -> Iterator[RecordSpans]:
    base, at, last_delta = header.base_offset, 0, -1
    if not 0 <= base <= _OFFSET_HIGHEST - 1 - max(0, header.last_offset_delta):
        raise MalformedRecords(base, 0, OFFSETS_TOO_HIGH)
    if header.record_count < 0:
        raise MalformedRecords(base, 0, COUNT_NEGATIVE)
    if len(payload) > BYTES_MAX:
        raise MalformedRecords(base, 0, BATCH_TOO_LARGE)
    for index in range(header.record_count):
        try:
            record = read_record(payload, at, len(payload))
        except MalformedInput as failure:
            raise MalformedRecords(base, index, str(failure)) from None
        if not last_delta < record.offset_delta <= header.last_offset_delta:
            raise MalformedRecords(base, index, OFFSET_ASTRAY)
        if not TIMESTAMP_LOWEST <= _timestamp_ms(header, record) <= TIMESTAMP_HIGHEST:
            raise MalformedRecords(base, index, TIMESTAMP_TOO_FAR)
        at, last_delta = record.end, record.offset_delta
        yield record
    if at != len(payload):
        raise MalformedRecords(base, header.record_count, LEFT_OVER)


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
