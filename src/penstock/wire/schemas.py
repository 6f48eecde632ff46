"""Every message of Kafka's protocol, through the schemas and the writer of the library `kio`.

Only this module and `schema_reader` know kio. It has one frozen class per message and version: right for all that is not hot. Classes
are loaded when first asked for, since all of them together take two seconds to import.

Going in, a message is a mapping of plain values: ints, strings, bytes, lists, mappings. A field that the version does not have is dropped,
one that is missing gets Kafka's default. Ids are sixteen bytes. Times are milliseconds and keep Kafka's names: `timeout_ms`.
Coming out, a message is kio's entity: its times have no `_ms` and are timedelta or datetime, its ids are UUID or None. `topic_id_bytes` and
`milliseconds` turn those back.
"""

import dataclasses
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from functools import cache
from io import BytesIO
from typing import Any

from kio import index
from kio.schema.errors import ErrorCode as KioErrorCode
from kio.serial import entity_writer
from kio.serial._introspect import classify_field, is_optional

from penstock.errors import MalformedInput
from penstock.vocabulary import NO_TOPIC_ID, Buffer, TopicId
from penstock.wire.fields import ROWS_MAX
from penstock.wire.frames import LENGTH, read_response_header, request_header, response_header
from penstock.wire.schema_reader import ZEROS, as_uuid, read_message

Body = Mapping[str, Any]
_Convert = Callable[[Any], Any]
_EPOCH = datetime.fromtimestamp(0, UTC)
_UNSET = object()


def read_request(api_key: int, version: int, frame: Buffer, at: int) -> Any:
    """The request that begins at `frame[at]`.

    Bytes that are left over are let go, as Kafka does: librdkafka 2.16 puts three too many into Metadata 13 when it asks for all topics.
    """
    return _read(_request_class(api_key, version), frame, at, rows_max=ROWS_MAX)[0]


def read_response(api_key: int, version: int, frame: Buffer) -> tuple[int, Any]:
    """The correlation id and the message of a whole reply frame."""
    correlation_id, at = read_response_header(api_key, version, frame)
    entity, end = _read(_response_class(api_key, version), frame, at, rows_max=len(frame))
    if end != len(frame):
        raise MalformedInput(f"{type(entity).__name__} is shorter than its frame")
    return correlation_id, entity


def build_request(api_key: int, version: int, body: Body) -> Any:
    return _build(_request_class(api_key, version), body)


def build_response(api_key: int, version: int, body: Body) -> Any:
    return _build(_response_class(api_key, version), body)


def write_request(api_key: int, version: int, correlation_id: int, client_id: str | None, body: Any) -> bytes:
    """A whole frame, its length in front; `body` is a mapping or an entity of this version."""
    entity = build_request(api_key, version, body) if isinstance(body, Mapping) else body
    return _frame(request_header(api_key, version, correlation_id, client_id), entity)


def write_response(api_key: int, version: int, correlation_id: int, body: Any) -> bytes:
    """A whole frame, its length in front; `body` is a mapping or an entity of this version."""
    entity = build_response(api_key, version, body) if isinstance(body, Mapping) else body
    return _frame(response_header(api_key, version, correlation_id), entity)


def topic_id_bytes(value: Any) -> TopicId:
    """The sixteen bytes of a UUID or None."""
    return NO_TOPIC_ID if value is None else TopicId(value.bytes)


def moment(milliseconds: int) -> datetime:
    """For fields that are never null, and say "no time" by -1."""
    return _EPOCH + timedelta(milliseconds=milliseconds)


def milliseconds(value: timedelta | datetime | None) -> int:
    """Whole milliseconds, since 1970 for a datetime; -1, Kafka's word for no time, for None."""
    if value is None:
        return -1
    span = value - _EPOCH if isinstance(value, datetime) else value
    return span // timedelta(milliseconds=1)


@cache
def _request_class(api_key: int, version: int) -> Any:
    return _load(index.load_request_schema, api_key, version)


@cache
def _response_class(api_key: int, version: int) -> Any:
    return _load(index.load_response_schema, api_key, version)


def _load(load: Callable[[int, int], Any], api_key: int, version: int) -> Any:
    try:
        return load(api_key, version)
    except index.KioIndexError:
        raise MalformedInput(f"API {api_key} has no version {version}") from None


def _read(entity_class: Any, frame: Buffer, at: int, *, rows_max: int) -> tuple[Any, int]:
    """The message, and where it ends."""
    try:
        return read_message(entity_class, frame, at, rows_max=rows_max)
    except (MalformedInput, OverflowError) as failure:  # The latter from times that no calendar holds.
        raise MalformedInput(f"{entity_class.__name__} does not parse: {failure}") from None


def _frame(header: bytes, entity: Any) -> bytes:
    body = BytesIO()
    body.write(LENGTH.pack(0))
    body.write(header)
    entity_writer(type(entity))(body, entity)
    LENGTH.pack_into(view := body.getbuffer(), 0, len(view) - LENGTH.size)
    return bytes(view)


def _build(entity_class: Any, body: Body) -> Any:
    values = {}
    for name, alias, convert, default in _plan(entity_class):
        value = body.get(name, _UNSET)
        if value is _UNSET and alias is not None:
            value = body.get(alias, _UNSET)
        values[name] = default if value is _UNSET else convert(value)
    return entity_class(**values)


@cache
def _plan(entity_class: Any) -> list[tuple[str, str | None, _Convert, Any]]:
    """For each field its name, its name with the unit, how to convert a plain value, and what stands for a missing one."""
    plan = []
    for field in dataclasses.fields(entity_class):
        shape = classify_field(field)
        kafka_type = field.metadata.get("kafka_type", "entity")
        alias = f"{field.name}_ms" if kafka_type in _TIMES else None
        convert = _converter(kafka_type, shape.type_)
        if shape.is_array:
            convert = _each(convert)
        plan.append((field.name, alias, convert, _default(field, kafka_type, shape)))
    return plan


def _default(field: Any, kafka_type: str, shape: Any) -> Any:
    if field.default is not dataclasses.MISSING:
        return field.default
    if shape.is_array:
        return ()
    if kafka_type == "entity":
        return None if is_optional(field) else _build(shape.type_, {})
    return ZEROS[kafka_type]


def _converter(kafka_type: str, field_class: Any) -> _Convert:
    if kafka_type == "entity":
        return lambda value: _build(field_class, value) if isinstance(value, Mapping) else value
    return _CONVERT.get(kafka_type, _as_it_is)


def _each(convert: _Convert) -> _Convert:
    return lambda values: None if values is None else tuple(map(convert, values))


def _as_it_is(value: Any) -> Any:
    return value


def _uuid(value: Any) -> Any:
    return as_uuid(value) if isinstance(value, bytes) else value


def _timedelta(value: Any) -> timedelta:
    return timedelta(milliseconds=value) if isinstance(value, int) else value


def _datetime(value: Any) -> datetime | None:
    if not isinstance(value, int):
        return value  # type: ignore[no-any-return]
    return None if value < 0 else _EPOCH + timedelta(milliseconds=value)


_TIMES = ("timedelta_i32", "timedelta_i64", "datetime_i64")
_CONVERT: dict[str, _Convert] = {
    "uuid": _uuid,
    "timedelta_i32": _timedelta,
    "timedelta_i64": _timedelta,
    "datetime_i64": _datetime,
    "error_code": KioErrorCode,
}
