"""The compiled sieve's twin in Python: the same answers, much slower. Read `sieve` for what the functions promise.

It serves where no C compiler was at hand, and as the oracle that the compiled loop is tested against. Its keys are hashed by BLAKE2b: the
library has it, and which hash it is makes no difference to anybody outside of the table.
"""

from bisect import bisect_left
from collections.abc import Iterator
from hashlib import blake2b
from struct import Struct
from typing import NamedTuple

import crc32c as crc32c_library

from penstock.errors import MalformedInput
from penstock.vocabulary import Buffer
from penstock.wire.sieve_verdicts import SLOT_BYTES, Noted, Sifted, Stop
from penstock.wire.varints import read_varint, read_varlong, varint

_HEADER = Struct(">qiibIhiqqqhii")
_HEADER_BYTES = 61
_PREFIX_BYTES = 12
_CRC_AT, _CRC_FROM = 17, 21
_CRC = Struct(">I")
_SLOT = Struct("<16sq")  # hash, offset plus one
_SPECIAL_BITS, _TRANSACTIONAL, _HORIZON, _APPEND_TIME = 0x37, 0x10, 0x40, 0x08
_NO_TIMESTAMP = -1
_LOWEST, _HIGHEST = -(2**63), 2**63 - 1
_END = Struct(">q")


class _Record(NamedTuple):
    start: int
    end: int
    after_time: int  # Where what follows the timestamp's delta begins.
    timestamp_delta: int
    offset_delta: int
    key: bytes | None
    is_tombstone: bool


class _Rules(NamedTuple):
    table: bytearray
    seed: bytes
    map_end: int
    wall_ms: int
    horizon_ms: int


def note_keys(
    batches: Buffer, start: int, end: int, table: bytearray, *, seed: bytes, room: int, takes_transactional: bool = False
) -> Noted:
    _check_range(start, end, len(batches))
    _slots_of(table)
    at, added = start, 0
    while at < end:
        stop, size, count = _look_at_batch(batches, at, end, takes_transactional)
        if not stop and count > room - added:
            stop = Stop.FULL
        if stop:
            return Noted(at, added, stop)
        base_offset = _HEADER.unpack_from(batches, at)[0]
        try:
            for record in _records(batches, at, size, count):
                if record.key is not None:
                    added += _enter(table, _hash(record.key, seed), base_offset + record.offset_delta)
        except MalformedInput:
            return Noted(at, added, Stop.MALFORMED)
        at += size
    return Noted(at, added, Stop.END)


def grow_table(table: bytearray) -> bytearray:
    larger = bytearray(2 * len(table))
    _slots_of(larger)
    for key_hash, stored in _SLOT.iter_unpack(table):
        if stored:
            _enter(larger, key_hash, stored - 1)
    return larger


def sift_batches(
    batches: Buffer,
    start: int,
    end: int,
    table: bytearray,
    *,
    seed: bytes,
    map_end: int,
    wall_ms: int,
    horizon_ms: int,
    kept_ends: bytes,
    mark_bytes: int,
    takes_transactional: bool = False,
) -> Sifted:
    _check_range(start, end, len(batches))
    _slots_of(table)
    rules = _Rules(table, seed, map_end, wall_ms, horizon_ms)
    ends = [value for (value,) in _END.iter_unpack(kept_ends)]
    content, marks, removed, changed = bytearray(), _Marks(mark_bytes), 0, 0
    at = start
    while at < end:
        stop, size, count = _look_at_batch(batches, at, end, takes_transactional)
        if stop:
            return Sifted(at, bytes(content), marks.rows, removed, changed, stop)
        batch = bytes(batches[at : at + size])
        try:
            left, kept, max_timestamp = _sift_batch(batch, count, rules, ends)
        except MalformedInput:
            return Sifted(at, bytes(content), marks.rows, removed, changed, Stop.MALFORMED)
        removed += count - kept
        changed += left != batch
        if left:
            marks.note(_HEADER.unpack_from(left)[0], len(content), max_timestamp)
            content += left
        at += size
    return Sifted(at, bytes(content), marks.rows, removed, changed, Stop.END)


class _Marks:
    def __init__(self, mark_bytes: int) -> None:
        self.rows: list[tuple[int, int, int]] = []
        self._mark_bytes = mark_bytes
        self._next = 0

    def note(self, offset: int, position: int, max_timestamp: int) -> None:
        if position >= self._next:
            self.rows.append((offset, position, max_timestamp))
            self._next = position + self._mark_bytes
        else:
            first, begins, highest = self.rows[-1]
            self.rows[-1] = (first, begins, max(highest, max_timestamp))


def _sift_batch(batch: bytes, count: int, rules: _Rules, ends: list[int]) -> tuple[bytes, int, int]:
    """What is left of the batch, how many records that is, and the highest timestamp among them."""
    base_offset, _, _, _, _, attributes, last_delta, base_timestamp, batch_max, *_ = _HEADER.unpack_from(batch)
    drops_tombstones = bool(attributes & _HORIZON) and base_timestamp <= rules.wall_ms
    kept = [record for record in _records(batch, 0, len(batch), count) if _is_needed(record, base_offset, rules, drops_tombstones)]
    times = [base_timestamp + record.timestamp_delta for record in kept]
    if times and not _LOWEST <= min(times) <= max(times) <= _HIGHEST:
        raise MalformedInput("a timestamp is past 64 bits")
    has_tombstone = any(record.is_tombstone and base_offset + record.offset_delta < rules.map_end for record in kept)
    gets_horizon = has_tombstone and not attributes & _HORIZON and min(times) >= _LOWEST + rules.horizon_ms
    if not kept:
        last_offset, place = base_offset + last_delta, bisect_left(ends, base_offset + last_delta)
        return (_emptied(batch) if place < len(ends) and ends[place] == last_offset else b""), 0, _NO_TIMESTAMP
    if len(kept) == count and not gets_horizon:
        return batch, count, batch_max
    highest = batch_max if attributes & _APPEND_TIME else max(times)
    if gets_horizon:
        shift = base_timestamp - rules.horizon_ms
        payload = b"".join(_shifted(batch, record, record.timestamp_delta + shift) for record in kept)
        attributes, base_timestamp = attributes | _HORIZON, rules.horizon_ms
    else:
        payload = b"".join(batch[record.start : record.end] for record in kept)
    changed = _changed(batch, payload, len(kept), attributes=attributes, base_timestamp=base_timestamp, max_timestamp=highest)
    return changed, len(kept), highest


def _is_needed(record: _Record, base_offset: int, rules: _Rules, drops_tombstones: bool) -> bool:
    offset = base_offset + record.offset_delta
    if offset >= rules.map_end:
        return True
    if record.key is None or (record.is_tombstone and drops_tombstones):
        return False
    key_hash = _hash(record.key, rules.seed)
    return bool(_SLOT.unpack_from(rules.table, _find_slot(rules.table, key_hash))[1] - 1 <= offset)


def _shifted(batch: bytes, record: _Record, timestamp_delta: int) -> bytes:
    _, body_at = read_varint(batch, record.start, record.end)
    body = batch[body_at : body_at + 1] + varint(timestamp_delta) + batch[record.after_time : record.end]
    return varint(len(body)) + body


def _emptied(batch: bytes) -> bytes:
    fields = _HEADER.unpack_from(batch)
    return _changed(batch, b"", 0, attributes=fields[5] & ~_HORIZON, base_timestamp=_NO_TIMESTAMP, max_timestamp=fields[8])


def _changed(batch: bytes, payload: bytes, count: int, *, attributes: int, base_timestamp: int, max_timestamp: int) -> bytes:
    base_offset, _, epoch, magic, _, _, last_delta, _, _, producer_id, producer_epoch, sequence, _ = _HEADER.unpack_from(batch)
    changed = bytearray(_HEADER_BYTES + len(payload))
    _HEADER.pack_into(
        changed, 0, base_offset, len(changed) - _PREFIX_BYTES, epoch, magic, 0, attributes, last_delta, base_timestamp, max_timestamp,
        producer_id, producer_epoch, sequence, count,
    )  # fmt: skip
    changed[_HEADER_BYTES:] = payload
    _CRC.pack_into(changed, _CRC_AT, crc32c_library.crc32c(memoryview(changed)[_CRC_FROM:]))
    return bytes(changed)


def _look_at_batch(batches: Buffer, at: int, end: int, takes_transactional: bool) -> tuple[Stop, int, int]:
    if end - at < _HEADER_BYTES:
        return Stop.MALFORMED, 0, 0
    _, length, _, _, _, attributes, *_, count = _HEADER.unpack_from(batches, at)
    if not _HEADER_BYTES - _PREFIX_BYTES <= length <= end - at - _PREFIX_BYTES or count < 0:
        return Stop.MALFORMED, 0, 0
    specials = _SPECIAL_BITS & ~_TRANSACTIONAL if takes_transactional else _SPECIAL_BITS
    return (Stop.SPECIAL if attributes & specials else Stop.END), length + _PREFIX_BYTES, count


def _records(batches: Buffer, at: int, size: int, count: int) -> Iterator[_Record]:
    position, end = at + _HEADER_BYTES, at + size
    for _ in range(count):
        record = _read_record(batches, position, end)
        yield record
        position = record.end
    if position != end:
        raise MalformedInput("a batch is longer than its records")


def _read_record(batches: Buffer, start: int, end: int) -> _Record:
    length, at = read_varint(batches, start, end)
    if not 1 <= length <= end - at:
        raise MalformedInput("a record's length reaches past the batch")
    record_end = at + length
    timestamp_delta, after_time = read_varlong(batches, at + 1, record_end)
    offset_delta, at = read_varint(batches, after_time, record_end)
    key_length, at = read_varint(batches, at, record_end)
    if offset_delta < 0 or key_length > record_end - at:
        raise MalformedInput("a field reaches past its record")
    key = bytes(batches[at : at + key_length]) if key_length >= 0 else None
    value_length, at = read_varint(batches, at + max(0, key_length), record_end)
    if record_end - at < 1 or value_length >= record_end - at:  # After the value comes a count of headers.
        raise MalformedInput("a field reaches past its record")
    return _Record(start, record_end, after_time, timestamp_delta, offset_delta, key, value_length < 0)


def _hash(key: bytes, seed: bytes) -> bytes:
    return blake2b(key, digest_size=16, key=seed).digest()


def _enter(table: bytearray, key_hash: bytes, offset: int) -> bool:
    """Whether the key is new."""
    at = _find_slot(table, key_hash)
    stored = _SLOT.unpack_from(table, at)[1]
    if offset + 1 > stored:
        _SLOT.pack_into(table, at, key_hash, offset + 1)
    return not stored


def _find_slot(table: bytearray, key_hash: bytes) -> int:
    """Where the slot with this hash stands, or the free one where it belongs. The caller sees to it that one is free."""
    slots = len(table) // SLOT_BYTES
    place = int.from_bytes(key_hash[:8], "little") % slots
    while True:
        found, stored = _SLOT.unpack_from(table, place * SLOT_BYTES)
        if not stored or found == key_hash:
            return place * SLOT_BYTES
        place = (place + 1) % slots


def _slots_of(table: bytearray) -> int:
    slots = len(table) // SLOT_BYTES
    if not slots or slots * SLOT_BYTES != len(table) or slots & (slots - 1):
        raise ValueError("a table has a power of two slots")
    return slots


def _check_range(start: int, end: int, size: int) -> None:
    if not 0 <= start <= end <= size:
        raise ValueError("the range reaches past the buffer")
