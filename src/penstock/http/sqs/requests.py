"""One request at the queue door, as HTTP brought it, and the answer as HTTP is to carry it away.

A body is counted while it comes in: it has a bound, and so have all bodies at hand together. Whoever collects it takes room for each piece
(`Room.refusal`) and stops at a refusal, which becomes the answer.
"""

from collections.abc import Coroutine, Mapping
from typing import Any, NamedTuple, TypeVar

from penstock.broker.memory import HeldReply
from penstock.http.sqs.errors import BODY_TOO_LARGE, REQUEST_THROTTLED, SqsError
from penstock.settings import MIB

BODY_BYTES_MAX = 8 * MIB  # 1 MiB of payload, of which JSON may make six times as much where each character is escaped.
BODIES_BYTES_MAX = 64 * MIB  # Of all requests at hand, where memory is not scarce...
BODIES_SHARE = 16  # ...and one in so many bytes of the node's memory where it is: read, a body takes several times as much.

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


class Room:
    """How many bytes of bodies are at hand, on a node that may take so much memory."""

    def __init__(self, memory_bytes_max: int = BODIES_BYTES_MAX * BODIES_SHARE) -> None:
        self._bytes_max = max(BODY_BYTES_MAX, memory_bytes_max // BODIES_SHARE)
        self._taken = 0

    def refusal(self, size: int, *, whole: int) -> SqsError | None:
        """Takes room for one more piece of a body that has `whole` bytes with it, or says why there is none."""
        if whole > BODY_BYTES_MAX:
            return SqsError(BODY_TOO_LARGE, f"a request may have at most {BODY_BYTES_MAX} bytes here")
        if self._taken + size > min(self._bytes_max, BODIES_BYTES_MAX):
            return SqsError(REQUEST_THROTTLED, "too many large requests at once; try again")
        self._taken += size
        return None

    def give_back(self, size: int) -> None:
        self._taken -= size
