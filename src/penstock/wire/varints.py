"""Kafka's variable-length integers.

Seven bits a byte, lowest first. Unsigned ones stand before compact strings and arrays; signed ones (zig-zag) are used inside records.
A reader takes at most five bytes for 32 bits and ten for 64, and refuses bits beyond: two readers must never see two values.
Longer encodings than needed are legal, as they are for Kafka.
"""

from penstock.errors import MalformedInput
from penstock.vocabulary import Buffer

_ONE_BYTE = [bytes([value]) for value in range(0x80)]


def uvarint(value: int) -> bytes:
    if value < 0x80:
        return _ONE_BYTE[value]
    if value < 0x4000:
        return bytes((value & 0x7F | 0x80, value >> 7))
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def varint(value: int) -> bytes:
    """Signed, zig-zag; for 32 and 64 bits alike."""
    return uvarint(value << 1 if value >= 0 else (-value << 1) - 1)


def read_uvarint(buffer: Buffer, at: int, end: int) -> tuple[int, int]:
    """Reads at most 32 bits from `buffer[at:end]`; returns the value and the position after it."""
    if at < end and (byte := buffer[at]) < 0x80:
        return byte, at + 1
    return _read_bits(buffer, at, end, 28, 0x0F)


def read_varint(buffer: Buffer, at: int, end: int) -> tuple[int, int]:
    bits, at = _read_bits(buffer, at, end, 28, 0x0F)
    return (bits >> 1) ^ -(bits & 1), at


def read_varlong(buffer: Buffer, at: int, end: int) -> tuple[int, int]:
    bits, at = _read_bits(buffer, at, end, 63, 0x01)
    return (bits >> 1) ^ -(bits & 1), at


def _read_bits(buffer: Buffer, at: int, end: int, last_shift: int, last_byte_max: int) -> tuple[int, int]:
    value = shift = 0
    while at < end:
        byte = buffer[at]
        at += 1
        if shift == last_shift and byte > last_byte_max:
            raise MalformedInput("a variable-length integer is too long")
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7
    raise MalformedInput("a variable-length integer is cut off")
