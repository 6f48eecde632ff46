"""What workers that read, process and write in transactions asked for and were told, and what readers of committed records saw.

Every effect is a value of its own, and names the input record that it comes from. So whoever reads it can tell which transaction wrote it,
and a checker can count the effects of each input.

Not here: any rule (transaction_rules.py), any client.
"""

from dataclasses import dataclass, field
from enum import Enum

from penstock.vocabulary import TopicPartition


class Ending(Enum):
    UNKNOWN = "unknown"  # Its commit was asked for, and no answer told what became of it.
    COMMITTED = "committed"
    ABORTED = "aborted"  # Its commit was never asked for, or refused for certain: nothing of it may ever count.


@dataclass(frozen=True, slots=True)
class Takeover:
    """A worker became the producer of a transactional id; asked at `began`, answered at `ended`."""

    transactional_id: str
    worker: str  # This life of it.
    began: float
    ended: float


@dataclass(slots=True, eq=False)
class Effect:
    partition: TopicPartition
    value: bytes
    source: tuple[TopicPartition, int]  # The input record that it comes from.
    sent: float
    stored: float | None = None  # When it was acknowledged.


@dataclass(slots=True, eq=False)
class Transaction:
    takeover: Takeover
    group: str  # Whose input offsets are part of it.
    began: float
    effects: list[Effect] = field(default_factory=list)
    offsets: dict[TopicPartition, int] = field(default_factory=dict)  # Up to where the input is done if it is committed.
    commit_asked: float | None = None
    ending: Ending = Ending.ABORTED
    ended: float = -1.0

    def asks_for_commit(self, now: float) -> None:
        self.commit_asked, self.ending = now, Ending.UNKNOWN

    def ends(self, ending: Ending, now: float) -> None:
        self.ending, self.ended = ending, now


@dataclass(frozen=True, slots=True)
class CommittedRead:
    """What a reader of committed records saw."""

    partition: TopicPartition
    reader: str
    offset: int
    value: bytes
    at: float


@dataclass(frozen=True, slots=True)
class Ends:
    """Where a partition ended when all was over: for readers of what is committed, and for all others."""

    stable: int
    all: int


class TransactionDiary:
    def __init__(self) -> None:
        self.takeovers: list[Takeover] = []
        self.transactions: list[Transaction] = []  # In the order in which each worker began them.
        self.reads: list[CommittedRead] = []
        # What all of them can read at the end, and where the groups are then.
        self.finals: dict[TopicPartition, list[tuple[int, bytes]]] = {}
        self.committed: dict[tuple[str, TopicPartition], int] = {}
        self.ends: dict[TopicPartition, Ends] = {}

    def took_over(self, transactional_id: str, worker: str, *, began: float, ended: float) -> Takeover:
        taken = Takeover(transactional_id, worker, began, ended)
        self.takeovers.append(taken)
        return taken

    def begins(self, takeover: Takeover, group: str, now: float) -> Transaction:
        made = Transaction(takeover, group, now)
        self.transactions.append(made)
        return made

    def read(self, partition: TopicPartition, reader: str, offset: int, value: bytes, now: float) -> None:
        self.reads.append(CommittedRead(partition, reader, offset, value, now))
