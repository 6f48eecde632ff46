"""A fetch session (KIP-227), the client's side: what is wished for, and what of it must be said to the node.

In a session a client names only what changed since its last fetch, and a node answers only with what has news. The node numbers the
fetches of a session; a lost answer leaves the number uncertain, so the session is then given up and another one opened in the same
breath. A node that does not keep sessions answers with id 0, and every fetch stays a full one.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from penstock.errors import ErrorCode
from penstock.vocabulary import TopicId, TopicPartition

NO_SESSION = 0
EPOCH_FULL = 0  # Opens a session, and closes the one that is named beside it.
EPOCH_NONE = -1  # No session is wanted; with an id: that one is closed.
EPOCH_END = (1 << 31) - 1


@dataclass(frozen=True, slots=True)
class FetchWish:
    partition: TopicPartition
    topic_id: TopicId
    offset: int
    leader_epoch: int = -1
    bytes_max: int = 1 << 20


class FetchPlan(NamedTuple):
    session_id: int
    session_epoch: int
    ask: Sequence[FetchWish]
    forget: Sequence[FetchWish]

    @property
    def is_full(self) -> bool:
        return self.session_epoch <= EPOCH_FULL


class FetchSession:
    """The client's side of a session with one node."""

    def __init__(self) -> None:
        self._id = NO_SESSION
        self._epoch = EPOCH_FULL
        self._held: dict[TopicPartition, FetchWish] = {}  # What the node remembers of this session.

    @property
    def is_open(self) -> bool:
        return self._id != NO_SESSION

    def plan(self, wishes: Sequence[FetchWish]) -> FetchPlan:
        if self._epoch == EPOCH_FULL:
            return FetchPlan(self._id, EPOCH_FULL, wishes, ())
        wished = {wish.partition: wish.topic_id for wish in wishes}
        return FetchPlan(
            self._id,
            self._epoch,
            [wish for wish in wishes if self._held.get(wish.partition) != wish],
            [held for held in self._held.values() if wished.get(held.partition) != held.topic_id],
        )

    def accept(self, plan: FetchPlan, session_id: int) -> None:
        """The node answered `plan` without an error."""
        if session_id == NO_SESSION:
            self._id, self._epoch = NO_SESSION, EPOCH_FULL
            return
        if plan.is_full:
            self._held.clear()
        for wish in plan.forget:
            del self._held[wish.partition]
        self._held.update((wish.partition, wish) for wish in plan.ask)
        self._id = session_id
        self._epoch = plan.session_epoch + 1 if plan.session_epoch < EPOCH_END else 1

    def restart(self, code: int = ErrorCode.NONE) -> None:
        """The next fetch is a full one. A session that the node may still hold is named in it, so that the node can let go of it."""
        if code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND:
            self._id = NO_SESSION
        self._epoch = EPOCH_FULL

    def plan_close(self) -> FetchPlan:
        return FetchPlan(self._id, EPOCH_NONE, (), ())


def full_plan(wishes: Sequence[FetchWish]) -> FetchPlan:
    """A fetch without any session."""
    return FetchPlan(NO_SESSION, EPOCH_NONE, wishes, ())
