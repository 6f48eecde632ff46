"""What the askers hear: one shape for each command. What was asked item by item is answered item by item, in that order."""

from dataclasses import dataclass
from enum import IntEnum
from typing import NamedTuple


class Code(IntEnum):
    OK = 0
    GONE = 1  # Finished before.
    LOST = 2  # The lease has lapsed, or the message was given to somebody else.
    UNKNOWN = 3  # There is no such message, or it was never given to anybody.
    TOO_LONG = 4  # A lease lasts twelve hours at most, all extensions included; it has its old deadline still.


class Fault(IntEnum):
    """Why a whole command was refused; nothing of it was done."""

    NONE = 0
    NO_SUCH_GROUP = 1  # `Start` makes one.
    INVALID = 2  # Beyond a bound of commands.py.
    TOO_MANY_GROUPS = 3
    TOO_SOON = 4  # After the last one of its kind.
    TOO_MANY_NOTES = 5


class Delivery(NamedTuple):
    offset: int
    attempt: int  # 1 for the first delivery.
    lease: int  # Differs for every delivery of a ledger; never 0.
    deadline_ms: int
    first_taken_ms: int


class Taken(NamedTuple):
    deliveries: tuple[Delivery, ...]  # In the order in which they are to be worked on. Empty: nothing is ready.
    is_over_limit: bool = False  # As many are in flight as may be.
    is_paused: bool = False
    fault: Fault = Fault.NONE


class Outcome(NamedTuple):
    code: Code
    when_ms: int = 0  # Of EXTEND: the new deadline. Of RELEASE: when it is ready again. Of LOST: the deadline of who holds it now, or 0.
    is_buried: bool = False  # It was released or rejected, and now waits to be moved to the dead letters.


class Settled(NamedTuple):
    outcomes: tuple[Outcome, ...]
    fault: Fault = Fault.NONE


class Exchanged(NamedTuple):
    taken: tuple[Taken | None, ...]  # For each of the swaps. None: nothing was decided for it; its two halves may be asked for in turn.


@dataclass(frozen=True, slots=True)
class Done:
    """To everything else. `count`: how many messages it was done to."""

    count: int = 0
    fault: Fault = Fault.NONE


Reply = Taken | Settled | Exchanged | Done
