"""The header in front of every request and every reply.

On the wire a frame is four bytes of length and that many bytes; here a frame is what follows the length, which the socket's reader bounds.
A request's header has version 1, or 2 (with tagged fields) before a flexible request; the client id is a plain string in both.
A reply's header has version 0, or 1 (with tagged fields); the reply to ApiVersions always has version 0, so that a client can read it
before it knows what the broker speaks.
"""

from struct import Struct, error
from typing import NamedTuple

from penstock.errors import MalformedInput
from penstock.vocabulary import Buffer
from penstock.wire.api_keys import FLEXIBLE_FROM, ApiKey, is_flexible
from penstock.wire.varints import read_uvarint, uvarint

__all__ = [
    "FLEXIBLE_FROM",
    "LENGTH",
    "RequestHeader",
    "read_request_header",
    "read_response_header",
    "request_header",
    "response_header",
    "skip_tagged_fields",
]

LENGTH = Struct(">i")  # The length that stands before a frame.
_FRONT = Struct(">hhih")  # api key, version, correlation id, length of the client id
_CORRELATION = Struct(">i")


class RequestHeader(NamedTuple):
    api_key: int
    api_version: int
    correlation_id: int
    client_id: str | None
    body_at: int  # Where the message begins in the frame.


def read_request_header(frame: Buffer) -> RequestHeader:
    try:
        api_key, version, correlation_id, length = _FRONT.unpack_from(frame)
    except error:
        raise MalformedInput("a request is cut off inside its header") from None
    at = _FRONT.size
    client_id = None
    if length >= 0:
        client_id, at = _read_client_id(frame, at, at + length)
    elif length != -1:
        raise MalformedInput("a client id has a negative length")
    if is_flexible(api_key, version):
        at = skip_tagged_fields(frame, at)
    return RequestHeader(api_key, version, correlation_id, client_id, at)


def request_header(api_key: int, version: int, correlation_id: int, client_id: str | None) -> bytes:
    encoded = b"" if client_id is None else client_id.encode()
    header = _FRONT.pack(api_key, version, correlation_id, -1 if client_id is None else len(encoded)) + encoded
    return header + b"\0" if is_flexible(api_key, version) else header


def response_header(api_key: int, version: int, correlation_id: int) -> bytes:
    if api_key != ApiKey.API_VERSIONS and is_flexible(api_key, version):
        return _CORRELATION.pack(correlation_id) + b"\0"
    return _CORRELATION.pack(correlation_id)


def read_response_header(api_key: int, version: int, frame: Buffer) -> tuple[int, int]:
    """The correlation id, and where the message begins."""
    try:
        correlation_id: int = _CORRELATION.unpack_from(frame)[0]
    except error:
        raise MalformedInput("a reply is cut off inside its header") from None
    at = _CORRELATION.size
    if api_key != ApiKey.API_VERSIONS and is_flexible(api_key, version):
        at = skip_tagged_fields(frame, at)
    return correlation_id, at


def skip_tagged_fields(frame: Buffer, at: int) -> int:
    """Steps over a section of tagged fields, known or not; returns the position after it."""
    end = len(frame)
    count, at = read_uvarint(frame, at, end)
    for _ in range(count):
        _, at = read_uvarint(frame, at, end)
        size, at = read_uvarint(frame, at, end)
        if size > end - at:
            raise MalformedInput("a tagged field reaches past its frame")
        at += size
    return at


def tagged_fields(fields: dict[int, bytes]) -> bytes:
    """A section of tagged fields, lowest tag first as the protocol asks."""
    if not fields:
        return b"\0"
    pieces = [uvarint(len(fields))]
    for tag in sorted(fields):
        pieces += (uvarint(tag), uvarint(len(fields[tag])), fields[tag])
    return b"".join(pieces)


def _read_client_id(frame: Buffer, at: int, end: int) -> tuple[str, int]:
    if end > len(frame):
        raise MalformedInput("a client id reaches past its frame")
    try:
        return str(frame[at:end], "utf-8"), end
    except UnicodeDecodeError:
        raise MalformedInput("a client id is not UTF-8") from None
