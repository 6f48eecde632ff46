"""What the controller answers, and how it travels: one reply for each thing asked, in the order asked.

Most often it is the record that was made. A refusal is a value too.
"""

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from penstock.cluster import records
from penstock.cluster.plain import Codec, UnknownKind
from penstock.cluster.records import PartitionChange
from penstock.errors import ErrorCode, MalformedInput, Refusal
from penstock.vocabulary import LeaderEpoch, NodeId

_LENGTH = struct.Struct(">i")


@dataclass(frozen=True, slots=True)
class LeaderElected:
    topic: str
    partition: int
    leader: NodeId
    leader_epoch: LeaderEpoch
    passed_over: tuple[NodeId, ...] = ()  # Who has every committed record, and was not waited for: what only they have is lost.
    may_have_lost: str = ""  # In words for the operator; empty where nothing was at stake.


@dataclass(frozen=True, slots=True)
class NotElected:
    topic: str
    partition: int
    code: ErrorCode
    reason: str


@dataclass(frozen=True, slots=True)
class Refused:
    """A Refusal on its way."""

    code: ErrorCode
    reason: str


@dataclass(frozen=True, slots=True)
class Changed:
    """A PartitionChange on its way."""

    change: PartitionChange


@dataclass(frozen=True, slots=True)
class RegistrationOutdated:
    """The node was registered since the epoch that its registration follows. Nothing has changed; one that follows this epoch is taken."""

    node_epoch: int


@dataclass(frozen=True, slots=True)
class Settled:
    """How many partitions were changed, and whether more are waiting."""

    changed: int
    is_done: bool


Made = records.Record | PartitionChange | LeaderElected | NotElected | Settled | RegistrationOutdated
Reply = Made | Refusal

# Above the kinds of records, which travel under their own numbers.
KINDS: dict[int, tuple[type[Any], int]] = {
    **records.KINDS,
    1001: (Refused, 1),
    1002: (Changed, 1),
    1003: (LeaderElected, 1),
    1004: (NotElected, 1),
    1005: (Settled, 1),
    1006: (RegistrationOutdated, 1),
}
_CODEC: Codec[Any] = Codec(KINDS)


def encode(replies: Sequence[Reply]) -> bytes:
    encoded = [_CODEC.encode(_packed(reply)) for reply in replies]
    return b"".join(_LENGTH.pack(len(one)) + one for one in encoded)


def decode(payload: bytes) -> tuple[Reply, ...]:
    """Raises MalformedInput, and Refusal where only a newer node knows what was answered."""
    replies, at = [], 0
    while at < len(payload):
        if at + _LENGTH.size > len(payload):
            raise MalformedInput("a reply ends in the middle of a length")
        (length,) = _LENGTH.unpack_from(payload, at)
        at += _LENGTH.size
        if not 0 <= length <= len(payload) - at:
            raise MalformedInput("a reply is longer than what came")
        try:
            replies.append(_unpacked(_CODEC.decode(bytes(payload[at : at + length]))))
        except UnknownKind as unknown:
            raise Refusal(ErrorCode.UNSUPPORTED_VERSION, f"the controller answers with {unknown}: this node is older") from None
        at += length
    return tuple(replies)


def _packed(reply: Reply) -> Any:
    if isinstance(reply, Refusal):
        return Refused(reply.code, reply.reason)
    return Changed(reply) if isinstance(reply, PartitionChange) else reply


def _unpacked(value: Any) -> Reply:
    if isinstance(value, Refused):
        return Refusal(value.code, value.reason)
    return value.change if isinstance(value, Changed) else value
