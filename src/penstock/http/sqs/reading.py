"""The JSON of a request: a quick yes, and a full no.

What is as its action's shape says is read and checked in one go (`Shape.form`, by msgspec). Anything else is read by Python's own JSON and
checked member by member: that tells what is wrong, in AWS's words, and takes the few things that the quick reader does not (NaN, a byte
order mark, UTF-16). The two agree on all that the quick one takes, except that it does not look into members that nobody knows.
A large body is looked at before: one that is made of small pieces would take fifty times as much once it is read.
"""

import json
import re
from codecs import getincrementaldecoder
from typing import Any

import msgspec

from penstock.http.sqs.actions import Action
from penstock.http.sqs.errors import BODY_TOO_LARGE, SERIALIZATION, SqsError
from penstock.http.sqs.shapes import without_nulls
from penstock.settings import KIB, MIB

READ_ASIDE_BYTES = 1 * MIB  # A larger body is read off the loop.
VALUES_MAX = 250_000  # Of a larger body: a redrive may name 100,000 messages, and a thousand messages may have many headers each.
PIECE_BYTES = 256 * KIB

_TEXT = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"', re.DOTALL)


def read(action: Action, body: bytes) -> dict[str, Any]:
    """The members that are there. Raises SqsError."""
    if len(body) > READ_ASIDE_BYTES and _has_too_many_values(body):
        raise SqsError(BODY_TOO_LARGE, f"a request of more than {READ_ASIDE_BYTES} bytes may have at most {VALUES_MAX} values")
    try:
        if not body.isascii():
            _check_text(body)  # The quick reader passes over bytes in members that nobody knows.
        return without_nulls(action.quick(body))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return read_slowly(action, body)


def _has_too_many_values(body: bytes) -> bool:
    """Two values that do not stand in one another have a comma between them; only commas outside of texts count."""
    return body.count(b",") > VALUES_MAX and _TEXT.sub(b"", body).count(b",") > VALUES_MAX


def _check_text(body: bytes) -> None:
    """Raises UnicodeDecodeError. Piece by piece: read whole, a text with a single character from far away takes four times as much."""
    if len(body) <= PIECE_BYTES:
        body.decode()
        return
    decoder, view = getincrementaldecoder("utf-8")(), memoryview(body)
    for at in range(0, len(view), PIECE_BYTES):
        decoder.decode(view[at : at + PIECE_BYTES])
    decoder.decode(b"", final=True)


def read_slowly(action: Action, body: bytes) -> dict[str, Any]:
    try:
        value = _parsed(body)
    except UnicodeEncodeError:
        raise SqsError(SERIALIZATION, "the body has half of a surrogate pair, which is no character") from None
    except (ValueError, RecursionError) as wrong:
        raise SqsError(SERIALIZATION, f"the body is not JSON: {wrong}") from None
    action.shape.check(value)
    assert isinstance(value, dict)
    return without_nulls(value)


def _parsed(body: bytes) -> object:
    """Only texts that can be written again: an escape may stand for half of a pair, and so may bytes; no UTF-8 could hold that."""
    value = json.loads(body or b"{}")
    if b"\\ud" in body or b"\\uD" in body or not body.isascii():
        json.dumps(value, ensure_ascii=False).encode()
    return value
