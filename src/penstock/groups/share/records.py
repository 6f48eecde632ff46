"""The records of a share group in `__consumer_offsets`, in Kafka's own forms (its ShareGroup* messages of the group coordinator).

One for the group, one for when it was last assigned, one for the topics of which it has ledgers, and three for each member; each under its
own key, each with a tombstone. A key is an int16 kind and classic strings, a value an int16 version and a flexible message.
The rules of groups/records.py hold: any order of the last records of all keys gives the same state, and a form that this node doesn't know
is refused. A share group is not forgotten for its age, as at Kafka: what it has not finished is kept until somebody deletes it.
"""

import struct
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from typing import NamedTuple

from penstock.errors import MalformedInput
from penstock.groups.consumer.partitions import Partitions, gathered
from penstock.groups.packing import INT, LONG, SHORT, unknown_form
from penstock.vocabulary import Buffer, TopicId
from penstock.wire import fields

VERSION = 0
NO_EPOCH = 0  # Of a member that has just joined, and of a group that was never assigned.

_STABLE = 0  # The one state that a member of a share group is ever in.
_ASSIGNED_AT = 0  # Tag of the time of an assignment.
_NO_TAGS = b"\0"


class ShareKind(IntEnum):
    """Kafka's numbers; groups of other kinds have none of these here."""

    MEMBER = 10
    GROUP = 11
    ASSIGNMENT = 12
    TARGET = 13
    CURRENT = 14
    LEDGERS = 15


SHARE_KINDS = tuple(int(kind) for kind in ShareKind)
_OF_MEMBERS = (ShareKind.MEMBER, ShareKind.TARGET, ShareKind.CURRENT)


class LedgersOf(NamedTuple):
    """The partitions of one topic on which a group has ledgers, or may have."""

    topic: str
    partitions: tuple[int, ...]


Ledgers = Mapping[TopicId, LedgersOf]


@dataclass(frozen=True, slots=True)
class ShareGroupSaved:
    group: str
    epoch: int  # Grows with every change of members, subscriptions and topics.
    topics_hash: int  # Of all that the members read, as the topics were then.


@dataclass(frozen=True, slots=True)
class ShareAssignment:
    group: str
    epoch: int  # That of the group when the targets were last computed. Behind it: they are to be computed.
    assigned_ms: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareMemberSaved:
    group: str
    member_id: str
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    topics: tuple[str, ...] = ()  # By name, sorted.


@dataclass(frozen=True, slots=True)
class ShareTarget:
    group: str
    member_id: str
    partitions: Partitions


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareCurrent:
    """What a member was last told."""

    group: str
    member_id: str
    epoch: int = NO_EPOCH
    previous_epoch: int = -1  # That the member still may be in, if the answer which told it of the new one got lost.
    assigned: Partitions = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ShareLedgers:
    group: str
    ledgers: Ledgers


@dataclass(frozen=True, slots=True)
class ShareGone:
    """The tombstone of any of them."""

    kind: ShareKind
    group: str
    member_id: str = ""


ShareRecord = ShareGroupSaved | ShareAssignment | ShareMemberSaved | ShareTarget | ShareCurrent | ShareLedgers | ShareGone


def encode_share(record: ShareRecord) -> tuple[bytes, bytes | None]:
    match record:
        case ShareGone():
            return _key(record.kind, record.group, record.member_id), None
        case ShareGroupSaved():
            return _key(ShareKind.GROUP, record.group), _value(INT.pack(record.epoch), LONG.pack(record.topics_hash))
        case ShareAssignment():
            time = fields.tagged([(_ASSIGNED_AT, LONG.pack(record.assigned_ms))] if record.assigned_ms else [])
            return _key(ShareKind.ASSIGNMENT, record.group), SHORT.pack(VERSION) + INT.pack(record.epoch) + time
        case ShareMemberSaved():
            texts = map(fields.compact_string, (record.rack_id, record.client_id, record.client_host))
            names = (fields.compact_count(len(record.topics)), *map(fields.compact_string, record.topics))
            return _key(ShareKind.MEMBER, record.group, record.member_id), _value(*texts, *names)
        case ShareTarget():
            return _key(ShareKind.TARGET, record.group, record.member_id), _value(_packed(record.partitions))
        case ShareCurrent():
            epochs = INT.pack(record.epoch) + INT.pack(record.previous_epoch) + bytes([_STABLE])
            return _key(ShareKind.CURRENT, record.group, record.member_id), _value(epochs, _packed(record.assigned))
        case ShareLedgers():
            none = fields.compact_count(0)
            return _key(ShareKind.LEDGERS, record.group), _value(none, _packed_ledgers(record.ledgers), none)


def decode_share(kind: int, key: bytes, value: bytes | None) -> ShareRecord:
    """Raises one of packing.NOT_A_RECORD on bytes that were never written by `encode_share`."""
    try:
        return _decoded(ShareKind(kind), key, value)
    except MalformedInput as wrong:
        raise struct.error(str(wrong)) from None


def _decoded(kind: ShareKind, key: bytes, value: bytes | None) -> ShareRecord:
    group, at = fields.read_string(key, SHORT.size, len(key))
    member_id = fields.read_string(key, at, len(key))[0] if kind in _OF_MEMBERS else ""
    if value is None:
        return ShareGone(kind, group, member_id)
    version, at = fields.read_short(value, 0, len(value))
    if version != VERSION:
        raise unknown_form("share group", version)
    match kind:
        case ShareKind.GROUP:
            return ShareGroupSaved(group, *struct.unpack_from(">iq", value, at))
        case ShareKind.ASSIGNMENT:
            return _read_assignment(group, value, at)
        case ShareKind.MEMBER:
            return _read_member(group, member_id, value, at)
        case ShareKind.TARGET:
            return ShareTarget(group, member_id, _unpacked(value, at))
        case ShareKind.CURRENT:
            epoch, previous_epoch, _ = struct.unpack_from(">iib", value, at)
            assigned = _unpacked(value, at + 9)
            return ShareCurrent(group=group, member_id=member_id, epoch=epoch, previous_epoch=previous_epoch, assigned=assigned)
        case ShareKind.LEDGERS:
            return ShareLedgers(group, _read_ledgers(value, at))


def _key(kind: ShareKind, group: str, member_id: str = "") -> bytes:
    return SHORT.pack(kind) + fields.string(group) + (fields.string(member_id) if kind in _OF_MEMBERS else b"")


def _value(*pieces: bytes) -> bytes:
    return SHORT.pack(VERSION) + b"".join(pieces) + _NO_TAGS


def _numbers(numbers: tuple[int, ...]) -> bytes:
    return fields.compact_count(len(numbers)) + struct.pack(f">{len(numbers)}i", *numbers)


def _packed(partitions: Partitions) -> bytes:
    rows = [topic_id + _numbers(partitions[topic_id]) + _NO_TAGS for topic_id in sorted(partitions)]
    return fields.compact_count(len(rows)) + b"".join(rows)


def _packed_ledgers(ledgers: Ledgers) -> bytes:
    rows = [
        topic_id + fields.compact_string(ledgers[topic_id].topic) + _numbers(ledgers[topic_id].partitions) + _NO_TAGS
        for topic_id in sorted(ledgers)
    ]
    return fields.compact_count(len(rows)) + b"".join(rows)


def _read_assignment(group: str, value: bytes, at: int) -> ShareAssignment:
    epoch, at = fields.read_int(value, at, len(value))
    times = {"assigned_ms": 0}
    fields.read_tagged(value, at, len(value), {_ASSIGNED_AT: ("assigned_ms", _read_long)}, times)
    return ShareAssignment(group, epoch, times["assigned_ms"])


def _read_long(buffer: Buffer, at: int, _: int) -> tuple[int, int]:
    return LONG.unpack_from(buffer, at)[0], at + LONG.size


def _read_member(group: str, member_id: str, value: bytes, at: int) -> ShareMemberSaved:
    end = len(value)
    rack_id, at = fields.read_nullable_compact_string(value, at, end)
    client_id, at = fields.read_compact_string(value, at, end)
    client_host, at = fields.read_compact_string(value, at, end)
    count, at = fields.read_compact_count(value, at, end)
    topics = []
    for _ in range(count):
        topic, at = fields.read_compact_string(value, at, end)
        topics.append(topic)
    return ShareMemberSaved(
        group=group, member_id=member_id, rack_id=rack_id, client_id=client_id, client_host=client_host, topics=tuple(topics)
    )


def _read_numbers(value: bytes, at: int) -> tuple[tuple[int, ...], int]:
    count, at = fields.read_compact_count(value, at, len(value))
    return struct.unpack_from(f">{count}i", value, at), at + 4 * count


def _unpacked(value: bytes, at: int) -> Partitions:
    count, at = fields.read_compact_count(value, at, len(value))
    rows = []
    for _ in range(count):
        topic_id, at = fields.read_id(value, at, len(value))
        numbers, at = _read_numbers(value, at)
        at = fields.skip_tagged(value, at, len(value))
        rows.append((TopicId(topic_id), numbers))
    return gathered(rows)


def _read_ledgers(value: bytes, at: int) -> Ledgers:
    """Those that Kafka would call initializing are ledgers that may be there; so are they here."""
    found: dict[TopicId, LedgersOf] = {}
    for _ in range(2):
        count, at = fields.read_compact_count(value, at, len(value))
        for _ in range(count):
            topic_id, at = fields.read_id(value, at, len(value))
            topic, at = fields.read_compact_string(value, at, len(value))
            numbers, at = _read_numbers(value, at)
            at = fields.skip_tagged(value, at, len(value))
            before = found.get(TopicId(topic_id), LedgersOf(topic, ()))
            found[TopicId(topic_id)] = LedgersOf(topic, tuple(sorted({*before.partitions, *numbers})))
    return found
