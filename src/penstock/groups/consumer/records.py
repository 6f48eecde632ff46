"""The records of a group of the new protocol: one for the group, three for each of its members, each under its own key.

What a member says, what it shall have (the target) and what it has (the current assignment) change at different times, so that a step of
one member in a group of a thousand writes one small record. Each has a tombstone. The rules of groups/records.py hold: any order of the
last records of all keys gives the same state, and a form that this node doesn't know is refused.
"""

import struct
from dataclasses import dataclass, field
from enum import IntEnum

from penstock.groups.consumer.partitions import Partitions, gathered
from penstock.groups.packing import INT, LENGTH, LONG, SHORT, Reader, blob, text, unknown_form
from penstock.vocabulary import TopicId

CONSUMER_GROUP_KIND = 4
CONSUMER_MEMBER_KIND = 5
TARGET_KIND = 6
CURRENT_KIND = 7
KINDS = (CONSUMER_GROUP_KIND, CONSUMER_MEMBER_KIND, TARGET_KIND, CURRENT_KIND)
VERSION = 1

NO_EPOCH = 0  # Of a member that has just joined, and of a group that was never assigned.
LEFT_FOR_NOW = -2  # Member epoch of a static member that said it comes back: its place and its partitions are kept for a session.

_BYTE = struct.Struct(">b")


class MemberState(IntEnum):
    """Where a member stands between what it has and what it shall have; the numbers are stored."""

    STABLE = 0  # It has what the target of its epoch gives it.
    UNREVOKED = 1  # It was told to give something up and hasn't said yet that it has; its epoch is held back.
    UNRELEASED = 2  # It waits for something that another member still has.


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerGroupSaved:
    group: str
    epoch: int  # Grows with every change of members, subscriptions and topics.
    assignment_epoch: int  # That of the group when the targets were last computed. Behind it: they are to be computed.
    topics_hash: int  # Of all that the members read, as the topics were then: what tells after a failover that a topic has grown since.
    since_ms: int  # Wall clock of this record: offsets of an empty group expire by it.


@dataclass(frozen=True, slots=True)
class ConsumerGroupGone:
    group: str


@dataclass(frozen=True, slots=True)
class ClassicOffer:
    """What a member that speaks the classic protocol, in a group of the new one, said when it joined."""

    session_timeout_ms: int
    protocols: tuple[tuple[str, bytes], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerMemberSaved:
    group: str
    member_id: str
    instance_id: str | None = None
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    rebalance_timeout_ms: int = -1
    topics: tuple[str, ...] = ()  # By name, sorted.
    regex: str = ""  # Empty: none.
    assignor: str | None = None  # None: the group's default.
    classic: ClassicOffer | None = None


@dataclass(frozen=True, slots=True)
class ConsumerMemberGone:
    group: str
    member_id: str


@dataclass(frozen=True, slots=True)
class TargetAssigned:
    group: str
    member_id: str
    partitions: Partitions


@dataclass(frozen=True, slots=True)
class TargetGone:
    group: str
    member_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CurrentAssigned:
    group: str
    member_id: str
    epoch: int = NO_EPOCH
    previous_epoch: int = -1  # That the member still may be in, if the answer which told it of the new one got lost.
    state: MemberState = MemberState.STABLE
    assigned: Partitions = field(default_factory=dict)
    revoking: Partitions = field(default_factory=dict)  # Still its own until it says that it has given them up.

    def is_reconciled_to(self, epoch: int) -> bool:
        return self.state is MemberState.STABLE and self.epoch == epoch


@dataclass(frozen=True, slots=True)
class CurrentGone:
    group: str
    member_id: str


ConsumerRecord = (
    ConsumerGroupSaved
    | ConsumerGroupGone
    | ConsumerMemberSaved
    | ConsumerMemberGone
    | TargetAssigned
    | TargetGone
    | CurrentAssigned
    | CurrentGone
)


def encode_consumer(record: ConsumerRecord) -> tuple[bytes, bytes | None]:
    match record:
        case ConsumerGroupSaved():
            epochs = INT.pack(record.epoch) + INT.pack(record.assignment_epoch)
            return _group_key(record.group), SHORT.pack(VERSION) + epochs + LONG.pack(record.topics_hash) + LONG.pack(record.since_ms)
        case ConsumerGroupGone():
            return _group_key(record.group), None
        case ConsumerMemberSaved():
            return _member_key(CONSUMER_MEMBER_KIND, record), _member_value(record)
        case ConsumerMemberGone():
            return _member_key(CONSUMER_MEMBER_KIND, record), None
        case TargetAssigned():
            return _member_key(TARGET_KIND, record), SHORT.pack(VERSION) + _packed(record.partitions)
        case TargetGone():
            return _member_key(TARGET_KIND, record), None
        case CurrentAssigned():
            epochs = INT.pack(record.epoch) + INT.pack(record.previous_epoch) + _BYTE.pack(record.state)
            return _member_key(CURRENT_KIND, record), SHORT.pack(VERSION) + epochs + _packed(record.assigned) + _packed(record.revoking)
        case CurrentGone():
            return _member_key(CURRENT_KIND, record), None


def decode_consumer(kind: int, key: bytes, value: bytes | None) -> ConsumerRecord:
    """Raises one of packing.NOT_A_RECORD on bytes that were never written by `encode_consumer`."""
    named = Reader(key, SHORT.size)
    group = named.text()
    if value is not None and SHORT.unpack_from(value)[0] != VERSION:
        raise unknown_form("member of a consumer group", SHORT.unpack_from(value)[0])
    reader = Reader(value or b"", SHORT.size)
    if kind == CONSUMER_GROUP_KIND:
        if value is None:
            return ConsumerGroupGone(group)
        return ConsumerGroupSaved(
            group=group, epoch=reader.number(INT), assignment_epoch=reader.number(INT), topics_hash=reader.number(LONG),
            since_ms=reader.number(LONG),
        )  # fmt: skip
    member_id = named.text()
    if kind == CONSUMER_MEMBER_KIND:
        return ConsumerMemberGone(group, member_id) if value is None else _read_member(group, member_id, reader)
    if kind == TARGET_KIND:
        return TargetGone(group, member_id) if value is None else TargetAssigned(group, member_id, _unpacked(reader))
    return CurrentGone(group, member_id) if value is None else _read_current(group, member_id, reader)


def _group_key(group: str) -> bytes:
    return SHORT.pack(CONSUMER_GROUP_KIND) + text(group)


def _member_key(
    kind: int, record: ConsumerMemberSaved | ConsumerMemberGone | TargetAssigned | TargetGone | CurrentAssigned | CurrentGone
) -> bytes:
    return SHORT.pack(kind) + text(record.group) + text(record.member_id)


def _member_value(record: ConsumerMemberSaved) -> bytes:
    pieces = [
        SHORT.pack(VERSION), text(record.instance_id), text(record.rack_id), text(record.client_id), text(record.client_host),
        INT.pack(record.rebalance_timeout_ms), text(record.regex), text(record.assignor), LENGTH.pack(len(record.topics)),
        *map(text, record.topics),
    ]  # fmt: skip
    classic = record.classic
    if classic is None:
        pieces.append(INT.pack(-1))
    else:
        pieces += (INT.pack(len(classic.protocols)), INT.pack(classic.session_timeout_ms))
        for name, content in classic.protocols:
            pieces += (text(name), blob(content))
    return b"".join(pieces)


def _read_member(group: str, member_id: str, reader: Reader) -> ConsumerMemberSaved:
    return ConsumerMemberSaved(
        group=group, member_id=member_id, instance_id=reader.optional_text(), rack_id=reader.optional_text(), client_id=reader.text(),
        client_host=reader.text(), rebalance_timeout_ms=reader.number(INT), regex=reader.text(), assignor=reader.optional_text(),
        topics=tuple(reader.text() for _ in range(reader.number(LENGTH))), classic=_read_classic(reader),
    )  # fmt: skip


def _read_classic(reader: Reader) -> ClassicOffer | None:
    protocols = reader.number(INT)
    if protocols < 0:
        return None
    return ClassicOffer(reader.number(INT), tuple((reader.text(), reader.blob()) for _ in range(protocols)))


def _read_current(group: str, member_id: str, reader: Reader) -> CurrentAssigned:
    epoch, previous_epoch, state = reader.number(INT), reader.number(INT), reader.number(_BYTE)
    if state not in tuple(MemberState):
        raise unknown_form("member's state", state)
    return CurrentAssigned(
        group=group, member_id=member_id, epoch=epoch, previous_epoch=previous_epoch, state=MemberState(state),
        assigned=_unpacked(reader), revoking=_unpacked(reader),
    )  # fmt: skip


def _packed(partitions: Partitions) -> bytes:
    pieces = [LENGTH.pack(len(partitions))]
    for topic_id in sorted(partitions):
        numbers = partitions[topic_id]
        pieces += (topic_id, LENGTH.pack(len(numbers)), struct.pack(f">{len(numbers)}i", *numbers))
    return b"".join(pieces)


def _unpacked(reader: Reader) -> Partitions:
    rows = []
    for _ in range(reader.number(LENGTH)):
        topic_id, size = TopicId(reader.take(16)), reader.number(LENGTH)
        rows.append((topic_id, struct.unpack(f">{size}i", reader.take(4 * size))))
    return gathered(rows)
