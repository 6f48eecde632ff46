"""The codecs of record batches, unpacked only within a bound.

A few bytes can claim to be gigabytes, so output is written into memory that we allot: it starts small, grows by factors while the codec
asks for more, and never passes `bytes_max`. Past it: `TooLarge`. Bytes that are not what the codec says: `MalformedInput`.
The codecs' own working memory is small and fixed: lz4 takes two blocks of at most 4 MiB, and zstd refuses windows past 128 MiB, of which it
touches no more than it has unpacked.

All four come from one library, cramjam, because it can write into a given buffer and stops at its end.
Snappy comes in two shapes: bare, and as chunks behind a small header (Java's xerial stream). Both are read; chunks are written, as by Java.
"""

from collections.abc import Callable
from enum import IntEnum
from struct import Struct

import cramjam

from penstock.errors import MalformedInput
from penstock.vocabulary import Buffer
from penstock.wire.varints import read_uvarint


class Codec(IntEnum):
    """By the number in a batch's attributes."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


class TooLarge(MalformedInput):
    """Unpacks to more than was allowed."""


def decompress(codec: Codec, payload: Buffer, bytes_max: int) -> bytes:
    match codec:
        case Codec.NONE:
            if len(payload) > bytes_max:
                raise _too_large(bytes_max)
            return bytes(payload)
        case Codec.SNAPPY:
            return _decompress_snappy(payload, bytes_max)
        case _:
            return _grow_and_decompress(_DECOMPRESS_INTO[codec], payload, bytes_max)


def compress(codec: Codec, payload: bytes) -> bytes:
    match codec:
        case Codec.NONE:
            return payload
        case Codec.GZIP:
            return bytes(cramjam.gzip.compress(payload))
        case Codec.SNAPPY:
            return _compress_snappy(payload)
        case Codec.LZ4:
            return _compress_lz4(payload)
        case Codec.ZSTD:
            return bytes(cramjam.zstd.compress(payload))


_DECOMPRESS_INTO: dict[Codec, Callable[[Buffer, bytearray], int]] = {
    Codec.GZIP: cramjam.gzip.decompress_into,
    Codec.LZ4: cramjam.lz4.decompress_into,
    Codec.ZSTD: cramjam.zstd.decompress_into,
}

_CAPACITY_MIN = 4096
_GROWTH = 4  # First guess and each next one: batches of text shrink to a fifth or so, and a wrong guess costs one more try.
_BUFFER_FULL = "failed to write whole buffer"  # What the library says when the output has no room left.


def _grow_and_decompress(decompress_into: Callable[[Buffer, bytearray], int], payload: Buffer, bytes_max: int) -> bytes:
    capacity = min(bytes_max, max(_CAPACITY_MIN, len(payload) * _GROWTH))
    while True:
        output = bytearray(capacity)
        try:
            size = decompress_into(payload, output)
            return bytes(memoryview(output)[:size])
        except cramjam.DecompressionError as failure:
            if _BUFFER_FULL not in str(failure):
                raise MalformedInput(f"compressed bytes do not unpack: {failure}") from None
        if capacity >= bytes_max:
            raise _too_large(bytes_max)
        capacity = min(bytes_max, capacity * _GROWTH)


_XERIAL_MAGIC = b"\x82SNAPPY\x00"
_XERIAL_HEADER = _XERIAL_MAGIC + Struct(">ii").pack(1, 1)  # Version, lowest version that can read it.
_XERIAL_CHUNK_BYTES = 32 * 1024  # As Java's writer cuts them.
_CHUNK_LENGTH = Struct(">i")
_SNAPPY_RATIO_MAX = 64  # One element of two bytes or more gives at most 64 bytes: a claim above this is a lie.


def _decompress_snappy(payload: Buffer, bytes_max: int) -> bytes:
    if bytes(payload[: len(_XERIAL_MAGIC)]) != _XERIAL_MAGIC:
        return _decompress_snappy_block(payload, bytes_max, bytes_max)
    if len(payload) < len(_XERIAL_HEADER):
        raise MalformedInput("a snappy stream is cut off inside its header")
    view, at, blocks, room = memoryview(payload), len(_XERIAL_HEADER), [], bytes_max
    while at < len(view):
        if len(view) - at < _CHUNK_LENGTH.size:
            raise MalformedInput("a snappy stream is cut off before a chunk")
        length: int = _CHUNK_LENGTH.unpack_from(view, at)[0]
        at += _CHUNK_LENGTH.size
        if not 0 < length <= len(view) - at:
            raise MalformedInput("a snappy chunk reaches past its stream")
        block = _decompress_snappy_block(view[at : at + length], room, bytes_max)
        blocks.append(block)
        room -= len(block)
        at += length
    return b"".join(blocks)


def _decompress_snappy_block(block: Buffer, room: int, bytes_max: int) -> bytes:
    size, _ = read_uvarint(block, 0, len(block))
    if size > len(block) * _SNAPPY_RATIO_MAX:
        raise MalformedInput("a snappy block claims more than it can hold")
    if size > room:
        raise _too_large(bytes_max)
    output = bytearray(size)
    try:
        written = cramjam.snappy.decompress_raw_into(block, output)
    except cramjam.DecompressionError as failure:
        raise MalformedInput(f"compressed bytes do not unpack: {failure}") from None
    return bytes(memoryview(output)[:written])


def _compress_snappy(payload: bytes) -> bytes:
    pieces = [_XERIAL_HEADER]
    view = memoryview(payload)
    for at in range(0, len(view), _XERIAL_CHUNK_BYTES):
        chunk = bytes(cramjam.snappy.compress_raw(view[at : at + _XERIAL_CHUNK_BYTES]))
        pieces += (_CHUNK_LENGTH.pack(len(chunk)), chunk)
    return b"".join(pieces)


_LZ4_FRAME_HEADER = bytes.fromhex("04224d18604082")  # Magic, independent blocks of 64 KiB without checksums, and the header's own.
_LZ4_BLOCK_BYTES = 64 * 1024
_LZ4_BLOCK_LENGTH = Struct("<I")
_LZ4_STORED_BIT = 1 << 31


def _compress_lz4(payload: bytes) -> bytes:
    """The frame by hand: the library's own has blocks that lean on each other, which Java's clients and brokers refuse."""
    pieces = [_LZ4_FRAME_HEADER]
    view = memoryview(payload)
    for at in range(0, len(view), _LZ4_BLOCK_BYTES):
        chunk = view[at : at + _LZ4_BLOCK_BYTES]
        block = bytes(cramjam.lz4.compress_block(chunk, store_size=False))
        if len(block) < len(chunk):
            pieces += (_LZ4_BLOCK_LENGTH.pack(len(block)), block)
        else:
            pieces += (_LZ4_BLOCK_LENGTH.pack(len(chunk) | _LZ4_STORED_BIT), bytes(chunk))
    pieces.append(_LZ4_BLOCK_LENGTH.pack(0))
    return b"".join(pieces)


def _too_large(bytes_max: int) -> TooLarge:
    return TooLarge(f"compressed bytes unpack to more than {bytes_max}")
