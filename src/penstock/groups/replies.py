"""What the askers hear: one shape for each API, with the fields of its newest version. All that was asked is answered, in that order."""

from dataclasses import dataclass
from enum import Enum

from penstock.errors import ErrorCode
from penstock.groups.consumer.partitions import Partitions
from penstock.groups.share.records import Ledgers

NONE = ErrorCode.NONE


@dataclass(frozen=True, slots=True)
class JoinedMember:
    member_id: str
    instance_id: str | None
    metadata: bytes  # Its subscription under the chosen protocol.


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinReply:
    error: ErrorCode = NONE
    generation: int = -1
    protocol_type: str | None = None
    protocol_name: str | None = None  # None only in a refusal; versions below 7 write an empty name for it.
    leader: str = ""
    skip_assignment: bool = False
    member_id: str
    members: tuple[JoinedMember, ...] = ()  # Everybody, for the leader; nobody, for the others.


@dataclass(frozen=True, slots=True, kw_only=True)
class SyncReply:
    error: ErrorCode = NONE
    protocol_type: str | None = None
    protocol_name: str | None = None
    assignment: bytes = b""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerHeartbeatReply:
    error: ErrorCode = NONE
    message: str | None = None  # For the person behind the client, with an error.
    member_id: str | None = None
    member_epoch: int = 0
    heartbeat_interval_ms: int = 0
    assignment: Partitions | None = None  # None: as it was told last.


class ShareHeartbeatReply(ConsumerHeartbeatReply):
    """To a member of a share group, which is told the same."""

    __slots__ = ()


class LedgerWord(Enum):
    """What the leader of a partition hears that asks about a share group's ledger there."""

    RECORDED = "recorded"
    UNKNOWN = "unknown"
    GOING = "going"  # It may be one or the other in a moment.


@dataclass(frozen=True, slots=True)
class LedgersChanged:
    error: ErrorCode
    message: str | None = None
    ledgers: Ledgers | None = None  # Those that the group had when this came; at the end of a change, those that it has then.
    hold: int = 0  # With which to end the change.


@dataclass(frozen=True, slots=True)
class HeartbeatReply:
    error: ErrorCode


@dataclass(frozen=True, slots=True)
class Left:
    member_id: str
    instance_id: str | None
    error: ErrorCode


@dataclass(frozen=True, slots=True)
class LeaveReply:
    """Below version 3 there is one member and one error: `error` if that isn't NONE, else the member's."""

    error: ErrorCode
    members: tuple[Left, ...] = ()


@dataclass(frozen=True, slots=True)
class CommitReply:
    offsets: tuple[tuple[str, int, ErrorCode], ...]  # (topic, partition, error)


@dataclass(frozen=True, slots=True)
class DeleteOffsetsReply:
    error: ErrorCode  # Of the whole group; every partition then carries the same.
    partitions: tuple[tuple[str, int, ErrorCode], ...]


@dataclass(frozen=True, slots=True)
class DeleteGroupReply:
    error: ErrorCode
    is_over: bool = True  # False: this was a piece of it; there is more to delete.
    ledgers: Ledgers | None = None  # Of a share group: what must be forgotten first.
    hold: int = 0  # With which to come again then.


@dataclass(frozen=True, slots=True)
class TopicForgotten:
    offsets: int  # How many committed offsets went with it.


@dataclass(frozen=True, slots=True)
class PendingEnded:
    error: ErrorCode = NONE
    offsets: int = 0  # How many are decided by this; none is no error, for it may have been done before.
    is_over: bool = True  # False: this was a piece of it; there is more to end.


Reply = (
    JoinReply
    | ConsumerHeartbeatReply
    | ShareHeartbeatReply
    | LedgersChanged
    | LedgerWord
    | SyncReply
    | HeartbeatReply
    | LeaveReply
    | CommitReply
    | DeleteOffsetsReply
    | DeleteGroupReply
    | TopicForgotten
    | PendingEnded
)
