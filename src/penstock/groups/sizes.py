"""What groups take, about: in memory, where all groups of a node share a bound, and in the log, where one group must fit into a record.

Counted are the bytes that clients choose, exactly, and what the node keeps around them, by a generous constant. Text that is not plain
ASCII counts four bytes for each character, which is the most that it can take in either place.
"""

from collections.abc import Iterable
from typing import Protocol

from penstock.groups.pending_records import OffsetPending
from penstock.groups.records import GroupSaved

MEMBER_BYTES = 500  # Of memory, beside what a member says: its objects and its places in dictionaries.
PENDING_BYTES = 200
GROUP_BYTES = 1_000
TOPIC_BYTES = 350
OFFSET_BYTES = 300
PENDING_OFFSET_BYTES = 700  # More than a topic and an offset in it: when its transaction is committed, it takes no more than before.
_FIELDS_BYTES = 40  # Of the log: lengths and numbers of a member,
_PROTOCOL_BYTES = 8  # and of each of its protocols.


class SaysOfItself(Protocol):
    @property
    def member_id(self) -> str: ...
    @property
    def instance_id(self) -> str | None: ...
    @property
    def client_id(self) -> str: ...
    @property
    def client_host(self) -> str: ...
    @property
    def protocols(self) -> tuple[tuple[str, bytes], ...]: ...


def text_bytes(text: str) -> int:
    return len(text) if text.isascii() else 4 * len(text)


def size_of(protocols: Iterable[tuple[str, bytes]]) -> int:
    size = 0
    for name, content in protocols:
        size += text_bytes(name) + len(content) + _PROTOCOL_BYTES
    return size


def said_by(member: SaysOfItself) -> int:
    """What a member says about itself, as it is stored."""
    texts = member.member_id + (member.instance_id or "") + member.client_id + member.client_host
    return _FIELDS_BYTES + text_bytes(texts) + size_of(member.protocols)


def assigned_bytes(saved: GroupSaved) -> int:
    return sum(len(member.assignment) for member in saved.members)


def held_bytes(saved: GroupSaved) -> int:
    """What the record of a group takes in memory."""
    members_bytes = MEMBER_BYTES * len(saved.members) + sum(map(said_by, saved.members)) + assigned_bytes(saved)
    return GROUP_BYTES + text_bytes(saved.group) + members_bytes


def offset_bytes(metadata: str) -> int:
    return OFFSET_BYTES + text_bytes(metadata)


def pending_offset_bytes(pending: OffsetPending) -> int:
    return PENDING_OFFSET_BYTES + text_bytes(pending.group) + text_bytes(pending.topic) + text_bytes(pending.metadata)
