"""Pages of a timetable: entries of one bucket, packed, written once and read once. And the port behind which they lie.

Pages are caches. What they hold follows from the logs, so a page may be lost, and is never needed by anybody but the state that has put it
there: a state that is loaded again puts its own. Whoever keeps them (a node's disk, or memory) may take its time to bring one back, and
sees to it that what it brings back is what it was given.
"""

import struct
import sys
from array import array
from typing import NamedTuple, Protocol

PAGE_BYTES = 64 << 10  # About; a page is a piece of a checkpoint, and is made or opened in a few milliseconds.
ENTRY_BYTES = 16

_HEAD = struct.Struct("<qqII")  # width of the bucket, its number, how many entries, how many of them with options
_OPTIONS = struct.Struct("<qH")  # offset, bytes; then the options


class Content(NamedTuple):
    width_ms: int
    number: int  # Of the bucket, among those of its width.
    pairs: "array[int]"  # (when, offset) of each.
    options: dict[int, bytes]  # By offset, of those that have any.


class PageStore(Protocol):
    def put(self, name: str, content: bytes) -> object:
        """Where it lies from now on. It never refuses. Pages of one name go about at the same time."""

    def get(self, place: object) -> bytes | None:
        """None: it is not at hand, and is being fetched; ask again a little later."""

    def drop(self, place: object) -> None:
        """Nobody will ask for it again."""


class MemoryPages:
    """In memory: a page is its own place."""

    def put(self, name: str, content: bytes) -> object:
        return content

    def get(self, place: object) -> bytes | None:
        assert isinstance(place, bytes)
        return place

    def drop(self, place: object) -> None:
        pass


def size_of(options: bytes) -> int:
    """What one entry takes in a page."""
    return ENTRY_BYTES + (_OPTIONS.size + len(options) if options else 0)


def pack(width_ms: int, number: int, pairs: "array[int]", options: dict[int, bytes]) -> bytes:
    pieces = [_HEAD.pack(width_ms, number, len(pairs) // 2, len(options)), _little_endian(pairs).tobytes()]
    for offset, each in options.items():
        pieces += (_OPTIONS.pack(offset, len(each)), each)
    return b"".join(pieces)


def unpack_pairs(content: bytes) -> Content:
    """Without the options. Raises ValueError or struct.error where it is no whole page."""
    width_ms, number, count, _ = _HEAD.unpack_from(content)
    pairs = array("q", content[_HEAD.size : _HEAD.size + ENTRY_BYTES * count])
    if len(pairs) != 2 * count or not count:
        raise ValueError("a page of delays is cut off")
    return Content(width_ms, number, _little_endian(pairs), {})


def unpack(content: bytes) -> Content:
    found = unpack_pairs(content)
    at, options = _HEAD.size + ENTRY_BYTES * (len(found.pairs) // 2), found.options
    for _ in range(_HEAD.unpack_from(content)[-1]):
        offset, size = _OPTIONS.unpack_from(content, at)
        at += _OPTIONS.size + size
        options[offset] = content[at - size : at]
    if at != len(content):
        raise ValueError(f"a page of delays has {len(content)} bytes instead of {at}")
    return found


def _little_endian(pairs: "array[int]") -> "array[int]":
    if sys.byteorder == "big":
        pairs = pairs[:]
        pairs.byteswap()
    return pairs
