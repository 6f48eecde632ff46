"""What senders and workers of queues asked for and were told, and what was left when all was over.

Every body is a value of its own, so whoever gets one can tell which send it comes from. A message is named by its place: queue, partition
and offset. An answer that never came leaves its outcome open: it may have happened, now or later.

Not here: any rule (queue_rules.py), any client.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import Enum

from penstock.broker.queues.calls import Outcome, Verb
from penstock.simulator.env import FIRST_WALL_MS
from penstock.simulator.loop import FIRST_INSTANT
from penstock.simulator.places import Place
from penstock.simulator.share_diary import ShareDiary

FOREVER = float("inf")


def wall_ms(instant: float) -> int:
    """What the clock of a node says then, as long as it is right."""
    return FIRST_WALL_MS + int((instant - FIRST_INSTANT) * 1_000)


class Told(Enum):
    UNKNOWN = "unknown"
    ACKNOWLEDGED = "acknowledged"
    FAILED = "failed for certain"  # The message must not appear.


@dataclass(frozen=True, slots=True)
class QueueTerms:
    """What a queue was told to be, as far as rules need it."""

    name: str
    is_fifo: bool = False
    deliveries_max: int = 0
    dead_letter: str = ""
    has_priorities: bool = True


@dataclass(slots=True, eq=False)
class SendTold:
    queue: str
    sender: str
    body: bytes
    group: str
    dedup: str
    priority: int
    deliver_at_ms: int  # At the earliest, as its sender reckoned; 0: at once.
    began: float
    outcome: Told = Told.UNKNOWN
    place: Place | None = None  # Of the first copy, where it is a duplicate.
    id: str = ""
    is_duplicate: bool = False
    ended: float = -1.0

    def acknowledged(self, place: Place, message_id: str, now: float, *, is_duplicate: bool) -> None:
        self.outcome, self.place, self.id, self.is_duplicate, self.ended = Told.ACKNOWLEDGED, place, message_id, is_duplicate, now

    def failed(self, now: float) -> None:
        self.outcome, self.ended = Told.FAILED, now


@dataclass(slots=True, eq=False)
class SettleTold:
    verb: Verb
    delay_ms: int | None
    asked: float
    outcome: Outcome | None = None  # None: no answer told.
    when_ms: int = 0
    ended: float = -1.0

    @property
    def may_have_happened(self) -> bool:
        """A settle is asked again where its answer got lost between nodes: then the first time was it, and the second came too late."""
        return self.outcome is not Outcome.UNKNOWN

    @property
    def gives_back(self) -> bool:
        return self.verb in (Verb.RELEASE, Verb.RETURN, Verb.REJECT) or (self.verb is Verb.EXTEND and self.delay_ms == 0)


@dataclass(slots=True, eq=False)
class DeliveryTold:
    place: Place
    lease: int  # Later ones of a partition are larger.
    id: str
    body: bytes
    attempt: int
    decided_ms: int  # By the clock of whoever lent it.
    deadline_ms: int
    taker: str
    take: int  # Which take brought it.
    asked: float
    at: float
    headers: dict[str, bytes]
    settled: list[SettleTold] = field(default_factory=list)


@dataclass(slots=True, eq=False)
class Decree:
    """A purge, a pause or its end, a rewind, a changed delay, a redrive: asked for at `asked`, answered at `ended`."""

    queue: str
    kind: str
    asked: float
    ended: float | None = None  # None: no answer told.
    to_ms: int = 0  # Of a rewind.


@dataclass(frozen=True, slots=True)
class Left:
    """A message that was not finished when all was over."""

    place: Place
    id: str
    state: str


class QueueDiary:
    def __init__(self) -> None:
        self.terms: dict[str, QueueTerms] = {}
        self.sends: list[SendTold] = []
        self.deliveries: list[DeliveryTold] = []
        self.takes = 0
        self.unheard: dict[str, int] = {}  # For each queue, takes without an answer: each may have lent what nobody ever saw.
        self.decrees: list[Decree] = []
        self.shares = ShareDiary()
        self.left: list[Left] | None = None  # None: nobody could look.
        self.clocks_are_right = True
        self.answers_cross_nodes = False
        self.logs_failed = False  # Under a take of several partitions, which then answers with what the others have.

    def take_begins(self) -> int:
        self.takes += 1
        return self.takes

    def take_unheard(self, queue: str) -> None:
        self.unheard[queue] = self.unheard.get(queue, 0) + 1

    def by_place(self) -> dict[Place, list[DeliveryTold]]:
        """Of each message, in the order in which they were decided."""
        found: dict[Place, list[DeliveryTold]] = {}
        for delivery in sorted(self.deliveries, key=lambda each: each.lease):
            found.setdefault(delivery.place, []).append(delivery)
        return found

    def acknowledged(self) -> Iterator[tuple[SendTold, Place]]:
        for send in self.sends:
            if send.place is not None:
                yield send, send.place

    def of_kind(self, kind: str, queue: str) -> list[Decree]:
        return [decree for decree in self.decrees if decree.kind == kind and decree.queue == queue]

    def is_rewound(self, queue: str, since: float = 0.0, until: float = FOREVER) -> bool:
        """Whether that may have been between these moments: what was done is ready again, and what was tried was never tried."""
        return any(decree.asked < until and (decree.ended or FOREVER) > since for decree in self.of_kind("rewind", queue))
