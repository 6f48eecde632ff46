"""The header in front of every request and every reply.

On the wire a frame is four bytes of length and that many bytes; here a frame is what follows the length, which the socket's reader bounds.
A request's header has version 1, or 2 (with tagged fields) before a flexible request; the client id is a plain string in both.
A reply's header has version 0, or 1 (with tagged fields); the reply to ApiVersions always has version 0, so that a client can read it
before it knows what the broker speaks.
"""

from collections.abc import Iterable
from struct import Struct, error
from typing import NamedTuple

from penstock.errors import MalformedInput
from penstock.vocabulary import Buffer
from penstock.wire.api_keys import FLEXIBLE_FROM, NEVER, ApiKey, is_flexible
from penstock.wire.fields import read_nullable_string, skip_tagged, string

__all__ = [
    "FLEXIBLE_FROM",
    "LENGTH",
    "RequestHeader",
    "read_request_header",
    "read_response_header",
    "request_header",
    "response_header",
    "whole_frame",
]

LENGTH = Struct(">i")  # The length that stands before a frame.
_FRONT = Struct(">hhi")  # api key, version, correlation id
_CLIENT_ID_AT = _FRONT.size
_CORRELATION = Struct(">i")


class RequestHeader(NamedTuple):
    api_key: int
    api_version: int
    correlation_id: int
    client_id: str | None
    body_at: int  # Where the message begins in the frame.


def read_request_header(frame: Buffer) -> RequestHeader:
    end = len(frame)
    if end < _FRONT.size:
        raise MalformedInput("a request is cut off inside its header")
    api_key, version, correlation_id = _FRONT.unpack_from(frame)
    client_id, at = read_nullable_string(frame, _CLIENT_ID_AT, end)
    if version >= FLEXIBLE_FROM.get(api_key, NEVER):
        at = skip_tagged(frame, at, end)
    return _new_header(RequestHeader, (api_key, version, correlation_id, client_id, at))


_new_header = tuple.__new__  # Half the cost of calling the class, on the path of every request.


def whole_frame(pieces: Iterable[bytes]) -> bytes:
    """The pieces of a small message as they go on the wire, the length in front."""
    body = b"".join(pieces)
    return LENGTH.pack(len(body)) + body


def request_header(api_key: int, version: int, correlation_id: int, client_id: str | None) -> bytes:
    header = _FRONT.pack(api_key, version, correlation_id) + string(client_id)
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
        at = skip_tagged(frame, at, len(frame))
    return correlation_id, at
