"""The JSON of a request: a quick yes, and a full no.

What is as its action's shape says is read and checked in one go (`Shape.form`, by msgspec). Anything else is read by Python's own JSON and
checked member by member: that tells what is wrong, in AWS's words, and takes the few things that the quick reader does not (NaN, a byte
order mark, UTF-16). The two agree on all that the quick one takes, except that it does not look into members that nobody knows.
A large body is looked at before: one that is made of small pieces would take fifty times as much once it is read. Whatever its bytes are,
that takes time in proportion to them, and no call into C takes long: such a call holds the interpreter, and no other thread helps.
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

# Of a body without escapes. Wherever there is a quote it matches, without a step back: could it fail, as in a text that has no end, the
# search would begin anew at each of the quotes behind it.
_TEXT = re.compile(rb'"[^"]*"?')


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
    return body.count(b",") > VALUES_MAX and _commas_between_texts(body, enough=VALUES_MAX) > VALUES_MAX


def _commas_between_texts(body: bytes, *, enough: int) -> int:
    """Counts them piece by piece, until there are more than enough."""
    count, is_in_text, left = 0, False, b""
    for at in range(0, len(body), PIECE_BYTES):
        piece = (left + body[at : at + PIECE_BYTES]).replace(rb"\\", b"")
        left = b"\\" if piece.endswith(b"\\") else b""  # It belongs to what the next piece begins with.
        piece = (b'"' if is_in_text else b"") + piece.replace(b'\\"', b"")
        is_in_text = piece.count(b'"') % 2 == 1
        count += _TEXT.sub(b"", piece).count(b",")
        if count > enough:
            break
    return count


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
