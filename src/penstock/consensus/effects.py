"""What a core wants done. The shell carries effects out in their order and decides nothing.

What is to be persisted has a number. The shell makes these durable in the order of their numbers (many in one flush is fine) and reports
the highest that is done. A `Send` may leave at once: whatever it promises is durable already, the core has seen to that.
"""

from enum import Enum
from typing import NamedTuple

from penstock.consensus.log_view import SnapshotHead
from penstock.consensus.messages import Message
from penstock.consensus.nouns import Entry, Replica, Term
from penstock.vocabulary import NodeId, Offset


class PersistVote(NamedTuple):
    """The term that this replica lives in, and whom it votes for in it."""

    sequence: int
    term: Term
    voted_for: Replica | None


class PersistEntries(NamedTuple):
    """The log is cut to `first`, if it is longer, and goes on with these."""

    sequence: int
    first: Offset
    entries: tuple[Entry, ...]


class KeepChunk(NamedTuple):
    """A piece of a snapshot that is arriving. At position 0 whatever came before of another one is dropped. Needs no flush of its own."""

    head: SnapshotHead
    position: int
    content: bytes


class InstallSnapshot(NamedTuple):
    """All pieces are there: in one step, the snapshot takes the place of the log and of the applied state."""

    sequence: int
    head: SnapshotHead


class Send(NamedTuple):
    to: NodeId
    message: Message


class Apply(NamedTuple):
    """Entries from `first` up to `end` are committed, and on this disk: replay them."""

    first: Offset
    end: Offset


class Lead(NamedTuple):
    """This replica leads, and everything that any leader before it committed is applied here: decisions may begin."""

    term: Term


class Follow(NamedTuple):
    """This replica does not lead. What was decided here and not answered is forgotten; the applied state is right."""

    term: Term
    leader: NodeId | None


class Done(NamedTuple):
    """What was asked for is committed and applied; for a barrier: state up to here is fresh enough, and is applied."""

    end: Offset


class Reason(Enum):
    NOT_LEADER = "not leader"
    NOT_READY = "the leader has not yet committed an entry of its own term"
    OVERLOADED = "too much waits for a majority"
    TRANSFERRING = "leadership is being handed over"
    CHANGE_UNDER_WAY = "a change of voters is under way"
    NOT_CAUGHT_UP = "the replica is not an observer that has caught up"
    ALREADY_A_VOTER = "the node votes already"
    NOT_A_VOTER = "no such voter"
    LAST_VOTER = "somebody must vote"
    TRANSFER_FAILED = "no other voter took over in time"


class Refused(NamedTuple):
    """It was not done, and will not be."""

    reason: Reason
    leader: NodeId | None = None


class Unknown(NamedTuple):
    """Leadership went before a majority had it: it may or may not be done."""


Outcome = Done | Refused | Unknown


class Answer(NamedTuple):
    token: object
    outcome: Outcome


Persist = PersistVote | PersistEntries | InstallSnapshot
Effect = Persist | KeepChunk | Send | Apply | Lead | Follow | Answer
