"""One request at the queue door, as HTTP brought it, and the answer as HTTP is to carry it away.

A body is counted while it comes in: it has a bound, and so have all bodies at hand together. Whoever collects it takes room for each piece
(`Room.refusal`) and stops at a refusal, which becomes the answer.
"""

from collections.abc import Mapping
from typing import NamedTuple

from penstock.http.sqs.desk import WhileConnected, whatever_happens
from penstock.http.sqs.errors import BODY_TOO_LARGE, REQUEST_THROTTLED, SqsError
from penstock.settings import MIB

BODY_BYTES_MAX = 8 * MIB  # 1 MiB of payload, of which JSON may make six times as much where each character is escaped.
BODIES_BYTES_MAX = 64 * MIB  # Of all requests at hand.


class Request:
    """`headers` by their names in lower case, of two alike the last."""

    __slots__ = ("body", "client", "headers", "refusal", "target", "url", "while_connected")

    def __init__(self, target: bytes, headers: Mapping[bytes, bytes], url: bytes = b"/", client: str = "", body: bytes = b"") -> None:
        self.target = target
        self.headers = headers
        self.url = url
        self.client = client
        self.body = body
        self.refusal: SqsError | None = None  # Of the body: it was not taken in.
        self.while_connected: WhileConnected = whatever_happens


class Reply(NamedTuple):
    status: int
    body: bytes
    code: bytes = b""  # Of an error, as it was called in the XML days.


class Room:
    """How many bytes of bodies are at hand."""

    def __init__(self) -> None:
        self._taken = 0

    def refusal(self, size: int, *, whole: int) -> SqsError | None:
        """Takes room for one more piece of a body that has `whole` bytes with it, or says why there is none."""
        if whole > BODY_BYTES_MAX:
            return SqsError(BODY_TOO_LARGE, f"a request may have at most {BODY_BYTES_MAX} bytes here")
        if self._taken + size > BODIES_BYTES_MAX:
            return SqsError(REQUEST_THROTTLED, "too many large requests at once; try again")
        self._taken += size
        return None

    def give_back(self, size: int) -> None:
        self._taken -= size
