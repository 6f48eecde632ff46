"""One request at the queue door, as HTTP brought it, and the answer as HTTP is to carry it away.

A body is counted while it comes in (room.py).
"""

from collections.abc import Coroutine, Mapping
from typing import Any, NamedTuple, TypeVar

from penstock.broker.memory import HeldReply
from penstock.http.sqs.errors import SqsError

T = TypeVar("T")


class Request:
    """`headers` by their names in lower case, of two alike the last."""

    # What most never say otherwise is said once for all of them.
    refusal: SqsError | None = None  # Of the body: it was not taken in.
    held: HeldReply | None = None  # Where an answer with messages is counted. Whoever sends it lets go.

    def __init__(self, target: bytes, headers: Mapping[bytes, bytes], url: bytes = b"/", client: str = "", body: bytes = b"") -> None:
        self.target = target
        self.headers = headers
        self.url = url
        self.client = client
        self.body = body

    async def while_connected(self, work: Coroutine[Any, Any, T]) -> T:
        """Does some work as long as the client is there to hear of it: here, whatever happens."""
        return await work


class Reply(NamedTuple):
    status: int
    body: bytes
    code: bytes = b""  # Of an error, as it was called in the XML days.
