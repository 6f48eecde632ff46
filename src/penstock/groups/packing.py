"""How the fields of a group's records are packed: numbers big-endian, texts and bytes behind their length.

A value is read once, from front to back. Bytes that were never written by the records' `encode` raise one of `NOT_A_RECORD`.
"""

import struct

from penstock.cluster.records import UnknownRecord

SHORT = struct.Struct(">h")
INT = struct.Struct(">i")
LENGTH = struct.Struct(">I")
LONG = struct.Struct(">q")
NOT_A_RECORD = (struct.error, UnicodeDecodeError)

_NULL = 0xFFFF_FFFF


def text(content: str | None) -> bytes:
    return LENGTH.pack(_NULL) if content is None else blob(content.encode())


def blob(piece: bytes) -> bytes:
    return LENGTH.pack(len(piece)) + piece


def unknown_form(what: str, number: int) -> UnknownRecord:
    return UnknownRecord(f"group record with a {what} of form {number}: start a newer Penstock on this data directory")


class Reader:
    """Walks a value; past its end it raises struct.error."""

    __slots__ = ("_at", "_buffer")

    def __init__(self, buffer: bytes, at: int) -> None:
        self._buffer = buffer
        self._at = at

    def number(self, form: struct.Struct) -> int:
        found: int = form.unpack_from(self._buffer, self._at)[0]
        self._at += form.size
        return found

    def blob(self) -> bytes:
        return self.take(self.number(LENGTH))

    def text(self) -> str:
        return str(self.blob(), "utf-8")

    def optional_text(self) -> str | None:
        size = self.number(LENGTH)
        return None if size == _NULL else str(self.take(size), "utf-8")

    def take(self, size: int) -> bytes:
        end = self._at + size
        if end > len(self._buffer):
            raise struct.error(f"{size} bytes announced, {len(self._buffer) - self._at} there")
        piece = self._buffer[self._at : end]
        self._at = end
        return piece
