"""Where the fields of one record lie.

The only Python code that walks a record's bytes; both the checking twin and the decoder stand on it. The compiled loop has its own walk.
Every read stays inside the record, whose own length is checked against the payload first.
"""

from typing import NamedTuple

from penstock.errors import MalformedInput
from penstock.vocabulary import Buffer
from penstock.wire.varints import read_varint, read_varlong

Span = tuple[int, int]  # Start and end; an end of -1 stands for null.


class RecordSpans(NamedTuple):
    end: int  # Where the next record starts.
    timestamp_delta: int
    offset_delta: int
    key: Span
    value: Span
    headers: list[tuple[Span, Span]]


def read_record(payload: Buffer, at: int, payload_end: int) -> RecordSpans:
    length, at = read_varint(payload, at, payload_end)
    if not 0 <= length <= payload_end - at:
        raise MalformedInput("a record's length reaches past the batch")
    end = at + length
    if at == end:
        raise MalformedInput("a record is empty")
    timestamp_delta, at = read_varlong(payload, at + 1, end)  # One byte of attributes, none of them in use.
    offset_delta, at = read_varint(payload, at, end)
    key, at = _read_span(payload, at, end)
    value, at = _read_span(payload, at, end)
    header_count, at = read_varint(payload, at, end)
    if header_count < 0:
        raise MalformedInput("a record has a negative count of headers")
    headers = []
    for _ in range(header_count):
        name, at = _read_span(payload, at, end)
        if name[1] < 0:
            raise MalformedInput("a header's name is null")
        content, at = _read_span(payload, at, end)
        headers.append((name, content))
    if at != end:
        raise MalformedInput("a record is longer than its fields")
    return RecordSpans(end, timestamp_delta, offset_delta, key, value, headers)


def _read_span(payload: Buffer, at: int, end: int) -> tuple[Span, int]:
    length, at = read_varint(payload, at, end)
    if length == -1:
        return (at, -1), at
    if not 0 <= length <= end - at:
        raise MalformedInput("a field reaches past its record")
    return (at, at + length), at + length
