"""Frozen dataclasses as JSON, and back by the types of their fields.

A dataclass becomes an object, a named tuple a plain list (thousands may stand in one record), bytes become hex, an enum its number.
What is read gets its types from the annotations, so a new record or command needs no code here; a field that is missing takes its default.
Before the JSON stand two big-endian int16: kind and version. A kind or version that isn't known is told as such, never guessed at.
"""

import json
import struct
import types
from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass
from enum import Enum
from functools import cache
from typing import Any, Generic, NewType, TypeVar, Union, get_args, get_origin, get_type_hints

from penstock.errors import MalformedInput

T = TypeVar("T")
Read = Callable[[Any], Any]

_KIND_AND_VERSION = struct.Struct(">hh")


class UnknownKind(Exception):
    def __init__(self, number: int, version: int) -> None:
        super().__init__(f"kind {number}, version {version}")


class Codec(Generic[T]):
    def __init__(self, kinds: Mapping[int, tuple[type[Any], int]]) -> None:
        """`kinds`: number -> (class, newest version that this node writes and reads)."""
        self._kinds = kinds
        self._number_of = {kind: number for number, (kind, _) in kinds.items()}
        self._readers = {number: _object_reader(kind) for number, (kind, _) in kinds.items()}

    def encode(self, value: T) -> bytes:
        number = self._number_of[type(value)]
        return _KIND_AND_VERSION.pack(number, self._kinds[number][1]) + json.dumps(value, default=_plain, separators=(",", ":")).encode()

    def decode(self, payload: bytes) -> T:
        """Raises UnknownKind, or MalformedInput where the bytes are not what they claim to be."""
        if len(payload) < _KIND_AND_VERSION.size:
            raise MalformedInput("a kind and a version are missing")
        number, version = _KIND_AND_VERSION.unpack_from(payload)
        kind, newest = self._kinds.get(number, (None, 0))
        if kind is None or version > newest:
            raise UnknownKind(number, version)
        try:
            return self._readers[number](json.loads(payload[_KIND_AND_VERSION.size :]))  # type: ignore[no-any-return]
        except (ValueError, TypeError, KeyError, AttributeError) as wrong:
            raise MalformedInput(f"not a {kind.__name__}: {wrong}") from wrong


def _plain(value: Any) -> Any:
    """What JSON doesn't know by itself; the rest never leaves its compiled writer, thousands of rows in one record among it."""
    if isinstance(value, bytes):
        return value.hex()
    if is_dataclass(value):
        return {each.name: getattr(value, each.name) for each in fields(value)}
    raise TypeError(f"a {type(value).__name__} has no place in a record")


@cache
def _reader(kind: Any) -> Read | None:
    """What makes a value of this type of what JSON has for it; None where that is the value."""
    while isinstance(kind, NewType):
        kind = kind.__supertype__
    origin, parts = get_origin(kind), get_args(kind)
    if origin is tuple:
        return _tuple_reader(parts)
    if origin in (Union, types.UnionType):
        (inner,) = (part for part in parts if part is not types.NoneType)
        read = _reader(inner)
        return None if read is None else lambda plain: None if plain is None else read(plain)
    if kind is bytes:
        return bytes.fromhex
    if isinstance(kind, type) and issubclass(kind, Enum):
        return kind
    if isinstance(kind, type) and issubclass(kind, tuple):
        return _row_reader(kind)
    if is_dataclass(kind):
        return _object_reader(kind)
    return None


def _tuple_reader(parts: tuple[Any, ...]) -> Read:
    if parts[1:] == (Ellipsis,):
        read = _reader(parts[0])
        return tuple if read is None else lambda plain: tuple([read(item) for item in plain])
    reads = [_reader(part) or _same for part in parts]
    return lambda plain: tuple([read(item) for read, item in zip(reads, plain, strict=True)])


def _row_reader(kind: Any) -> Read:
    hints = get_type_hints(kind)
    reads = [_reader(hints[name]) or _same for name in kind._fields]
    return lambda plain: kind(*[read(item) for read, item in zip(reads, plain, strict=False)])


def _object_reader(kind: Any) -> Read:
    reads = {name: read for name, hint in get_type_hints(kind).items() if (read := _reader(hint)) is not None}

    def read_object(plain: dict[str, Any]) -> Any:
        return kind(**{name: reads[name](value) if name in reads else value for name, value in plain.items()})

    return read_object


def _same(plain: Any) -> Any:
    return plain
