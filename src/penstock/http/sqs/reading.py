"""The JSON of a request: a quick yes, and a full no.

What is as its action's shape says is read and checked in one go (`Shape.form`, by msgspec). Anything else is read by Python's own JSON and
checked member by member: that tells what is wrong, in AWS's words, and takes the few things that the quick reader does not (NaN, a byte
order mark, UTF-16). The two agree on all that the quick one takes, except that it does not look into members that nobody knows.
"""

import json
from typing import Any

import msgspec

from penstock.http.sqs.actions import Action
from penstock.http.sqs.errors import SERIALIZATION, SqsError
from penstock.http.sqs.shapes import without_nulls
from penstock.settings import MIB

READ_ASIDE_BYTES = 1 * MIB  # A larger body is read off the loop.


def read(action: Action, body: bytes) -> dict[str, Any]:
    """The members that are there. Raises SqsError."""
    try:
        if not body.isascii():
            body.decode()  # The quick reader passes over bytes in members that nobody knows.
        return without_nulls(action.quick(body))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return read_slowly(action, body)


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
