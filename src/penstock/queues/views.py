"""What readers may see of a ledger, and what it owes, as plain values. Times are wall milliseconds."""

from dataclasses import dataclass

from penstock.queues.states import State


@dataclass(frozen=True, slots=True)
class Failure:
    """One delivery that did not succeed."""

    taken_ms: int
    ended_ms: int
    who: str
    reason: str  # "lapsed" where the lease ran out.


@dataclass(frozen=True, slots=True)
class MessageView:
    offset: int
    state: State
    attempts: int = 0  # How often it was given to somebody who may have worked on it.
    lease: int = 0  # The last one.
    when_ms: int = 0  # Leased: the deadline. Delayed: when it is ready, 0 where only the message's own header tells.
    first_taken_ms: int = 0
    who: str = ""  # Who holds it, or held it last.
    is_blocked: bool = False  # FIFO: ready, but another of its group is in flight or before it.
    history: tuple[Failure, ...] = ()  # The last ones, oldest first.


@dataclass(frozen=True, slots=True)
class Counts:
    ready: int = 0
    leased: int = 0
    delayed: int = 0
    burying: int = 0
    oldest_ms: int = 0  # About when the oldest unfinished message was written; 0 where there is none.
    finished: int = 0  # Since the ledger was made.
    dropped: int = 0  # Gone with the log before anybody finished them.
    is_paused: bool = False
    base: int = 0  # Every message below this is finished: a share partition's start offset.
    end: int = 0  # The next offset that the ledger will learn of.


@dataclass(frozen=True, slots=True)
class LetterOwed:
    """A message that has yet to be moved. Moving it twice must do no harm: `lease` names the move, so the other queue can tell."""

    group: str
    offset: int
    attempts: int
    failed_ms: int
    reason: str  # Of the last failure.
    history: tuple[Failure, ...]
    lease: int = 0  # Of its last delivery, or the one it got when it was sent off.
    topic_id: bytes = b""  # Where it goes, and nowhere else; empty while that is not decided.
    partition: int = 0
    is_sent_off: bool = False  # By somebody's order. Otherwise it has failed for good.
