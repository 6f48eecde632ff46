"""What may happen to a core: facts from the shell, and orders from whoever asks. Orders carry a token; each token is answered once."""

from typing import NamedTuple

from penstock.consensus.messages import Message
from penstock.consensus.nouns import Replica
from penstock.vocabulary import NodeId, Offset


class TimePassed(NamedTuple):
    """`Core.due` has come. Too early or too late is harmless."""


class Received(NamedTuple):
    message: Message


class Persisted(NamedTuple):
    """Everything that was to be persisted up to this number is on the disk, in that order."""

    sequence: int


class SnapshotTaken(NamedTuple):
    """The shell has a durable snapshot of the entries below this; the log may begin here, or earlier."""

    end: Offset


class Propose(NamedTuple):
    token: object
    payload: bytes


class AddVoter(NamedTuple):
    """An observer that has caught up shall vote."""

    token: object
    replica: Replica


class RemoveVoter(NamedTuple):
    token: object
    replica: Replica


class AskBarrier(NamedTuple):
    """Up to where must state be applied, so that it has everything that anybody was told before this question?"""

    token: object


class TransferLeadership(NamedTuple):
    """To this node, or to the voter that has come farthest."""

    token: object
    to: NodeId | None = None


Order = Propose | AddVoter | RemoveVoter | AskBarrier | TransferLeadership
Event = TimePassed | Received | Persisted | SnapshotTaken | Order
