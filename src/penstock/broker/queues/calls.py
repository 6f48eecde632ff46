"""What doors say to the queues of a node, and hear: the nouns of the facade (facade.py).

A *draft* is a message to be sent, *sent* says where it is, *lent* is one that was taken under a lease, an *order* settles one that was
lent, a *verdict* says what became of that. All times are wall milliseconds. Whatever is refused is a `QueueRefusal`, with a code that a
door maps to its own and a sentence for the person behind it; nothing is half done by a refused call.
Whatever there is one of for each message is a named tuple: it is made in half the time of a dataclass.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple

from penstock.queues.views import Failure
from penstock.vocabulary import TopicId

QUEUE_GROUP = "$queue"  # The group of ledgers that the SQS door and the Python door share.

COUNT_MAX = 1_000  # Messages of one send, take or settle.
WAIT_SECONDS_MAX = 60.0  # Of one take.
LENT_BYTES_MAX = 12 << 20  # Of one take, about: ten of SQS's largest messages. One message is given whatever its size.
PEEKED_BYTES_MAX = 8 << 20  # Of the bodies of one peek, about.


class Code(StrEnum):
    """Why a call was refused."""

    NO_SUCH_QUEUE = "no_such_queue"
    EXISTS_WITH_OTHER_SETTINGS = "exists_with_other_settings"
    NOT_A_QUEUE = "not_a_queue"  # A topic of this name is there, and has no queue settings.
    INVALID = "invalid"  # What was asked makes no sense: the words say which field, and what it may be.
    FULL = "full"  # The queue's limit on messages is reached. Send later, or raise the limit.
    TOO_LARGE = "too_large"
    IN_FLIGHT_LIMIT = "in_flight_limit"  # Too many messages are lent and not settled.
    INVALID_HANDLE = "invalid_handle"
    LEASE_LOST = "lease_lost"
    NO_SUCH_TASK = "no_such_task"
    CHANGED = "changed"  # What the change was to stand on was changed by somebody else meanwhile: read it again.
    BUSY = "busy"  # Another one of this kind is under way: one redrive of a queue at a time.
    NOT_AVAILABLE = "not_available"  # No leader, loading, disk full, too few replicas, another node does not answer: come again.


class QueueRefusal(Exception):
    def __init__(self, code: Code, words: str) -> None:
        super().__init__(words)
        self.code = code
        self.words = words


class Verb(StrEnum):
    DONE = "done"
    RELEASE = "release"  # It failed and may be tried again: after `delay_ms`, or after the queue's backoff.
    REJECT = "reject"  # It can never succeed: to the dead letters at once (finished, where the queue has none).
    EXTEND = "extend"  # The lease ends `delay_ms` from now; 0 gives the message back at once: no failure, but a delivery that counts.
    RETURN = "return"  # Nobody has worked on it: ready at once, and that delivery is not counted.
    UNDO = "undo"  # Said by nodes alone: nobody has seen the message, and that delivery is not counted.


class Outcome(StrEnum):
    OK = "ok"
    GONE = "gone"  # Finished before: by this handle, another one, a purge or a time-out.
    LOST = "lost"  # The lease has lapsed, or the message is lent to somebody else.
    UNKNOWN = "unknown"  # No such message was ever lent from here.
    TOO_LONG = "too_long"  # A lease lasts twelve hours at most, all extensions included. It goes on as it was.


class Draft(NamedTuple):
    """A message to be sent. Options that are None are the queue's."""

    body: bytes
    key: bytes | None = None
    headers: tuple[tuple[str, bytes | None], ...] = ()  # The sender's own, and a door's (`sqs.*`). `penstock.*` ones are written here.
    priority: int | None = None  # 0 to 9, more is more urgent.
    delay_ms: int | None = None
    deliver_at_ms: int | None = None  # Instead of a delay.
    ttl_ms: int | None = None
    group: str = ""  # FIFO queues: whose order counts. Others: whom fairness is for.
    dedup: str = ""
    kept_id: str = ""  # The id that a message brings along from another queue.
    moved: str = ""  # Which move of which message this is (queues/moves.py): it is sent once, however often it is tried, whenever.


class Sent(NamedTuple):
    id: str  # Of the first copy, where this is a duplicate.
    partition: int
    offset: int
    sent_ms: int
    is_duplicate: bool = False


class Lent(NamedTuple):
    """A message under a lease."""

    id: str
    handle: str
    partition: int
    offset: int
    attempt: int  # 1 for the first delivery.
    deadline_ms: int  # Of the lease.
    first_taken_ms: int
    sent_ms: int
    key: bytes | None
    body: bytes
    headers: tuple[tuple[str, bytes | None], ...]  # All that the record has, `penstock.*` among them.


def size_of(lent: Lent) -> int:
    """What its message takes, apart from small things."""
    size = len(lent[8] or b"") + len(lent[9])
    return size + sum(len(content or b"") for _, content in lent[10]) if lent[10] else size


def size_of_peeked(peeked: "Peeked") -> int:
    return len(peeked.key or b"") + len(peeked.body or b"") + sum(len(content or b"") for _, content in peeked.headers)


class Order(NamedTuple):
    """What is to become of a message that was lent."""

    handle: str
    verb: Verb
    delay_ms: int | None = None
    reason: str = ""  # Kept in the message's history: what went wrong.
    who: str = ""


class Verdict(NamedTuple):
    """Of one order. `refusal` is set where there is no outcome at all: a handle that is none, a partition that cannot be reached."""

    outcome: Outcome = Outcome.OK
    deadline_ms: int = 0  # Of the lease, after EXTEND; when it may be lent again, after RELEASE.
    refusal: QueueRefusal | None = None


class State(StrEnum):
    READY = "ready"
    LEASED = "leased"
    DELAYED = "delayed"  # By its sender, or by backoff.
    BLOCKED = "blocked"  # FIFO: behind another of its group.
    BURYING = "burying"  # On its way to the dead letters.
    FINISHED = "finished"


@dataclass(frozen=True, slots=True)
class Peeked:
    """A message as it stands, without a lease."""

    id: str
    partition: int
    offset: int
    state: State
    attempts: int
    ready_at_ms: int  # When it may be lent (again): 0 for now. Of a leased one: when its lease ends.
    who: str  # Who holds it, or held it last.
    sent_ms: int
    key: bytes | None = None
    body: bytes | None = None  # None: the record is not in the log any more.
    headers: tuple[tuple[str, bytes | None], ...] = ()
    history: tuple[Failure, ...] = ()


@dataclass(frozen=True, slots=True)
class Counts:
    ready: int = 0
    leased: int = 0
    delayed: int = 0
    burying: int = 0
    oldest_ms: int = 0  # When the oldest unfinished message was sent; 0 where there is none.
    finished: int = 0  # Since the ledger was made.
    dropped: int = 0  # Lost with the log they lay in (DeleteRecords, retention) before anybody finished them.
    is_paused: bool = False


def added_up(every: Sequence[Counts]) -> Counts:
    """Of all partitions of a queue together."""
    return Counts(
        sum(each.ready for each in every), sum(each.leased for each in every), sum(each.delayed for each in every),
        sum(each.burying for each in every), min((each.oldest_ms for each in every if each.oldest_ms), default=0),
        sum(each.finished for each in every), sum(each.dropped for each in every), any(each.is_paused for each in every),
    )  # fmt: skip


@dataclass(frozen=True, slots=True)
class QueueView:
    """What the metadata says of a queue."""

    name: str
    topic_id: TopicId
    partitions: int
    settings: dict[str, str]  # The topic's own: `queue.*` and all others that were set.


@dataclass(frozen=True, slots=True)
class Filter:
    """Which dead letters are meant: those that fit everything that is given."""

    reason: str = ""  # A part of the text.
    source: str = ""  # The queue that they came from.
    failed_after_ms: int = 0
    failed_before_ms: int = 0
    ids: frozenset[str] = field(default_factory=frozenset)


class TaskStatus(StrEnum):
    RUNNING = "running"
    COMPLETED = "completed"
    CANCELLING = "cancelling"
    CANCELLED = "cancelled"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class Redrive:
    """Dead letters are to be sent back: each to where it came from, or all to one queue."""

    target: str = ""  # Empty: each to its source.
    filter: Filter = field(default_factory=Filter)
    per_second_max: int = 0  # 0: as fast as it goes.
    count_max: int = 0  # 0: all that are there when it begins.
    is_dry_run: bool = False  # Counts what would be moved, moves nothing.


@dataclass(slots=True)
class RedriveTask:
    """One run, as it was when it was looked at."""

    handle: str
    queue: str
    wish: Redrive
    started_ms: int
    to_move: int = 0  # Those that fit: with a filter, as far as they were seen; without one all that were ready, about.
    moved: int = 0
    status: TaskStatus = TaskStatus.RUNNING
    failure: str = ""
    by_target: dict[str, int] = field(default_factory=dict)  # How many went, or would go, where.
