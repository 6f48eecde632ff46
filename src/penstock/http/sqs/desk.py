"""What the actions work with: the queues of the node, what this door remembers, and the request at hand.

The door itself remembers only how a queue's settings read, until they change.
"""

import asyncio
from collections.abc import Awaitable, Coroutine
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar

from penstock.broker.memory import HeldReply
from penstock.broker.queues.calls import QueueRefusal, QueueView
from penstock.broker.queues.facade import Queues
from penstock.env import Env
from penstock.http.sqs.addresses import name_in_url, queue_url
from penstock.http.sqs.errors import REQUEST_THROTTLED, SqsError
from penstock.http.sqs.queue_records import SqsQueue, read_queue
from penstock.http.sqs.refusals import as_error

READ_MAX = 10_000  # Queues whose settings are remembered as they read.
LONG_POLLS_MAX = 800  # Of the node's thousand connections; the others are for those who send and settle.

BYTES_UNKNOWN = 1 << 62

T = TypeVar("T")


class ClientGone(Exception):
    """Nobody is left to be answered."""


class WhileConnected(Protocol):
    """Does some work as long as the client is there to hear of it."""

    def __call__(self, work: Coroutine[Any, Any, T]) -> Awaitable[T]: ...


async def whatever_happens(work: Coroutine[Any, Any, T]) -> T:
    """For callers that cannot go away."""
    return await work


@dataclass(slots=True)
class Call:
    """One request: what it says, and who says it. Never changed; freezing it would cost more than all that it holds."""

    body: dict[str, Any]
    host: str = "localhost"
    who: str = ""  # For the history of messages: an access key, or an address.
    key_id: str = ""  # Set only where the signature was checked.
    while_connected: WhileConnected = field(default=whatever_happens)
    held: HeldReply | None = None  # Where an answer with messages is counted.
    size: int = BYTES_UNKNOWN  # Of the body as it came: what it carries is no larger.
    is_plain: bool = False  # All of its texts are fit for XML: JSON that is ASCII and has no escapes can hold no others.


class Desk:
    def __init__(self, queues: Queues, env: Env) -> None:
        self.queues = queues
        self.env = env
        self.changing = asyncio.Lock()  # Settings are read, changed and written back: one change at a time.
        self.long_polls = 0
        self._read: dict[str, tuple[QueueView, SqsQueue]] = {}

    def find(self, name: str) -> SqsQueue:
        """Raises SqsError where there is no such queue; a topic that is none is as good as nothing."""
        try:
            view = self.queues.describe(name)
        except QueueRefusal as refusal:
            raise as_error(refusal) from None
        known = self._read.get(name)
        if known is not None and known[0] is view:
            return known[1]
        queue = read_queue(view)
        if len(self._read) >= READ_MAX:
            self._read.clear()
        self._read[name] = (view, queue)
        return queue

    def queue_of(self, call: Call) -> SqsQueue:
        return self.find(name_in_url(call.body["QueueUrl"]))

    def all(self) -> list[SqsQueue]:
        return [self.find(name) for name in self.queues.names()]

    def url(self, call: Call, name: str) -> str:
        return queue_url(call.host, name)

    @property
    def now_s(self) -> int:
        return self.env.wall_ms() // 1_000

    async def waiting(self, call: Call, work: Coroutine[Any, Any, T]) -> T:
        """A long poll: it ends when its client is gone, and there are not too many of them."""
        if self.long_polls >= LONG_POLLS_MAX:
            work.close()
            words = f"this node has {self.long_polls} long polls waiting and takes no more; try again, or poll with WaitTimeSeconds 0"
            raise SqsError(REQUEST_THROTTLED, words)
        self.long_polls += 1
        try:
            return await call.while_connected(work)
        finally:
            self.long_polls -= 1
