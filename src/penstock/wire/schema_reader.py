"""Reads any message of kio's schemas, with every length checked before it is believed.

kio has a fast parser of its own, but it reserves memory by the length that an array claims: a frame of twenty bytes can ask for a hundred
gigabytes, and then the whole process is aborted. Bytes from a socket never go there. This reader walks the same schemas in Python; kio's
parser is its oracle in the tests.
"""

import dataclasses
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import cache
from struct import Struct
from types import NoneType
from typing import Any, get_args

from kio.schema.errors import ErrorCode as KioErrorCode
from kio.serial._introspect import classify_field, get_field_tag
from kio.static.constants import uuid_zero

from penstock.errors import MalformedInput
from penstock.vocabulary import NO_TOPIC_ID, Buffer
from penstock.wire.fields import (
    INT,
    LONG,
    SHORT,
    Reader,
    Rows,
    read_compact_length,
    read_compact_string,
    read_int,
    read_nullable_compact_string,
    read_nullable_string,
    read_string,
    read_tagged,
)

_UUID = type(uuid_zero)  # The type alone, by way of kio: the module that also makes random ones is not for this room.
_EPOCH = datetime.fromtimestamp(0, UTC)
_ERROR_CODES: dict[int, int] = {code.value: code for code in KioErrorCode}
_rows = Rows()  # Of the message that is being read: one at a time, since nothing here waits.


def read_message(entity_class: Any, buffer: Buffer, at: int, *, rows_max: int) -> tuple[Any, int]:
    """The message that begins at `buffer[at]`, and where it ends."""
    _rows.left = rows_max
    message: tuple[Any, int] = entity_reader(entity_class)(buffer, at, len(buffer))
    return message


@cache
def entity_reader(entity_class: Any) -> Reader:
    """A reader of one message class; nested classes get readers of their own."""
    plain: list[tuple[str, Reader]] = []
    tagged: dict[int, tuple[str, Reader]] = {}
    defaults: dict[str, Any] = {}
    for field in dataclasses.fields(entity_class):
        tag = get_field_tag(field)
        reader = _field_reader(field, entity_class.__flexible__, is_tagged=tag is not None)
        if tag is None:
            plain.append((field.name, reader))
        else:
            tagged[tag] = (field.name, reader)
            defaults[field.name] = tagged_default(field)

    def read(buffer: Buffer, at: int, end: int) -> tuple[Any, int]:
        values = defaults.copy()
        for name, reader in plain:
            values[name], at = reader(buffer, at, end)
        if entity_class.__flexible__:
            at = read_tagged(buffer, at, end, tagged, values)
        return entity_class(**values), at

    return read


def tagged_default(field: Any) -> Any:
    """What a tagged field is when it is not sent, and what therefore need not be sent."""
    if field.default is not dataclasses.MISSING:
        return field.default
    shape = classify_field(field)
    if shape.is_array:
        return ()
    if "kafka_type" not in field.metadata:
        return shape.type_(**{nested.name: tagged_default(nested) for nested in dataclasses.fields(shape.type_)})
    return ZEROS[field.metadata["kafka_type"]]


# What Kafka puts where its schema names no default.
ZEROS: dict[str, Any] = {
    "bool": False,
    "string": "",
    "bytes": b"",
    "records": None,
    "uuid": None,
    "timedelta_i32": timedelta(0),
    "timedelta_i64": timedelta(0),
    "datetime_i64": _EPOCH,
    "error_code": KioErrorCode.none,
    "float64": 0.0,
} | dict.fromkeys(("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"), 0)


def _field_reader(field: Any, flexible: bool, *, is_tagged: bool) -> Reader:
    shape = classify_field(field)
    nullable = NoneType in get_args(field.type)
    if "kafka_type" not in field.metadata:
        item = entity_reader(shape.type_)
        if nullable and not shape.is_array and not is_tagged:
            return _nullable_entity(item)
    else:
        item = _primitive(field.metadata["kafka_type"], flexible, nullable and not shape.is_array)
    return _array(item, flexible, nullable) if shape.is_array else item


def _primitive(kafka_type: str, flexible: bool, nullable: bool) -> Reader:
    match kafka_type:
        case "string" if flexible:
            return read_nullable_compact_string if nullable else read_compact_string
        case "string":
            return read_nullable_string if nullable else read_string
        case "bytes" | "records":
            return _sized(read_compact_length if flexible else read_int, nullable)
        case _:
            return _fixed(*_FIXED[kafka_type])


def _fixed(layout: Struct, convert: Callable[[Any], Any] | None) -> Reader:
    unpack_from, size = layout.unpack_from, layout.size

    def read(buffer: Buffer, at: int, end: int) -> tuple[Any, int]:
        if size > end - at:
            raise MalformedInput("a number is cut off")
        value = unpack_from(buffer, at)[0]
        return (value if convert is None else convert(value)), at + size

    return read


def _sized(length_reader: Reader, nullable: bool) -> Reader:
    def read(buffer: Buffer, at: int, end: int) -> tuple[Any, int]:
        length, at = length_reader(buffer, at, end)
        if length == -1 and nullable:
            return None, at
        if not 0 <= length <= end - at:
            raise MalformedInput("a byte field has a length that cannot be")
        return bytes(buffer[at : at + length]), at + length

    return read


def _array(item: Reader, flexible: bool, nullable: bool) -> Reader:
    length_reader = read_compact_length if flexible else read_int

    def read(buffer: Buffer, at: int, end: int) -> tuple[Any, int]:
        count, at = length_reader(buffer, at, end)
        if count == -1 and nullable:
            return None, at
        if not 0 <= count <= end - at:  # Each item takes a byte at least.
            raise MalformedInput("an array has a length that cannot be")
        _rows.count(count)
        items = []
        for _ in range(count):
            value, at = item(buffer, at, end)
            items.append(value)
        return tuple(items), at

    return read


def _nullable_entity(item: Reader) -> Reader:
    """A struct that may be null has a byte before it: negative for null (KIP-893)."""

    def read(buffer: Buffer, at: int, end: int) -> tuple[Any, int]:
        marker, at = _MARKER(buffer, at, end)
        return (None, at) if marker < 0 else item(buffer, at, end)

    return read


def _as_datetime(value: int) -> datetime | None:
    return None if value == -1 else _EPOCH + timedelta(milliseconds=value)


def as_uuid(value: bytes) -> Any:
    return None if value == NO_TOPIC_ID else _UUID(bytes=value)


def _as_timedelta(value: int) -> timedelta:
    return timedelta(milliseconds=value)


_FIXED: dict[str, tuple[Struct, Callable[[Any], Any] | None]] = {
    "bool": (Struct(">?"), None),
    "int8": (Struct(">b"), None),
    "int16": (SHORT, None),
    "int32": (INT, None),
    "int64": (LONG, None),
    "uint8": (Struct(">B"), None),
    "uint16": (Struct(">H"), None),
    "uint32": (Struct(">I"), None),
    "uint64": (Struct(">Q"), None),
    "float64": (Struct(">d"), None),
    "uuid": (Struct(">16s"), as_uuid),
    "error_code": (SHORT, lambda value: _ERROR_CODES.get(value, value)),
    "timedelta_i32": (INT, _as_timedelta),
    "timedelta_i64": (LONG, _as_timedelta),
    "datetime_i64": (LONG, _as_datetime),
}
_MARKER = _fixed(Struct(">b"), None)
