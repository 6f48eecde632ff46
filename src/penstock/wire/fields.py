"""The small fields that messages are made of: strings, byte strings, counts, sections of tagged fields.

Each comes in two shapes: classic with a fixed-size length, compact with a variable-length one (flexible versions). A reader takes a buffer,
a position and the end of what it may read; it returns the value and the position after it, or raises `MalformedInput`.
"""

from collections.abc import Callable, Iterable, Sequence
from struct import Struct
from typing import Any

from penstock.errors import MalformedInput
from penstock.vocabulary import Buffer
from penstock.wire.varints import read_uvarint, uvarint

Reader = Callable[[Buffer, int, int], tuple[Any, int]]

SHORT = Struct(">h")
INT = Struct(">i")
LONG = Struct(">q")
ID_BYTES = 16
Endpoint = tuple[int, str, int, str | None]  # Node, host, port, rack.

ROWS_MAX = 40_000  # Of all arrays of a request together: a row for each partition of a large node, and for its topic.


class Rows:
    """Counts the rows of one message while it is read: what a few bytes each can ask for must not take the loop for seconds."""

    __slots__ = ("left",)

    def __init__(self, rows_max: int = ROWS_MAX) -> None:
        self.left = rows_max

    def count(self, rows: int) -> None:
        self.left -= rows
        if self.left < 0:
            raise MalformedInput(f"it has more than {ROWS_MAX} rows: ask in several requests")


def read_short(buffer: Buffer, at: int, end: int) -> tuple[int, int]:
    if end - at < SHORT.size:
        raise MalformedInput("a number is cut off")
    return SHORT.unpack_from(buffer, at)[0], at + SHORT.size


def read_int(buffer: Buffer, at: int, end: int) -> tuple[int, int]:
    if end - at < INT.size:
        raise MalformedInput("a number is cut off")
    return INT.unpack_from(buffer, at)[0], at + INT.size


def read_compact_length(buffer: Buffer, at: int, end: int) -> tuple[int, int]:
    """Lengths and counts are sent as one more than they are, so that zero can stand for null: here -1."""
    length, at = read_uvarint(buffer, at, end)
    return length - 1, at


def read_count(buffer: Buffer, at: int, end: int) -> tuple[int, int]:
    """How many items an array has, which is never more than there are bytes: each takes one at least."""
    count, at = read_int(buffer, at, end)
    return _believe(count, at, end), at


def read_compact_count(buffer: Buffer, at: int, end: int) -> tuple[int, int]:
    if at < end and 0 < (byte := buffer[at]) < 0x80 and byte <= end - at:  # Small and possible: nearly always, and on the hot path.
        return byte - 1, at + 1
    count, at = read_uvarint(buffer, at, end)
    return _believe(count - 1, at, end), at


def read_nullable_string(buffer: Buffer, at: int, end: int) -> tuple[str | None, int]:
    length, at = read_short(buffer, at, end)
    return (None, at) if length == -1 else _text(buffer, at, length, end)


def read_string(buffer: Buffer, at: int, end: int) -> tuple[str, int]:
    length, at = read_short(buffer, at, end)
    return _text(buffer, at, length, end)  # A null has no place here: its length, -1, cannot be.


def read_nullable_compact_string(buffer: Buffer, at: int, end: int) -> tuple[str | None, int]:
    length, at = read_compact_length(buffer, at, end)
    return (None, at) if length == -1 else _text(buffer, at, length, end)


def read_compact_string(buffer: Buffer, at: int, end: int) -> tuple[str, int]:
    length, at = read_uvarint(buffer, at, end)
    return _text(buffer, at, length - 1, end)


def read_id(buffer: Buffer, at: int, end: int) -> tuple[bytes, int]:
    if end - at < ID_BYTES:
        raise MalformedInput("an id is cut off")
    return bytes(buffer[at : at + ID_BYTES]), at + ID_BYTES


def read_tagged(buffer: Buffer, at: int, end: int, known: dict[int, tuple[str, Reader]], values: dict[str, Any]) -> int:
    """Reads a section of tagged fields into `values`, steps over unknown ones, returns the position after it."""
    count, at = read_uvarint(buffer, at, end)
    for _ in range(count):
        tag, at = read_uvarint(buffer, at, end)
        size, at = read_uvarint(buffer, at, end)
        if size > end - at:
            raise MalformedInput("a tagged field reaches past its message")
        if tag in known:
            name, reader = known[tag]
            values[name], read_to = reader(buffer, at, at + size)
            if read_to != at + size:
                raise MalformedInput("a tagged field is longer than its value")
        at += size
    return at


def skip_tagged(buffer: Buffer, at: int, end: int) -> int:
    if at < end and not buffer[at]:  # None at all: nearly always.
        return at + 1
    return read_tagged(buffer, at, end, {}, {})


def tagged(fields: Iterable[tuple[int, bytes]]) -> bytes:
    """A section of tagged fields. The protocol wants them by ascending tag, so they must come that way."""
    chosen = list(fields)
    return uvarint(len(chosen)) + b"".join(uvarint(tag) + uvarint(len(field)) + field for tag, field in chosen)


def string(text: str | None) -> bytes:
    if text is None:
        return b"\xff\xff"
    encoded = text.encode()
    return SHORT.pack(len(encoded)) + encoded


def compact_string(text: str | None) -> bytes:
    if text is None:
        return b"\0"
    encoded = text.encode()
    return uvarint(len(encoded) + 1) + encoded


def count(items: int) -> bytes:
    return INT.pack(items)


def compact_count(items: int) -> bytes:
    return uvarint(items + 1)


def shapes(flexible: bool) -> tuple[Callable[[int], bytes], Callable[[str | None], bytes], bytes]:
    """How a version writes a count and a string, and what it puts at the end of every struct: no tagged fields, or nothing."""
    return (compact_count, compact_string, b"\0") if flexible else (count, string, b"")


def int_array(numbers: Iterable[int], flexible: bool) -> bytes:
    chosen = tuple(numbers)
    front = compact_count(len(chosen)) if flexible else count(len(chosen))
    return front + b"".join(map(INT.pack, chosen))


def endpoints_section(endpoints: Sequence[Endpoint]) -> bytes:
    """The tagged fields at the end of a reply that says where leaders are to be found (KIP-951)."""
    if not endpoints:
        return b"\0"
    rows = [INT.pack(node) + compact_string(host) + INT.pack(port) + compact_string(rack) + b"\0" for node, host, port, rack in endpoints]
    return tagged([(0, compact_count(len(rows)) + b"".join(rows))])


def _believe(count: int, at: int, end: int) -> int:
    if not 0 <= count <= end - at:
        raise MalformedInput("an array has a length that cannot be")
    return count


def _text(buffer: Buffer, at: int, length: int, end: int) -> tuple[str, int]:
    if not 0 <= length <= end - at:
        raise MalformedInput("a string has a length that cannot be")
    try:
        return str(buffer[at : at + length], "utf-8"), at + length
    except UnicodeDecodeError:
        raise MalformedInput("a string is not UTF-8") from None
