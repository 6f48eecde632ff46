"""What may be wanted of a ledger: orders, freed of doors and bytes.

Each carries the token of whom to answer, which is answered once, and the group whose ledger is meant. All times are wall milliseconds.
Not here: what the answers look like (replies.py).
"""

from collections.abc import Hashable
from dataclasses import dataclass
from enum import IntEnum
from typing import NamedTuple

QUEUE_GROUP = "$queue"  # Whose ledger the SQS door and the Python door share. It is there without a `Start`, from the log's first message.

Token = Hashable

COUNT_MAX = 1_000  # Messages of one Take, and items of one Settle: what one decision writes fits into a batch, and holds nobody up.
RANGE_MAX = 10_000  # Messages of all ranges of one Settle.
GROUP_BYTES_MAX = 249  # Of a group's name.
WHO_BYTES_MAX = 64  # Longer names of workers are cut.
REASON_BYTES_MAX = 200  # Longer reasons are cut.
ATTEMPT_ID_BYTES_MAX = 128
ATTEMPT_ID_MS = 300_000  # For how long the same attempt id gets the same batch, as SQS has it.

EARLIEST, LATEST = -2, -1  # For `Start`, by the numbers of ListOffsets.
ANY_LEASE = 0  # In a settlement: whoever holds it must be `who`.


class Verb(IntEnum):
    DONE = 1
    RELEASE = 2  # It failed: ready again after `delay_ms`, or after the policy's backoff where that is None.
    REJECT = 3  # It can never succeed: buried at once.
    EXTEND = 4  # The lease ends `delay_ms` from now. 0 gives it back at once: no failure, but one of the deliveries that it may have.
    UNDO = 5  # Nobody has seen it: back at once, and the delivery does not count. Refused where somebody may have it.
    RETURN = 6  # Its holder has not worked on it: the same, whoever has it.


class Settlement(NamedTuple):
    """Of one message; or, with an `end_offset`, of all in [offset, end_offset) that were delivered, all of them or none."""

    offset: int
    lease: int  # Which delivery of it, or ANY_LEASE.
    verb: Verb
    delay_ms: int | None = None
    reason: str = ""
    who: str = ""
    end_offset: int = 0


@dataclass(slots=True)  # Not frozen, which would cost more than all the rest of it; nobody changes it.
class Take:
    token: Token
    group: str
    count: int
    lease_ms: int | None  # None: the policy's.
    who: str
    attempt_id: bytes = b""  # Who asks again with the same one within five minutes gets the same batch and leases again...
    only_again: bool = False  # ...and nothing else.


class Settle(NamedTuple):
    token: Token
    group: str
    items: tuple[Settlement, ...]
    is_whole: bool = False  # Unless all of it can be done, nothing is.
    is_dropped: bool = False  # What it finishes was lost with its log, and is counted as such.


class Swap(NamedTuple):
    """What `who` holds is done, all of these runs, and it gets others, for as long as the policy says."""

    items: tuple[Settlement, ...]  # Empty: it only gets others.
    wanted: int
    who: str


class Exchange(NamedTuple):
    """What several members of a share group want at once, in one decision, as far as that comes to the same as one after the other: each
    hears whether it was decided for them."""

    token: Token
    group: str
    swaps: tuple[Swap, ...]  # Each of another member.


@dataclass(frozen=True, slots=True)
class ReleaseAll:
    """Whatever `who` holds goes back at once, as by RETURN: a member of a share group has left, or its connection is gone. A bounded
    piece of it: who hears that it was COUNT_MAX orders it again."""

    token: Token
    group: str
    who: str


@dataclass(frozen=True, slots=True)
class Cancel:
    """Finishes messages that nobody holds: ready or delayed ones."""

    token: Token
    group: str
    offsets: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Purge:
    """Finishes all that is there now: ready, delayed and in flight. The queue's own purge (QUEUE_GROUP) also forgets dedup ids."""

    token: Token
    group: str
    unless_since_ms: int | None = None  # Refused where there was a purge after this.


@dataclass(frozen=True, slots=True)
class Pause:
    token: Token
    group: str


@dataclass(frozen=True, slots=True)
class Resume:
    token: Token
    group: str


@dataclass(frozen=True, slots=True)
class NoteDelay:
    """The queue's own delay is what the policy says now: from which message on, is recorded. Ordered when it may have changed."""

    token: Token
    group: str


@dataclass(frozen=True, slots=True)
class Rewind:
    """All from `to_offset` on is to be done again, apart from what is in flight. Whoever runs the ledger must teach it those anew."""

    token: Token
    group: str
    to_offset: int


@dataclass(frozen=True, slots=True)
class Start:
    """A ledger for a group, from an offset, EARLIEST or LATEST on. One that is there begins anew: all leases are void."""

    token: Token
    group: str
    at: int


@dataclass(frozen=True, slots=True)
class Forget:
    token: Token
    group: str


@dataclass(frozen=True, slots=True)
class Bind:
    """The first step of a move: these messages go to this partition of another queue, and nowhere else. They are being buried already;
    or, where they are `sent_off`, they are ready, and nobody gets them from now on. Others are passed over."""

    token: Token
    group: str
    topic_id: bytes
    partition: int
    offsets: tuple[int, ...]
    sent_off: bool = False


@dataclass(frozen=True, slots=True)
class Unbind:
    """Messages that were sent off and cannot go there: ready again, as if nothing had been."""

    token: Token
    group: str
    offsets: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Note:
    """Something to be kept with the ledgers, by name; an empty text forgets it. What it means is not known here."""

    token: Token
    name: str
    text: bytes


@dataclass(frozen=True, slots=True)
class Buried:
    """The last step of a dead letter: it is safe in the other queue. Nothing happens to messages that are not being buried."""

    token: Token
    group: str
    offsets: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Trimmed:
    """The data log begins at `to_offset` now: what was before it is gone, for all groups."""

    token: Token
    to_offset: int


@dataclass(frozen=True, slots=True)
class Abandoned:
    """The asker has hung up. Every decision answers at once, so there is nothing to forget."""

    token: Token


OfLedger = (
    Take | Settle | Exchange | ReleaseAll | Cancel | Purge | Pause | Resume | NoteDelay | Rewind | Forget | Bind | Unbind | Buried
)  # One that is there.
Command = OfLedger | Start | Trimmed | Note | Abandoned
