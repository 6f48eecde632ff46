"""Lists of queues in pages. A token is the last name of the page before, so that nothing need be remembered."""

import binascii
from base64 import b64decode, urlsafe_b64encode
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from penstock.http.sqs.errors import INVALID_PARAMETER_VALUE, SqsError
from penstock.http.sqs.texts import number_of

RESULTS_MAX = 1_000


class Page(NamedTuple):
    names: Sequence[str]
    token: Mapping[str, str]  # A part of the answer; empty on the last page.


def page_of(names: Sequence[str], body: Mapping[str, Any]) -> Page:
    """`names` in order. Without MaxResults there is one page of a thousand and no token, as AWS has it."""
    count = number_of(body, "MaxResults", 1, RESULTS_MAX)
    begin = bisect_right(names, _read(body["NextToken"])) if body.get("NextToken") else 0
    end = begin + (count or RESULTS_MAX)
    picked = names[begin:end]
    is_more = count is not None and end < len(names)
    return Page(picked, {"NextToken": urlsafe_b64encode(picked[-1].encode()).decode()} if is_more else {})


def _read(token: str) -> str:
    try:
        return b64decode(token, altchars=b"-_", validate=True).decode()
    except (binascii.Error, ValueError):
        raise SqsError(INVALID_PARAMETER_VALUE, "Invalid or expired next token.") from None
