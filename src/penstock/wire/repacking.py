"""Whole compressed batches made plain and packed again: for whoever changes the records inside, as compaction does."""

from struct import Struct

from penstock.errors import MalformedInput
from penstock.vocabulary import Buffer
from penstock.wire.batches import HEADER_BYTES, read_header
from penstock.wire.compression import Codec, compress, decompress
from penstock.wire.records import crc32c

_LENGTH, _LENGTH_AT = Struct(">i"), 8
_CRC, _CRC_AT, _CRC_FROM = Struct(">I"), 17, 21
_ATTRIBUTES, _ATTRIBUTES_AT = Struct(">h"), 21
_PREFIX_BYTES = 12
_CODEC_BITS = 0x07


def unpacked(batch: Buffer, *, bytes_max: int) -> bytes:
    """The batch without its codec. Raises MalformedInput."""
    header = read_header(batch)
    if header.codec > Codec.ZSTD:
        raise MalformedInput(f"no codec has the number {header.codec}")
    payload = decompress(Codec(header.codec), memoryview(batch)[HEADER_BYTES:], bytes_max)
    return _put_together(batch, header.attributes & ~_CODEC_BITS, payload)


def packed(batch: Buffer, codec: int) -> bytes:
    """A plain batch with the codec applied, and a right checksum. One without records stays plain, as Kafka leaves it."""
    header = read_header(batch)
    if not header.record_count:
        return bytes(batch)
    return _put_together(batch, header.attributes | codec, compress(Codec(codec), bytes(batch[HEADER_BYTES:])))


def _put_together(batch: Buffer, attributes: int, payload: bytes) -> bytes:
    changed = bytearray(batch[:HEADER_BYTES]) + payload
    _LENGTH.pack_into(changed, _LENGTH_AT, len(changed) - _PREFIX_BYTES)
    _ATTRIBUTES.pack_into(changed, _ATTRIBUTES_AT, attributes)
    _CRC.pack_into(changed, _CRC_AT, crc32c(changed, _CRC_FROM, len(changed)))
    return bytes(changed)
