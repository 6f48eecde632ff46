"""The records of `__consumer_offsets`: keyed facts about groups, of which the last one of each key holds.

Each key stands alone. Whoever replays only the last record of every key, in any order, reaches the same state: that is what lets
compaction drop the others, and a loader skip them. So deleting a group writes one tombstone for the group and one for each of its offsets.

A key is a big-endian int16 kind and the texts that name the thing; a value is an int16 version and the fields. A kind or version that this
node doesn't know is refused: guessing at offsets loses data. A new field gets a new version; a number is never used again for something
else. Committing is the hot path of this room, so that record is a plain tuple and a struct.
"""

import struct
from dataclasses import dataclass, replace
from typing import NamedTuple

from penstock.errors import BrokenPromise
from penstock.groups.consumer.records import KINDS, ConsumerRecord, decode_consumer, encode_consumer
from penstock.groups.packing import INT, LENGTH, LONG, NOT_A_RECORD, SHORT, Reader, blob, text, unknown_form
from penstock.groups.pending_records import PENDING_KIND, OffsetPending, PendingDropped, decode_pending, encode_pending
from penstock.groups.share.records import SHARE_KINDS, ShareRecord, decode_share, encode_share
from penstock.vocabulary import TopicId

GROUP_KIND = 1
OFFSET_KIND = 2
GROUP_VERSION = 1
OFFSET_VERSION = 2
BY_RETENTION = -1  # `expires_ms` of an offset that is kept as long as the node's settings say.
NO_TOPIC_ID = TopicId(bytes(16))  # Of an offset that was committed for whatever topic has this name: all of version 1 were.

_OFFSET_1 = struct.Struct(">hqiqq")  # version, offset, leader epoch, committed at, expires at; the metadata is the rest
_OFFSET = struct.Struct(">hqiqq16s")  # the same and the topic's id; the metadata is the rest


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberSaved:
    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocols: tuple[tuple[str, bytes], ...]  # All that it offered, not only the chosen one: a reloaded group judges newcomers as before.
    assignment: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupSaved:
    """A group after a completed rebalance, or after its last member went. Members in the order in which they joined."""

    group: str
    generation: int
    protocol_type: str | None
    protocol: str | None
    leader: str | None
    since_ms: int  # Wall clock of this state: offsets of an empty group expire by it.
    members: tuple[MemberSaved, ...] = ()

    def with_static(self, old_member_id: str, newcomer: MemberSaved, since_ms: int) -> "GroupSaved":
        """The same generation with a static member's new id in the place of its old one."""
        members = tuple(newcomer if member.member_id == old_member_id else member for member in self.members)
        leader = newcomer.member_id if self.leader == old_member_id else self.leader
        return replace(self, leader=leader, since_ms=since_ms, members=members)


@dataclass(frozen=True, slots=True)
class GroupDeleted:
    group: str


class OffsetCommitted(NamedTuple):
    group: str
    topic: str
    partition: int
    offset: int
    leader_epoch: int
    metadata: str
    committed_ms: int
    expires_ms: int = BY_RETENTION
    topic_id: TopicId = NO_TOPIC_ID  # Of the topic that had the name then: one that is made again has another.


class OffsetDeleted(NamedTuple):
    group: str
    topic: str
    partition: int


Record = GroupSaved | GroupDeleted | OffsetCommitted | OffsetDeleted | OffsetPending | PendingDropped | ConsumerRecord | ShareRecord


def encode(record: Record) -> tuple[bytes, bytes | None]:
    """The key and the value; None is a tombstone."""
    match record:
        case OffsetCommitted():
            value = _OFFSET.pack(
                OFFSET_VERSION, record.offset, record.leader_epoch, record.committed_ms, record.expires_ms, record.topic_id
            )
            return _offset_key(record.group, record.topic, record.partition), value + record.metadata.encode()
        case OffsetDeleted():
            return _offset_key(record.group, record.topic, record.partition), None
        case GroupSaved():
            return _group_key(record.group), _group_value(record)
        case GroupDeleted():
            return _group_key(record.group), None
        case OffsetPending() | PendingDropped():
            return encode_pending(record)
        case _ if isinstance(record, ShareRecord):
            return encode_share(record)
        case _:
            return encode_consumer(record)


def decode(key: bytes, value: bytes | None) -> Record:
    try:
        kind = SHORT.unpack_from(key)[0]
        if kind == OFFSET_KIND:
            group, topic, partition = read_offset_key(key)
            if value is None:
                return OffsetDeleted(group, topic, partition)
            return OffsetCommitted(group, topic, partition, *read_offset(value))
        if kind == GROUP_KIND:
            group = Reader(key, SHORT.size).text()
            return GroupDeleted(group) if value is None else _read_group(group, value)
        if kind == PENDING_KIND:
            return decode_pending(key, value)
        if kind in KINDS:
            return decode_consumer(kind, key, value)
        if kind in SHARE_KINDS:
            return decode_share(kind, key, value)
    except NOT_A_RECORD as wrong:
        raise unreadable(wrong) from None
    raise unknown_form("key", kind)


def unreadable(wrong: Exception) -> BrokenPromise:
    return BrokenPromise(f"a group record does not read back: {wrong}")


def read_offset_key(key: bytes) -> tuple[str, str, int]:
    """The group, topic and partition whose offset this key stands for."""
    group_end = 6 + int.from_bytes(key[2:6], "big")
    return key[6:group_end].decode(), key[group_end:-4].decode(), int.from_bytes(key[-4:], "big", signed=True)


def read_offset(value: bytes) -> tuple[int, int, str, int, int, TopicId]:
    """(offset, leader epoch, metadata, committed at, expires at, topic id)"""
    version = SHORT.unpack_from(value)[0]
    if version == OFFSET_VERSION:
        _, offset, leader_epoch, committed_ms, expires_ms, topic_id = _OFFSET.unpack_from(value)
        return offset, leader_epoch, value[_OFFSET.size :].decode(), committed_ms, expires_ms, topic_id
    if version == 1:
        _, offset, leader_epoch, committed_ms, expires_ms = _OFFSET_1.unpack_from(value)
        return offset, leader_epoch, value[_OFFSET_1.size :].decode(), committed_ms, expires_ms, NO_TOPIC_ID
    raise unknown_form("offset", version)


def _offset_key(group: str, topic: str, partition: int) -> bytes:
    name = group.encode()
    return SHORT.pack(OFFSET_KIND) + LENGTH.pack(len(name)) + name + topic.encode() + INT.pack(partition)


def _group_key(group: str) -> bytes:
    return SHORT.pack(GROUP_KIND) + text(group)


def _group_value(record: GroupSaved) -> bytes:
    pieces = [
        SHORT.pack(GROUP_VERSION), INT.pack(record.generation), LONG.pack(record.since_ms),
        text(record.protocol_type), text(record.protocol), text(record.leader), LENGTH.pack(len(record.members)),
    ]  # fmt: skip
    for member in record.members:
        pieces += (text(member.member_id), text(member.instance_id), text(member.client_id), text(member.client_host))
        pieces += (INT.pack(member.session_timeout_ms), INT.pack(member.rebalance_timeout_ms), LENGTH.pack(len(member.protocols)))
        for name, subscription in member.protocols:
            pieces += (text(name), blob(subscription))
        pieces.append(blob(member.assignment))
    return b"".join(pieces)


def _read_group(group: str, value: bytes) -> GroupSaved:
    reader = Reader(value, SHORT.size)
    version = SHORT.unpack_from(value)[0]
    if version != GROUP_VERSION:
        raise unknown_form("group", version)
    return GroupSaved(
        group=group, generation=reader.number(INT), since_ms=reader.number(LONG),
        protocol_type=reader.optional_text(), protocol=reader.optional_text(), leader=reader.optional_text(),
        members=tuple(_read_member(reader) for _ in range(reader.number(LENGTH))),
    )  # fmt: skip


def _read_member(reader: Reader) -> MemberSaved:
    return MemberSaved(
        member_id=reader.text(), instance_id=reader.optional_text(), client_id=reader.text(), client_host=reader.text(),
        session_timeout_ms=reader.number(INT), rebalance_timeout_ms=reader.number(INT),
        protocols=tuple((reader.text(), reader.blob()) for _ in range(reader.number(LENGTH))), assignment=reader.blob(),
    )  # fmt: skip
