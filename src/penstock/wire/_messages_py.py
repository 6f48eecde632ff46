"""The walk over a queue's records in plain Python, for machines without the compiled one, and to hold that against."""

from collections.abc import Iterator

from penstock.errors import MalformedInput
from penstock.vocabulary import Buffer
from penstock.wire.record_layout import RecordSpans, Span, read_record

Header = tuple[str, bytes | None]


def marked_records(payload: Buffer, count: int, prefix: bytes) -> list[tuple[int, int, list[Header]]]:
    marked = []
    for spans in _walk(payload, count):
        headers = [each for each in spans.headers if bytes(payload[slice(*each[0])]).startswith(prefix)]
        if headers:
            marked.append((spans.offset_delta, spans.timestamp_delta, [_header(payload, *each) for each in headers]))
    return marked


def pick_records(
    payload: Buffer, count: int, first_delta: int, end_delta: int
) -> list[tuple[int, int, bytes | None, bytes | None, tuple[Header, ...]]]:
    picked = []
    for spans in _walk(payload, count):
        if spans.offset_delta >= end_delta:
            break
        if spans.offset_delta >= first_delta:
            headers = tuple(_header(payload, *each) for each in spans.headers)
            picked.append((spans.offset_delta, spans.timestamp_delta, _cut(payload, spans.key), _cut(payload, spans.value), headers))
    return picked


def _walk(payload: Buffer, count: int) -> Iterator[RecordSpans]:
    if count < 0:
        raise MalformedInput("a batch has a negative count of records")
    at, end = 0, len(payload)
    for _ in range(count):
        spans = read_record(payload, at, end)
        at = spans.end
        yield spans


def _header(payload: Buffer, name: Span, content: Span) -> Header:
    return bytes(payload[slice(*name)]).decode(errors="replace"), _cut(payload, content)


def _cut(payload: Buffer, span: Span) -> bytes | None:
    return None if span[1] < 0 else bytes(payload[span[0] : span[1]])
