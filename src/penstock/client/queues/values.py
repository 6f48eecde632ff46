"""What goes into a queue and what is learned of it: plain values.

Bodies, keys and header values are bytes; text is taken for its UTF-8. Headers are a dict here: a record written by a Kafka client may
repeat a name, and then the last one counts. Moments are datetimes in UTC.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from penstock.client.queues.spans import Moment, Span

Content = bytes | str
Headers = Mapping[str, Content]


@dataclass(frozen=True, slots=True)
class Draft:
    """A message to be sent, with what `send` takes. What is None is as the queue has it."""

    body: Content
    key: Content | None = None
    priority: int | None = None  # 0 to 9, more is more urgent.
    delay: Span | None = None
    at: Moment | None = None  # When to deliver it, instead of a delay.
    ttl: Span | None = None
    group: str = ""  # FIFO queues: whose order counts. Others: whom fairness is for.
    dedup: str = ""
    headers: Headers = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Attempt:
    """One delivery that did not succeed."""

    taken_at: datetime
    ended_at: datetime
    worker: str
    reason: str


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """Where a dead letter came from, and why it was given up."""

    source: str
    reason: str
    failed_at: datetime | None
    deliveries: int
    attempts: tuple[Attempt, ...]  # Of very many deliveries only some are kept.


@dataclass(frozen=True, slots=True)
class Delivery:
    """A message under a lease, as it came."""

    id: str
    receipt: str
    body: bytes
    key: bytes | None
    headers: dict[str, bytes]
    attempt: int  # 1 for the first delivery.
    sent_at: datetime
    deadline: datetime
    lease_ms: int
    priority: int
    group: str
    dead_letter: DeadLetter | None


@dataclass(frozen=True, slots=True)
class Found:
    """A message as it stands, without a lease."""

    id: str
    state: str  # ready, leased, delayed, blocked, burying, finished
    partition: int
    offset: int
    attempts: int
    ready_at: datetime | None  # When it may be lent (again); of a leased one: when its lease ends.
    worker: str  # Who holds it, or held it last.
    sent_at: datetime
    key: bytes | None
    body: bytes | None  # None: it is not in the log any more.
    headers: dict[str, bytes]
    history: tuple[Attempt, ...]
    dead_letter: DeadLetter | None

    @property
    def text(self) -> str:
        return (self.body or b"").decode()

    def json(self) -> Any:
        import json

        return json.loads(self.body or b"null")


@dataclass(frozen=True, slots=True)
class Counts:
    ready: int
    leased: int
    delayed: int
    burying: int
    finished: int  # Since the queue was made.
    dropped: int  # Lost with the log they lay in before anybody finished them.
    oldest_at: datetime | None  # When the oldest unfinished message was sent.
    is_paused: bool

    @property
    def unfinished(self) -> int:
        return self.ready + self.leased + self.delayed + self.burying


@dataclass(frozen=True, slots=True)
class QueueView:
    """What a queue is: its partitions, and the settings that were chosen for it."""

    name: str
    partitions: int
    settings: dict[str, str]

    @property
    def dead_letters(self) -> str:
        """The queue of its dead letters, if it has one."""
        return self.settings.get("queue.dead.letter", "")


def as_bytes(content: Content, name: str) -> bytes:
    """`name` is the argument's, for the person who gave it something else."""
    if isinstance(content, str):
        return content.encode()
    if isinstance(content, bytes | bytearray | memoryview):
        return bytes(content)
    raise TypeError(f"{name} must be bytes or text, not {type(content).__name__}; of anything else send json.dumps(…)")
