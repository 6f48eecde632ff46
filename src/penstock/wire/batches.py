"""Record batches, format 2: the header read and stamped in place, whole batches built and taken apart.

The broker stores batches as they came. It reads the 61 bytes of header, checks the checksum, and writes two fields that the checksum does
not cover (base offset, leader epoch). Only append time changes covered bytes and so the checksum.
Building and decoding whole batches is for clients, tools and our own logs, not for the produce path.
Messages of format 0 and 1 are recognised by `read_magic` (the byte is at the same place in all formats) and not read further.
"""

from collections.abc import Iterable, Iterator
from operator import attrgetter
from struct import Struct, error
from typing import NamedTuple

from penstock.errors import MalformedInput
from penstock.vocabulary import Buffer
from penstock.wire.compression import Codec, compress, decompress
from penstock.wire.record_layout import Span, read_record
from penstock.wire.records import crc32c
from penstock.wire.varints import varint

HEADER_BYTES = 61
MAGIC = 2
TRANSACTIONAL_BIT = 0x10  # Of a batch's attributes.
CONTROL_BIT = 0x20

_HEADER = Struct(">qiibIhiqqqhii")
_MAGIC_AT = 16
_CRC_AT = 17
_CRC_FROM = 21  # The checksum covers everything from here to the end.
_PREFIX_BYTES = 12  # Base offset and length: not counted by the length.

_CODEC_BITS = 0x07
_APPEND_TIME_BIT = 0x08
_HORIZON_BIT = 0x40  # The base timestamp is a delete horizon; records count their time from it all the same.

_OFFSET = Struct(">q")
_EPOCH = Struct(">i")
_CRC = Struct(">I")
_ATTRIBUTES = Struct(">h")
_TIMESTAMP = Struct(">q")
_EPOCH_AT = 12
_ATTRIBUTES_AT = 21
_MAX_TIMESTAMP_AT = 35


class BatchHeader(NamedTuple):
    base_offset: int
    batch_length: int  # Bytes after this field; `size` is the whole.
    leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int

    @property
    def size(self) -> int:
        return self.batch_length + _PREFIX_BYTES

    @property
    def last_offset(self) -> int:
        return self.base_offset + self.last_offset_delta

    @property
    def end_offset(self) -> int:
        return self.base_offset + self.last_offset_delta + 1

    @property
    def newest_timestamp(self) -> int:
        """The highest timestamp of a record that is in it: a batch that compaction has emptied keeps its header, but has none."""
        return self.max_timestamp if self.record_count else -1

    @property
    def codec(self) -> int:
        """0 to 7: not every value is a `Codec`."""
        return self.attributes & _CODEC_BITS

    @property
    def uses_log_append_time(self) -> bool:
        return bool(self.attributes & _APPEND_TIME_BIT)

    @property
    def is_transactional(self) -> bool:
        return bool(self.attributes & TRANSACTIONAL_BIT)

    @property
    def is_control(self) -> bool:
        return bool(self.attributes & CONTROL_BIT)

    @property
    def delete_horizon_ms(self) -> int | None:
        """From when on compaction may take the batch's tombstones (KIP-534); None while none is set."""
        return self.base_timestamp if self.attributes & _HORIZON_BIT else None


class Record(NamedTuple):
    key: bytes | None = None
    value: bytes | None = None
    headers: tuple[tuple[str, bytes | None], ...] = ()
    timestamp_ms: int = -1
    offset: int = -1  # Set when decoded; a batch that is built numbers its records itself.


def read_magic(buffer: Buffer, at: int = 0) -> int:
    """The format of the batch or message at `at`: 2 is ours, 0 and 1 are from before Kafka 0.11."""
    if not 0 <= at < len(buffer) - _MAGIC_AT:
        raise MalformedInput("a batch is cut off before its format")
    return buffer[at + _MAGIC_AT]


_new_header = tuple.__new__  # Half the cost of calling the class, on the path of every produced batch.


def read_header(buffer: Buffer, at: int = 0) -> BatchHeader:
    """Reads what is there; whether the fields make sense is for the caller to say."""
    try:
        return _new_header(BatchHeader, _HEADER.unpack_from(buffer, at))
    except error:
        raise MalformedInput("a batch is cut off inside its header") from None


def crc_is_right(buffer: Buffer, at: int, size: int) -> bool:
    """Whether the `size` bytes from `at` are what their producer checksummed."""
    if size < HEADER_BYTES or at < 0 or at + size > len(buffer):
        return False
    stored: int = _CRC.unpack_from(buffer, at + _CRC_AT)[0]
    return crc32c(buffer, at + _CRC_FROM, at + size) == stored


def stamp(batch: bytearray | memoryview, base_offset: int, leader_epoch: int) -> None:
    """Says where the batch lies. Neither field is covered by the checksum."""
    _OFFSET.pack_into(batch, 0, base_offset)
    _EPOCH.pack_into(batch, _EPOCH_AT, leader_epoch)


def stamp_append_time(batch: bytearray | memoryview, wall_ms: int) -> None:
    """Gives every record the time of its append: readers take the batch's highest timestamp when the bit is set."""
    attributes: int = _ATTRIBUTES.unpack_from(batch, _ATTRIBUTES_AT)[0]
    _ATTRIBUTES.pack_into(batch, _ATTRIBUTES_AT, attributes | _APPEND_TIME_BIT)
    set_max_timestamp(batch, wall_ms)


def set_max_timestamp(batch: bytearray | memoryview, timestamp_ms: int) -> None:
    """Corrects the header's highest timestamp, and the checksum after it."""
    _TIMESTAMP.pack_into(batch, _MAX_TIMESTAMP_AT, timestamp_ms)
    _CRC.pack_into(batch, _CRC_AT, crc32c(batch, _CRC_FROM, len(batch)))


def encode_batch(
    records: Iterable[Record],
    *,
    base_offset: int = 0,
    leader_epoch: int = -1,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
    codec: int = Codec.NONE,
    is_transactional: bool = False,
    is_control: bool = False,
) -> bytearray:
    """Builds one batch, offsets dense from `base_offset`. The first record's timestamp is the base that the others differ from."""
    chosen = list(records)
    if not chosen:
        raise ValueError("a batch has at least one record")
    base_timestamp = chosen[0].timestamp_ms
    return wrap_records(
        b"".join(encode_record(record, delta, base_timestamp) for delta, record in enumerate(chosen)),
        record_count=len(chosen),
        base_timestamp_ms=base_timestamp,
        max_timestamp_ms=max(map(attrgetter("timestamp_ms"), chosen)),
        base_offset=base_offset,
        leader_epoch=leader_epoch,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
        codec=codec,
        is_transactional=is_transactional,
        is_control=is_control,
    )


def wrap_records(
    payload: bytes,
    *,
    record_count: int,
    base_timestamp_ms: int,
    max_timestamp_ms: int,
    base_offset: int = 0,
    leader_epoch: int = -1,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
    codec: int = Codec.NONE,
    is_transactional: bool = False,
    is_control: bool = False,
) -> bytearray:
    """Makes a batch of records that are encoded already, one after the other, their offset deltas dense from 0."""
    packed = compress(Codec(codec), payload)
    attributes = codec | (TRANSACTIONAL_BIT if is_transactional else 0) | (CONTROL_BIT if is_control else 0)
    batch = bytearray(HEADER_BYTES + len(packed))
    _HEADER.pack_into(
        batch,
        0,
        base_offset,
        len(batch) - _PREFIX_BYTES,
        leader_epoch,
        MAGIC,
        0,
        attributes,
        record_count - 1,
        base_timestamp_ms,
        max_timestamp_ms,
        producer_id,
        producer_epoch,
        base_sequence,
        record_count,
    )
    batch[HEADER_BYTES:] = packed
    _CRC.pack_into(batch, _CRC_AT, crc32c(batch, _CRC_FROM, len(batch)))
    return batch


def empty_batch(base_offset: int, end_offset: int, leader_epoch: int) -> bytearray:
    """A batch without records that stands for offsets whose records are gone, as compaction leaves them behind too."""
    batch = bytearray(HEADER_BYTES)
    length, last_delta = HEADER_BYTES - _PREFIX_BYTES, end_offset - base_offset - 1
    _HEADER.pack_into(batch, 0, base_offset, length, leader_epoch, MAGIC, 0, 0, last_delta, -1, -1, -1, -1, -1, 0)
    _CRC.pack_into(batch, _CRC_AT, crc32c(batch, _CRC_FROM, len(batch)))
    return batch


def decode_records(batch: Buffer, *, bytes_max: int) -> list[Record]:
    """The records of one whole batch, unpacked to at most `bytes_max`. Does not check the checksum."""
    return list(iterate_records(*unpack_batch(batch, bytes_max=bytes_max)))


def unpack_batch(batch: Buffer, *, bytes_max: int) -> tuple[BatchHeader, bytes]:
    """The header of one whole batch, and its records without their compression."""
    header = read_header(batch)
    if header.magic != MAGIC or header.size != len(batch):
        raise MalformedInput("not one whole batch of format 2")
    if header.codec > Codec.ZSTD:
        raise MalformedInput(f"no codec has the number {header.codec}")
    payload = decompress(Codec(header.codec), memoryview(batch)[HEADER_BYTES:], bytes_max)
    if not 0 <= header.record_count <= len(payload):
        raise MalformedInput("a batch claims more records than it has bytes")
    return header, payload


def iterate_records(header: BatchHeader, payload: bytes) -> Iterator[Record]:
    at = 0
    for _ in range(header.record_count):
        record, at = _decode_record(payload, at, header)
        yield record
    if at != len(payload):
        raise MalformedInput("a batch is longer than its records")


def encode_record(record: Record, delta: int, base_timestamp: int) -> bytes:
    fields = [b"\0", varint(record.timestamp_ms - base_timestamp), varint(delta), _nullable(record.key), _nullable(record.value)]
    fields.append(varint(len(record.headers)))
    for name, content in record.headers:
        fields += (_nullable(name.encode()), _nullable(content))
    body = b"".join(fields)
    return varint(len(body)) + body


def _nullable(field: bytes | None) -> bytes:
    return b"\x01" if field is None else varint(len(field)) + field


def _decode_record(payload: bytes, at: int, header: BatchHeader) -> tuple[Record, int]:
    spans = read_record(payload, at, len(payload))
    timestamp_ms = header.max_timestamp if header.uses_log_append_time else header.base_timestamp + spans.timestamp_delta
    # Names that are not UTF-8 are shown as Java's clients show them: a header must not make its record unreadable.
    headers = tuple((payload[slice(*name)].decode(errors="replace"), _cut(payload, content)) for name, content in spans.headers)
    return (
        Record(_cut(payload, spans.key), _cut(payload, spans.value), headers, timestamp_ms, header.base_offset + spans.offset_delta),
        spans.end,
    )


def _cut(payload: bytes, span: Span) -> bytes | None:
    return None if span[1] < 0 else payload[span[0] : span[1]]
