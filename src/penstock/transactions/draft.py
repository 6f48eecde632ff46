"""A decision in the making: what will be recorded, and who will hear what; and what may be forgotten beside it.

Every record goes through `save`, which knows the legal moves. What is noted in the sessions on the way must not become wrong if the records
cannot be stored: a deadline of a transaction that has not begun is found out when it comes, and a marker that was written stays written.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

from penstock.alarms import Alarms
from penstock.errors import require
from penstock.transactions.bounds import TransactionSettings
from penstock.transactions.commands import Token
from penstock.transactions.records import Record, TransactionPartition, TransactionSaved
from penstock.transactions.replies import Reply
from penstock.transactions.states import MOVES, TransactionState
from penstock.vocabulary import Instant


@dataclass(frozen=True, slots=True)
class Decision:
    """What becomes true, and who hears what of it."""

    records: list[Record]
    replies: list[tuple[Token, Reply]]


@dataclass(slots=True)
class Sessions:
    """What may be forgotten: after a reload all markers are owed again, and time-outs are reckoned by the wall clock."""

    deadlines: dict[str, Instant] = field(default_factory=dict)  # When the open transaction is over. None is known right after loading.
    alarms: Alarms = field(default_factory=Alarms)  # For every open transaction, at or before its deadline.
    unwritten: dict[str, dict[TransactionPartition, None]] = field(default_factory=dict)  # Where some have their marker: those that don't.
    news: dict[str, None] = field(default_factory=dict)  # Whose markers are owed since this was last asked for.


class Draft:
    def __init__(
        self, sessions: Sessions, settings: TransactionSettings, free_bytes: Callable[[], int], now: Instant, wall_ms: int
    ) -> None:
        self.sessions = sessions
        self.settings = settings
        self.free_bytes = free_bytes
        self.now = now
        self.wall_ms = wall_ms
        self.records: list[Record] = []
        self._replies: list[tuple[Token, Reply]] = []

    def answer(self, token: Token, reply: Reply) -> None:
        self._replies.append((token, reply))

    def save(self, before: TransactionSaved | None, after: TransactionSaved) -> None:
        state = TransactionState.EMPTY if before is None else before.state
        require((state, after.state) in MOVES, "a transactional id makes legal moves only")
        self.records.append(after)

    def after(self, wait_ms: int) -> Instant:
        return Instant(self.now + wait_ms / 1000)

    def decision(self) -> Decision:
        return Decision(self.records, self._replies)
