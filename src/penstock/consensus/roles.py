"""The roles of a replica, and the only moves between them.

`MOVES` is the table that the reference page prints: from, to, and what causes it. A move that isn't in it stops the node.
An observer is a follower that is no voter: it knocks where others would stand for election.
"""

from abc import ABC, abstractmethod
from enum import StrEnum

from penstock.consensus.messages import Message
from penstock.vocabulary import Instant, NodeId


class RoleName(StrEnum):
    FOLLOWER = "follower"
    PROSPECTIVE = "prospective"
    CANDIDATE = "candidate"
    LEADER = "leader"


_F, _P, _C, _L = RoleName.FOLLOWER, RoleName.PROSPECTIVE, RoleName.CANDIDATE, RoleName.LEADER

MOVES: dict[tuple[RoleName, RoleName], str] = {
    (_F, _P): "a voter has heard from no leader for an election time-out: it asks whether it would be elected, and changes nothing yet",
    (_F, _C): "the leader asks it to take over",
    (_F, _F): "a higher term is heard of",
    (_P, _C): "a majority would vote for it: it begins a new term and votes for itself",
    (_P, _F): "a leader or a higher term is heard of",
    (_P, _P): "nobody answered in time: it asks again",
    (_C, _L): "a majority has voted for it, its own durable vote included",
    (_C, _F): "a leader or a higher term is heard of",
    (_C, _P): "the election ended without a winner",
    (_L, _F): "a higher term is heard of, no majority is heard of for an election time-out, or it is no longer a voter",
}


class Role(ABC):
    """One of them. Each method that lets time or messages in says which role comes next, or None to stay."""

    name: RoleName
    # When `time_passed` wants to be called.
    due: Instant
    # Who leads in this term, as far as this replica knows.
    leader: NodeId | None

    @abstractmethod
    def time_passed(self, now: Instant) -> RoleName | None: ...

    @abstractmethod
    def receive(self, message: Message, now: Instant) -> RoleName | None:
        """A message of this term, or the reply to a trial vote."""

    @abstractmethod
    def persisted(self, now: Instant) -> RoleName | None:
        """Something of this replica's has become durable."""

    @abstractmethod
    def hears_a_leader(self, now: Instant) -> bool:
        """Whether a leader was heard so recently that nobody else should be elected."""

    def leave(self) -> None:  # noqa: B027 (most roles owe nobody anything)
        """The role ends."""
