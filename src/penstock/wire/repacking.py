"""Whole batches made plain and packed again: for whoever changes the records inside, as compaction does.

A plain batch has no codec, and nothing tells that it was part of a transaction: that is put back with the codec.
"""

from struct import Struct

from penstock.errors import MalformedInput
from penstock.vocabulary import Buffer
from penstock.wire.batches import HEADER_BYTES, TRANSACTIONAL_BIT, BatchHeader, decode_records, encode_record, read_header
from penstock.wire.compression import Codec, compress, decompress
from penstock.wire.records import crc32c

_LENGTH, _LENGTH_AT = Struct(">i"), 8
_CRC, _CRC_AT, _CRC_FROM = Struct(">I"), 17, 21
_ATTRIBUTES, _ATTRIBUTES_AT = Struct(">h"), 21
_PREFIX_BYTES = 12
_BASE_TIMESTAMP, _BASE_TIMESTAMP_AT = Struct(">q"), 27
_COUNT, _COUNT_AT = Struct(">i"), 57
_CODEC_BITS = 0x07
_HORIZON_BIT = 0x40
_MARKER_BYTES_MAX = 1 << 16


def unpacked(batch: Buffer, *, bytes_max: int) -> bytes:
    """The batch made plain. Raises MalformedInput."""
    header = read_header(batch)
    if header.codec > Codec.ZSTD:
        raise MalformedInput(f"no codec has the number {header.codec}")
    payload = decompress(Codec(header.codec), memoryview(batch)[HEADER_BYTES:], bytes_max)
    return _put_together(batch, header.attributes & ~(_CODEC_BITS | TRANSACTIONAL_BIT), payload)


def packed(batch: Buffer, like: BatchHeader) -> bytes:
    """A plain batch with the codec of the one that it came from, and a right checksum. One without records has none, as at Kafka."""
    header = read_header(batch)
    codec = Codec(like.codec) if header.record_count else Codec.NONE
    attributes = header.attributes | codec | like.attributes & TRANSACTIONAL_BIT
    return _put_together(batch, attributes, compress(codec, bytes(batch[HEADER_BYTES:])))


def emptied(batch: Buffer) -> bytes:
    """The batch's header without records: its producer's sequence and epoch, and its offsets, are known by it."""
    header = read_header(batch)
    changed = bytearray(batch[:HEADER_BYTES])
    _BASE_TIMESTAMP.pack_into(changed, _BASE_TIMESTAMP_AT, -1)
    _COUNT.pack_into(changed, _COUNT_AT, 0)
    return _put_together(changed, header.attributes & ~(_CODEC_BITS | _HORIZON_BIT), b"")


def with_horizon(marker: Buffer, horizon_ms: int) -> bytes:
    """A control batch of one record that says from when on it may go (KIP-534). Its record keeps its time."""
    (record,) = decode_records(marker, bytes_max=_MARKER_BYTES_MAX)
    changed = bytearray(marker[:HEADER_BYTES])
    _BASE_TIMESTAMP.pack_into(changed, _BASE_TIMESTAMP_AT, horizon_ms)
    return _put_together(changed, read_header(marker).attributes | _HORIZON_BIT, encode_record(record, 0, horizon_ms))


def _put_together(batch: Buffer, attributes: int, payload: bytes) -> bytes:
    changed = bytearray(batch[:HEADER_BYTES]) + payload
    _LENGTH.pack_into(changed, _LENGTH_AT, len(changed) - _PREFIX_BYTES)
    _ATTRIBUTES.pack_into(changed, _ATTRIBUTES_AT, attributes)
    _CRC.pack_into(changed, _CRC_AT, crc32c(changed, _CRC_FROM, len(changed)))
    return bytes(changed)
