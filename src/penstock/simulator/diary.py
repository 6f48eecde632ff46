"""The diary of promises: what clients asked for, what they were told, what they saw. Checkers judge it afterwards.

Clients write facts and no opinions. Every value is written once and is unique in its partition, so that a value names the attempt that
wrote it and checkers stay near linear. An attempt that is never heard of again stays unknown: it may be in the log or not, now or later.

Not here: any rule (checkers.py), any client.
"""

from dataclasses import dataclass, field
from enum import Enum

from penstock.simulator.membership_diary import MembershipDiary
from penstock.simulator.queue_diary import QueueDiary
from penstock.simulator.transaction_diary import TransactionDiary
from penstock.vocabulary import TopicPartition


class Outcome(Enum):
    UNKNOWN = "unknown"
    ACKNOWLEDGED = "acknowledged"
    FAILED = "failed for certain"  # The node said no, or was never reached: the value must not appear.


@dataclass(slots=True, eq=False)
class Attempt:
    partition: TopicPartition
    producer: str
    value: bytes
    began: float
    is_idempotent: bool
    key: bytes | None = None
    is_tombstone: bool = False
    outcome: Outcome = Outcome.UNKNOWN
    offset: int = -1
    ended: float = -1.0

    def acknowledged(self, offset: int, now: float) -> None:
        self.outcome, self.offset, self.ended = Outcome.ACKNOWLEDGED, offset, now

    def failed(self, now: float) -> None:
        self.outcome, self.ended = Outcome.FAILED, now


@dataclass(frozen=True, slots=True)
class Read:
    partition: TopicPartition
    reader: str
    offset: int
    value: bytes
    at: float


@dataclass(frozen=True, slots=True)
class Seek:
    """The reader moved on purpose: its next read is at this offset."""

    partition: TopicPartition
    reader: str
    offset: int


@dataclass(frozen=True, slots=True)
class Watermark:
    """A node told someone where the readable log ends; asked at `began`, answered at `ended`."""

    partition: TopicPartition
    end_offset: int
    began: float
    ended: float
    # Who asked, where only what that one was told before counts: a leader of the past may go on telling others what it knows.
    reader: str = ""


@dataclass(slots=True)
class FinalLog:
    """One partition as it was read from start to end, when all trouble was over."""

    start_offset: int
    end_offset: int
    records: list[tuple[int, bytes]] = field(default_factory=list)
    at: float = 0.0  # When it had been read.


@dataclass(frozen=True, slots=True)
class Assigned:
    """What a member of a group was told that it owns."""

    group: str
    generation: int
    member: str
    partitions: tuple[TopicPartition, ...]


@dataclass(slots=True, eq=False)
class Committing:
    """A member's attempt to commit an offset."""

    group: str
    partition: TopicPartition
    offset: int
    began: float
    outcome: Outcome = Outcome.UNKNOWN
    ended: float = -1.0


@dataclass(frozen=True, slots=True)
class Committed:
    """What somebody was told of a group's committed offset; asked at `began`, answered at `ended`."""

    group: str
    partition: TopicPartition
    offset: int
    began: float
    ended: float


class Diary:
    def __init__(self) -> None:
        self.attempts: list[Attempt] = []  # In the order in which each producer made them.
        self.moves: list[Read | Seek] = []  # In the order in which each reader made them.
        self.watermarks: list[Watermark] = []
        self.finals: dict[TopicPartition, FinalLog] = {}
        self.assignments: list[Assigned] = []
        self.commits: list[Committing] = []
        self.committed: list[Committed] = []
        self.transactions = TransactionDiary()
        self.queues = QueueDiary()
        self.memberships = MembershipDiary()
        self.group_readers: dict[str, list[str]] = {}  # The readers that are members of a group.
        # Partitions that may lose acknowledged records to a power cut, because they were asked to (flush `os` or `interval`, acks 0).
        self.weak: dict[TopicPartition, str] = {}
        # Partitions whose flushed bytes were changed at rest: the node may refuse to serve them, but must never serve anything else.
        self.damaged: dict[TopicPartition, str] = {}
        # Partitions of which only the last record of each key must stay, and for how many seconds a tombstone stays at least.
        self.compacted: dict[TopicPartition, float] = {}
        # Partitions with transactions: their markers take offsets that hold no record.
        self.transactional: dict[TopicPartition, None] = {}
        # Topics whose old records go while checkpoints are lost at rest: a producer is forgotten with the last record of its own.
        self.forgetful: frozenset[str] = frozenset()
        self.clocks_are_right = True
        # When whatever was not flushed may have been lost. Weak partitions lose a suffix then, and at no other time.
        self.cuts: list[float] = []

    def attempt(
        self, partition: TopicPartition, producer: str, value: bytes, now: float,
        *, is_idempotent: bool = True, key: bytes | None = None, is_tombstone: bool = False,
    ) -> Attempt:  # fmt: skip
        made = Attempt(partition, producer, value, now, is_idempotent, key, is_tombstone)
        self.attempts.append(made)
        return made

    def read(self, partition: TopicPartition, reader: str, offset: int, value: bytes, now: float) -> None:
        self.moves.append(Read(partition, reader, offset, value, now))

    def seek(self, partition: TopicPartition, reader: str, offset: int) -> None:
        self.moves.append(Seek(partition, reader, offset))

    def watermark(self, partition: TopicPartition, end_offset: int, *, began: float, ended: float, reader: str = "") -> None:
        self.watermarks.append(Watermark(partition, end_offset, began, ended, reader))

    def final(
        self, partition: TopicPartition, *, start_offset: int, end_offset: int, records: list[tuple[int, bytes]], now: float = 0.0
    ) -> None:
        self.finals[partition] = FinalLog(start_offset, end_offset, records, now)

    def assigned(self, group: str, generation: int, member: str, partitions: tuple[TopicPartition, ...]) -> None:
        self.assignments.append(Assigned(group, generation, member, partitions))

    def committing(self, group: str, partition: TopicPartition, offset: int, now: float) -> Committing:
        made = Committing(group, partition, offset, now)
        self.commits.append(made)
        return made

    def found_committed(self, group: str, partition: TopicPartition, offset: int, *, began: float, ended: float) -> None:
        self.committed.append(Committed(group, partition, offset, began, ended))
