"""What replicas say to each other.

Each message names its sender with the directory, and the sender's term. Messages may be lost, doubled, delayed and overtaken; every rule
holds all the same. The shell gives them bytes, checks the cluster id and carries them: a message to a node goes to whoever is there.
"""

from typing import NamedTuple

from penstock.consensus.log_view import SnapshotHead
from penstock.consensus.nouns import Entry, Replica, Term
from penstock.vocabulary import Offset


class VoteRequest(NamedTuple):
    """Would you, or do you, vote for me?"""

    sender: Replica
    term: Term
    voter: Replica  # Who is asked. Another directory under the same node is somebody else and stays silent.
    is_trial: bool  # A pre-vote (KIP-996): asks, and changes nothing.
    is_by_transfer: bool  # The leader itself wants this election: its voice need not have died away.
    last_term: Term
    end: Offset


class VoteReply(NamedTuple):
    sender: Replica
    term: Term
    asked_term: Term
    is_trial: bool
    is_granted: bool


class Append(NamedTuple):
    """The leader's entries, from `first` on. Without entries it is a heartbeat, and says the same about what is before `first`."""

    sender: Replica
    term: Term
    first: Offset
    previous_term: Term
    entries: tuple[Entry, ...]
    committed_end: Offset
    round: int  # Of the leader's questions whether it still leads; echoed.


class AppendReply(NamedTuple):
    """Accepted: everything below `end` is the leader's and on my disk. Refused: my log may agree up to `end`, which is of `last_term`."""

    sender: Replica
    term: Term
    is_accepted: bool
    first: Offset  # Of the append that is refused.
    end: Offset
    last_term: Term
    round: int


class Chunk(NamedTuple):
    """A piece of the leader's snapshot, for a replica that needs entries which the leader no longer has."""

    sender: Replica
    term: Term
    head: SnapshotHead
    position: int
    content: bytes
    round: int


class ChunkReply(NamedTuple):
    sender: Replica
    term: Term
    end: Offset  # Of the snapshot.
    position: int  # Where it goes on.
    round: int


class TakeOver(NamedTuple):
    """Stand for election at once: the leader wishes to go, and you have everything that it has."""

    sender: Replica
    term: Term


class Knock(NamedTuple):
    """I do not vote and hear from no leader: whoever leads, send me the log."""

    sender: Replica
    term: Term


Message = VoteRequest | VoteReply | Append | AppendReply | Chunk | ChunkReply | TakeOver | Knock
