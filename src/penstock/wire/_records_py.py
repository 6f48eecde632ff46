"""The compiled loop's twin in Python: same answers, some hundred times slower.

It serves where no C compiler was at hand when Penstock was installed, and as the oracle that the compiled loop is tested against.
Read `records` for what the functions promise.
"""

from collections.abc import Iterable, Iterator
from struct import Struct

import crc32c as crc32c_library

from penstock.errors import MalformedInput
from penstock.vocabulary import Buffer
from penstock.wire.record_layout import RecordSpans, read_record
from penstock.wire.varints import read_varint, read_varlong, varint
from penstock.wire.verdicts import (
    NO_TIMESTAMP,
    TIMESTAMP_HIGHEST,
    TIMESTAMP_LOWEST,
    RecordFault,
    RecordsVerdict,
    Scan,
    ScanFault,
)

_HEADER_BYTES = 61
_CRC_FROM = 21  # What the checksum covers begins here.
_CODEC_BITS, _CONTROL_BIT = 0x07, 0x20  # Of the attributes' second byte.
_LENGTH_MIN = _HEADER_BYTES - 12  # The length field counts what follows it.
_HEADER = Struct(">qiibIhiqqqhii")
_FRONT = Struct(">qiibIhi")  # base offset, length, leader epoch, magic, crc, attributes, last offset delta


def crc32c(buffer: Buffer, start: int, end: int) -> int:
    if not 0 <= start <= end <= len(buffer):
        raise ValueError("the range reaches past the buffer")
    return crc32c_library.crc32c(memoryview(buffer)[start:end])


def check_records(
    payload: Buffer, count: int, *, base_timestamp: int, timestamp_min: int, timestamp_max: int, keys_required: bool
) -> RecordsVerdict:
    at, payload_end = 0, len(payload)
    highest, highest_delta = NO_TIMESTAMP, -1
    if count < 0:
        return RecordsVerdict(0, RecordFault.MALFORMED, highest, highest_delta)
    for index in range(count):
        try:
            record = read_record(payload, at, payload_end)
        except MalformedInput:
            return RecordsVerdict(index, RecordFault.MALFORMED, highest, highest_delta)
        timestamp = base_timestamp + record.timestamp_delta
        fault = _judge(record, index, timestamp, (timestamp_min, timestamp_max), keys_required)
        if fault:
            return RecordsVerdict(index, fault, highest, highest_delta)
        if timestamp > highest or index == 0:
            highest, highest_delta = timestamp, index
        at = record.end
    if at != payload_end:
        return RecordsVerdict(count, RecordFault.MALFORMED, highest, highest_delta)
    return RecordsVerdict(-1, RecordFault.NONE, highest, highest_delta)


def _judge(record: RecordSpans, index: int, timestamp: int, allowed: tuple[int, int], keys_required: bool) -> RecordFault:
    if record.offset_delta != index:
        return RecordFault.OFFSET_DELTA
    if keys_required and record.key[1] < 0:
        return RecordFault.KEY_MISSING
    if not TIMESTAMP_LOWEST <= timestamp <= TIMESTAMP_HIGHEST:
        return RecordFault.TIMESTAMP
    if timestamp != NO_TIMESTAMP and not allowed[0] <= timestamp <= allowed[1]:
        return RecordFault.TIMESTAMP
    return RecordFault.NONE


def is_plain_batch(batch: Buffer, timestamp_min: int, timestamp_max: int, keys_required: bool) -> bool:
    if len(batch) < _HEADER_BYTES:
        return False
    base_offset, length, _, magic, crc, attributes, last_delta, *rest = _HEADER.unpack_from(batch)
    base_time, max_time, producer, epoch, sequence, count = rest
    if length != len(batch) - 12 or magic != 2 or base_offset or attributes or count <= 0 or last_delta != count - 1:
        return False
    if (producer >= 0 and (epoch < 0 or sequence < 0)) or crc32c(batch, _CRC_FROM, len(batch)) != crc:
        return False
    verdict = check_records(
        memoryview(batch)[_HEADER_BYTES:],
        count,
        base_timestamp=base_time,
        timestamp_min=timestamp_min,
        timestamp_max=timestamp_max,
        keys_required=keys_required,
    )
    return not verdict.fault and verdict.max_timestamp == max_time


def scan_batches(
    buffer: Buffer,
    *,
    start: int = 0,
    first_offset: int,
    end_offset_max: int,
    bytes_max: int,
    verify: bool = True,
    is_dense: bool = False,
    leader_epoch: int | None = None,
) -> Scan:
    size = len(buffer)
    if not 0 <= start <= size:
        raise ValueError("the start is outside the buffer")
    at, end_offset, batches = start, first_offset, 0
    while at < size:
        fault, length, batch_end_offset = _read_front(buffer, at, size, end_offset)
        if fault:
            return Scan(at - start, end_offset, batches, fault)
        base_offset, _, epoch, *_ = _FRONT.unpack_from(buffer, at)
        if is_dense and base_offset != end_offset:
            return Scan(at - start, end_offset, batches, ScanFault.OFFSET)
        if leader_epoch is not None and epoch != leader_epoch:
            return Scan(at - start, end_offset, batches, ScanFault.EPOCH)
        if batch_end_offset > end_offset_max or (batches and at + length - start > bytes_max):
            break
        if length > size - at:
            return Scan(at - start, end_offset, batches, ScanFault.TRUNCATED)
        if verify and _stored_crc(buffer, at) != crc32c(buffer, at + _CRC_FROM, at + length):
            return Scan(at - start, end_offset, batches, ScanFault.CRC)
        at, end_offset, batches = at + length, batch_end_offset, batches + 1
    return Scan(at - start, end_offset, batches, ScanFault.NONE)


def seek_batch(buffer: Buffer, offset: int, start: int = 0) -> int:
    at, size = start, len(buffer)
    if not 0 <= start <= size:
        raise ValueError("the start is outside the buffer")
    while at < size:
        fault, length, end_offset = _read_front(buffer, at, size, TIMESTAMP_LOWEST)
        if fault:
            return -1
        if end_offset > offset:
            return at
        at += length
    return -1


def take_pairs(batches: Buffer, at: int, offset_min: int, pairs: list[tuple[bytes, bytes | None]]) -> tuple[int, int]:
    size, end_offset = len(batches), offset_min
    if not 0 <= at <= size:
        raise ValueError("the start is outside the buffer")
    while at < size:
        fault, length, batch_end_offset = _read_front(batches, at, size, TIMESTAMP_LOWEST)
        if fault or length > size - at:
            raise MalformedInput("a batch is not whole")
        attributes = batches[at + _CRC_FROM + 1]
        if not attributes & _CONTROL_BIT:
            if attributes & _CODEC_BITS:
                break
            base_offset = int.from_bytes(batches[at : at + 8], "big", signed=True)
            for delta, key, value in _pairs_of_batch(batches, at + _HEADER_BYTES, at + length):
                if not TIMESTAMP_LOWEST <= base_offset + delta <= TIMESTAMP_HIGHEST:
                    raise MalformedInput("a record lies past the highest offset")
                if base_offset + delta >= offset_min:
                    pairs.append((key, value))
        at, end_offset = at + length, batch_end_offset
    return at, end_offset


def take_latest(batches: Buffer, at: int, offset_min: int, latest: dict[bytes, bytes | None]) -> tuple[int, int]:
    pairs: list[tuple[bytes, bytes | None]] = []
    try:
        return take_pairs(batches, at, offset_min, pairs)
    finally:
        for key, value in pairs:
            latest.pop(key, None)
            latest[key] = value


def _pairs_of_batch(batches: Buffer, at: int, end: int) -> Iterator[tuple[int, bytes, bytes | None]]:
    """(offset delta, key, value)"""
    while at < end:
        length, at = read_varint(batches, at, end)
        record_end = at + length
        if not at < record_end <= end:
            raise MalformedInput("a record reaches past its batch")
        _, at = read_varlong(batches, at + 1, record_end)  # One byte of attributes, none of them in use.
        delta, at = read_varint(batches, at, record_end)
        key, at = _read_field(batches, at, record_end)
        if key is None:
            raise MalformedInput("a keyed record has no key")
        value, at = _read_field(batches, at, record_end)
        yield delta, key, value
        at = record_end


def _read_field(batches: Buffer, at: int, end: int) -> tuple[bytes | None, int]:
    length, at = read_varint(batches, at, end)
    if length == -1:
        return None, at
    if not 0 <= length <= end - at:
        raise MalformedInput("a field reaches past its record")
    return bytes(batches[at : at + length]), at + length


def build_batch(rows: Iterable[tuple[bytes | None, bytes | None, tuple[tuple[str, bytes | None], ...]]], timestamp_ms: int) -> bytearray:
    records = [_record(delta, *row) for delta, row in enumerate(rows)]
    if not records:
        raise ValueError("a batch has at least one record")
    count, payload = len(records), b"".join(records)
    header = _HEADER.pack(0, _LENGTH_MIN + len(payload), -1, 2, 0, 0, count - 1, timestamp_ms, timestamp_ms, -1, -1, -1, count)
    batch = bytearray(header + payload)
    batch[17:_CRC_FROM] = crc32c(batch, _CRC_FROM, len(batch)).to_bytes(4, "big")
    return batch


def _record(delta: int, key: bytes | None, value: bytes | None, headers: tuple[tuple[str, bytes | None], ...]) -> bytes:
    fields = [b"\0\0", varint(delta), _field(key), _field(value), varint(len(headers))]
    for name, content in headers:
        fields += (_field(name.encode()), _field(content))
    body = b"".join(fields)
    return varint(len(body)) + body


def _field(content: bytes | None) -> bytes:
    return b"\x01" if content is None else varint(len(content)) + content


def _read_front(buffer: Buffer, at: int, size: int, offset_min: int) -> tuple[ScanFault, int, int]:
    """Fault, whole length and end offset of the batch at `at`; its body may lie past the buffer."""
    if size - at < _HEADER_BYTES:
        return ScanFault.TRUNCATED, 0, 0
    base_offset, length, _, magic, _, _, last_delta = _FRONT.unpack_from(buffer, at)
    if length < _LENGTH_MIN:
        return ScanFault.LENGTH, 0, 0
    if magic != 2:
        return ScanFault.MAGIC, 0, 0
    end_offset = base_offset + last_delta + 1
    if base_offset < offset_min or last_delta < 0 or end_offset > TIMESTAMP_HIGHEST:
        return ScanFault.OFFSET, 0, 0
    return ScanFault.NONE, length + 12, end_offset


def _stored_crc(buffer: Buffer, at: int) -> int:
    return int.from_bytes(buffer[at + 17 : at + _CRC_FROM], "big")
