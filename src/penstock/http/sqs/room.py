"""How many bytes of request bodies may be at hand, so that nobody who sends much, or sends slowly, keeps the others from being heard.

A body is counted while it comes in: it has a bound, and so have all bodies together. Whoever collects it takes room for it (`refusal`) and
stops at a refusal, which becomes the answer. Three rules keep the door open:

- A small body needs no room, as long as nobody is before it in its connection: so much every connection has by itself.
- Large ones leave a quarter of the room to those of middle size.
- Where there is no room left, those who have been sending the longest are cut off, unless they have just begun.
"""

import asyncio
from typing import Protocol

from penstock.http.sqs.errors import BODY_TOO_LARGE, REQUEST_THROTTLED, SqsError
from penstock.settings import KIB, MIB

BODY_BYTES_MAX = 8 * MIB  # 1 MiB of payload, of which JSON may make six times as much where each character is escaped.
BODIES_BYTES_MAX = 64 * MIB  # Of all requests at hand, where memory is not scarce...
BODIES_SHARE = 16  # ...and one in so many bytes of the node's memory where it is: read, a body takes several times as much.
BODIES_BYTES_MIN = BODY_BYTES_MAX * 4 // 3 + 1  # The largest body must find room.
SMALL_BYTES = 16 * KIB  # A thousand connections have 16 MiB of these.
MIDDLE_BYTES = 256 * KIB
SENDING_SECONDS_WHEN_CROWDED = 5.0  # As on the Kafka port: whoever takes longer is in the way of others, if there are any.


class Sender(Protocol):
    """Somebody whose body is on its way in, and takes room."""

    def cut_off(self, refusal: SqsError) -> None:
        """Gives back at once what it holds."""


class Room:
    """On a node that may take so much memory."""

    def __init__(self, memory_bytes_max: int = BODIES_BYTES_MAX * BODIES_SHARE) -> None:
        self._bytes_max = min(BODIES_BYTES_MAX, max(BODIES_BYTES_MIN, memory_bytes_max // BODIES_SHARE))
        self._taken = 0
        self._sending: dict[Sender, float] = {}  # Since when. Who began first stands first.

    @property
    def bytes_taken(self) -> int:
        return self._taken

    def refusal(self, size: int, *, whole: int, sender: Sender | None = None) -> SqsError | None:
        """Takes room for one more piece of a body that has `whole` bytes with it, or says why there is none."""
        if whole > BODY_BYTES_MAX:
            return SqsError(BODY_TOO_LARGE, f"a request may have at most {BODY_BYTES_MAX} bytes here")
        most = self._bytes_max if whole <= MIDDLE_BYTES else self._bytes_max * 3 // 4
        if self._taken + size > most:
            self._cut_off_the_slow(size - most, but=sender)
            if self._taken + size > most:
                return SqsError(REQUEST_THROTTLED, "too many large requests at once; try again")
        self._taken += size
        return None

    def give_back(self, size: int) -> None:
        self._taken -= size

    def begin(self, sender: Sender) -> None:
        """More of its body is to come, and it holds room meanwhile."""
        self._sending[sender] = asyncio.get_running_loop().time()

    def end(self, sender: Sender) -> None:
        self._sending.pop(sender, None)

    def _cut_off_the_slow(self, missing: int, *, but: Sender | None) -> None:
        """Until what is missing is no more than what is left."""
        latest = asyncio.get_running_loop().time() - SENDING_SECONDS_WHEN_CROWDED
        for sender, since in list(self._sending.items()):
            if since > latest or self._taken + missing <= 0:
                break
            if sender is not but:
                sender.cut_off(SqsError(REQUEST_THROTTLED, "others need the room of this request, which comes too slowly; try again"))
