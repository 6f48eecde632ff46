"""The reading of a whole POST in plain Python, for machines without the compiled one, and to hold that against."""

import re

_START = re.compile(rb"POST (/[0-9A-Za-z/._~-]{0,2000}) HTTP/1\.1")
_IN_NAMES = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz-"
_IN_VALUES = bytes(range(0x20, 0x7F))
_LENGTH = re.compile(rb"[0-9]{1,6}")  # More may be too much, and is looked at before it comes.
# They change what the bytes mean, or what follows.
_STEERING = frozenset((b"transfer-encoding", b"upgrade", b"expect", b"proxy-connection"))


def read_post(data: bytes) -> tuple[bytes, dict[bytes, bytes], bytes] | None:
    head, is_whole, body = data.partition(b"\r\n\r\n")
    first, *lines = head.split(b"\r\n")
    start = _START.fullmatch(first)
    if not is_whole or start is None or head.translate(None, _IN_VALUES) != b"\r\n" * len(lines):
        return None
    headers: dict[bytes, bytes] = {}
    for line in lines:
        name, _, value = line.partition(b": ")
        if not name or not value or value[0] == 0x20 or value[-1] == 0x20 or name.translate(None, _IN_NAMES):
            return None
        name = name.lower()
        if name == b"content-length" and name in headers:
            return None
        if name in _STEERING or (name == b"connection" and value.lower() != b"keep-alive"):
            return None
        headers[name] = value
    length = headers.get(b"content-length", b"")
    return (start[1], headers, body) if _LENGTH.fullmatch(length) and int(length) == len(body) else None
