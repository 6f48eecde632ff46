"""What may be wanted of a group: orders, as the APIs carry them, freed of versions and bytes.

Each carries the token of whom to answer. A token is anything that can be a dictionary key; it is answered once, at once or much later
(a join waits for the others), and never again. A fresh member id is drawn by the asker, for a decision has no dice.
Not here: what the answers look like (replies.py).
"""

from collections.abc import Hashable
from dataclasses import dataclass

from penstock.groups.consumer.partitions import Partitions
from penstock.groups.guards import Guard
from penstock.groups.pending_records import NO_NUMBER
from penstock.groups.records import NO_TOPIC_ID
from penstock.vocabulary import ProducerId, TopicId

Token = Hashable

NO_GENERATION = -1  # Of a commit that isn't made by a member: an admin tool, or a consumer that assigns partitions to itself.
NO_HOLD = 0  # Of a change that is about to begin.
NO_RETENTION = -1  # Of a commit that leaves it to the node how long its offsets are kept.


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinGroup:
    token: Token
    group: str
    member_id: str  # Empty: not yet a member.
    fresh_member_id: str  # The id this asker gets if it needs one.
    instance_id: str | None
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocol_type: str
    protocols: tuple[tuple[str, bytes], ...]  # (name, subscription) in the order of preference
    needs_known_member_id: bool  # From version 4: a new dynamic member first gets an id and comes back with it (KIP-394).
    can_skip_assignment: bool  # From version 9: a returning static leader may be told not to assign again (KIP-814).


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerHeartbeat:
    """The one request of the new protocol: a member joins (epoch 0), says what it reads and has, or leaves (-1, or -2 to come back).

    None, and -1 of the time-out, mean what was said last.
    """

    token: Token
    group: str
    member_id: str
    fresh_member_id: str  # The id this asker gets if it brings none.
    member_epoch: int
    instance_id: str | None = None
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    rebalance_timeout_ms: int = -1
    topics: tuple[str, ...] | None = None
    regex: str | None = None
    assignor: str | None = None
    owned: Partitions | None = None
    brings_member_id: bool = True  # From version 1: the member has made its id itself.


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareHeartbeat:
    """The one request of a share group's member: it joins (epoch 0), says what it reads, or leaves (-1). None means what was said last."""

    token: Token
    group: str
    member_id: str
    member_epoch: int
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    topics: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class BeginLedgers:
    """An admin wants ledgers of a share group to begin. To be given before they do; EndLedgers ends it."""

    token: Token
    group: str
    added: tuple[tuple[TopicId, str, tuple[int, ...]], ...]  # (topic id, topic, partitions)


@dataclass(frozen=True, slots=True, kw_only=True)
class ForgetLedgers:
    """An admin wants ledgers of a share group to be forgotten. To be given before they are; EndLedgers ends it."""

    token: Token
    group: str


@dataclass(frozen=True, slots=True, kw_only=True)
class EndLedgers:
    """What was begun by one of those is done."""

    token: Token
    group: str
    hold: int  # As the reply to it had it.
    dropped: tuple[tuple[TopicId, int], ...] = ()  # Where no ledger is any more, for certain.
    is_over: bool = True  # False: of some of them nobody knows, and something may still be done to them; the group stays held for a while.


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepLedger:
    """The leader of a partition has a ledger of a share group, and will forget it if nobody is to have one there."""

    token: Token
    group: str
    topic_id: TopicId
    partition: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ForgetLedgersOf:
    """The topic is deleted, and its ledgers with it. A decision takes a piece; to be given again while there are others."""

    token: Token
    topic_id: TopicId


@dataclass(frozen=True, slots=True, kw_only=True)
class SyncGroup:
    token: Token
    group: str
    generation: int
    member_id: str
    instance_id: str | None
    protocol_type: str | None  # From version 5; None below it.
    protocol_name: str | None
    assignments: tuple[tuple[str, bytes], ...]  # (member id, assignment); only the leader's counts


@dataclass(frozen=True, slots=True, kw_only=True)
class Heartbeat:
    token: Token
    group: str
    generation: int
    member_id: str
    instance_id: str | None


@dataclass(frozen=True, slots=True)
class Leaving:
    member_id: str  # May be empty where an instance id says who: an admin removes static members that way.
    instance_id: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaveGroup:
    token: Token
    group: str
    members: tuple[Leaving, ...]


@dataclass(frozen=True, slots=True)
class NewOffset:
    topic: str
    partition: int
    offset: int
    leader_epoch: int = -1
    metadata: str | None = ""
    topic_id: TopicId = NO_TOPIC_ID


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitOffsets:
    token: Token
    group: str
    generation: int = NO_GENERATION
    member_id: str = ""
    instance_id: str | None = None
    offsets: tuple[NewOffset, ...]
    knows_epochs: bool = True  # From version 9: it may be of a member of the new protocol.
    retention_ms: int = NO_RETENTION  # Versions 2 to 4 only: keep these offsets so long after the commit, whatever becomes of the group.


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitPending:
    """Offsets that hold when the producer's transaction is committed."""

    token: Token
    group: str
    generation: int = NO_GENERATION
    member_id: str = ""
    instance_id: str | None = None
    producer_id: ProducerId
    producer_epoch: int
    number: int = NO_NUMBER  # Of the transaction, as its coordinator told it. Without one: that which is open here.
    offsets: tuple[NewOffset, ...]
    guard: Guard | None = None  # Taken before that coordinator was asked. Without one: more of what is open here.


@dataclass(frozen=True, slots=True, kw_only=True)
class EndPending:
    """The producer's transaction has ended: for all groups of this coordinator. Of a large one a decision takes a piece; to be given again
    until the reply says that all is over, and as often as anybody likes after that."""

    token: Token
    producer_id: ProducerId
    producer_epoch: int  # The marker's, which may be greater than that of the transaction.
    number: int = NO_NUMBER  # Without one: whichever is open.
    is_commit: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteOffsets:
    token: Token
    group: str
    partitions: tuple[tuple[str, int], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteGroup:
    """Of a large group one decision takes a piece; to be given again until the reply says that all is gone."""

    token: Token
    group: str
    hold: int = NO_HOLD  # Of a share group: as the reply to the first try had it. The ledgers that it has named are forgotten.


@dataclass(frozen=True, slots=True, kw_only=True)
class ForgetTopic:
    """The topic is deleted: no group keeps offsets of it. What was committed for another of its name stays."""

    token: Token
    topic: str
    topic_id: TopicId = NO_TOPIC_ID
    offsets_max: int | None = None  # How many may go in this decision; None: all of them.


@dataclass(frozen=True, slots=True)
class Abandoned:
    """The asker of a parked join or sync has hung up and is not answered any more. Its member stays until its session lapses."""

    token: Token


GroupCommand = (
    JoinGroup | ConsumerHeartbeat | SyncGroup | Heartbeat | LeaveGroup | CommitOffsets | CommitPending | DeleteOffsets | DeleteGroup
)
LedgersCommand = BeginLedgers | ForgetLedgers | EndLedgers
Command = GroupCommand | ShareHeartbeat | LedgersCommand | SweepLedger | ForgetLedgersOf | EndPending | ForgetTopic | Abandoned
