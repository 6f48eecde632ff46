"""Names of messages and of leases, as people and programs carry them about.

A *message id* looks like a UUID (version 8, which RFC 9562 leaves to whoever makes it) and says where the message is: the beginning of its
topic's id, the partition and the offset. So looking a message up needs no index. A *receipt handle* also says which delivery it is, so that
one that has lapsed is told from the one that counts; its checksum tells a handle from garbage. It is no secret.
"""

import binascii
import struct
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import NamedTuple

from penstock.queues import many
from penstock.vocabulary import TopicId

PARTITION_MAX = (1 << 20) - 1
OFFSET_MAX = (1 << 48) - 1  # A million messages a second for nine years.
LEASE_MAX = (1 << 63) - 1

_VERSION, _VARIANT = 8, 0b10
_TOPIC_BYTES = 6  # Of a topic's id: enough to tell the topics of a cluster apart.
_HANDLE = struct.Struct(">B6sIqqI")  # version, topic, partition, offset, lease, group's hash; the checksum is behind it
_CHECKSUM = struct.Struct(">I")
_HANDLE_VERSION = 1
_HANDLE_CHARACTERS_READ = 96  # Whoever gives more gives something else.
_FROM_URL = bytes.maketrans(b"-_", b"+/")  # Of base64, as URLs have it.
_PARTITIONS_MAX, _GROUPS_MAX = 10_000, 1_000  # Of which something is remembered: ids are made and read for every message.


class MessageId(NamedTuple):
    topic: bytes  # The first six bytes of the topic's id.
    partition: int
    offset: int

    def is_of(self, topic_id: TopicId) -> bool:
        return topic_id[:_TOPIC_BYTES] == self.topic


class Handle(NamedTuple):
    topic: bytes
    partition: int
    offset: int
    lease: int
    group_hash: int

    def is_of(self, topic_id: TopicId, group: str) -> bool:
        return topic_id[:_TOPIC_BYTES] == self.topic and group_hash(group) == self.group_hash


def message_id(topic_id: TopicId, partition: int, offset: int) -> str:
    """48 bits of the topic, the version, 12 bits of the partition, the variant, its other 8 bits and the offset in 54."""
    return f"{id_prefix(topic_id, partition)}{offset:012x}"


def message_ids(topic_id: TopicId, partition: int, offsets: Iterable[int]) -> list[str]:
    return many.write_ids(id_prefix(topic_id, partition), offsets)


@lru_cache(_PARTITIONS_MAX)
def id_prefix(topic_id: TopicId, partition: int) -> str:
    """What all ids of a partition have in common: all but the last twelve digits, for an offset has no more than those."""
    front = f"{int.from_bytes(topic_id[:_TOPIC_BYTES], 'big') << 16 | _VERSION << 12 | partition >> 8:016x}"
    back = f"{_VARIANT << 14 | (partition & 0xFF) << 6:04x}"
    return f"{front[:8]}-{front[8:12]}-{front[12:]}-{back}-"


def read_id(text: str) -> MessageId | None:
    """None: it is none of ours."""
    digits = text.replace("-", "")
    if len(text) != 36 or len(digits) != 32:
        return None
    try:
        number = int(digits, 16)
    except ValueError:
        return None
    partition = (number >> 64 & 0xFFF) << 8 | (number >> 54 & 0xFF)
    found = MessageId((number >> 80).to_bytes(_TOPIC_BYTES, "big"), partition, number & (1 << 54) - 1)
    is_ours = number >> 76 & 0xF == _VERSION and number >> 62 & 0b11 == _VARIANT and found.offset <= OFFSET_MAX
    return found if is_ours else None


@lru_cache(_GROUPS_MAX)
def group_hash(group: str) -> int:
    return binascii.crc32(group.encode())


def receipt_handle(topic_id: TopicId, partition: int, offset: int, lease: int, group: str) -> str:
    return receipt_handles(topic_id, partition, group, [(offset, lease)])[0]


def receipt_handles(topic_id: TopicId, partition: int, group: str, deliveries: Iterable[tuple[int, int]]) -> list[str]:
    """Of (offset, lease) pairs."""
    return many.write_handles(topic_id[:_TOPIC_BYTES], partition, group_hash(group), deliveries)


def read_handles(texts: Sequence[str], topic_id: TopicId, group: str) -> tuple[int, list[tuple[int, int]]] | None:
    """The partition that all of these handles are of, and their (offset, lease) pairs. None: one of them is not what it should be, or they
    are of several partitions; `read_handle` tells."""
    return many.read_handles(texts, topic_id[:_TOPIC_BYTES], group_hash(group))


def read_handle(text: str) -> Handle | None:
    """None: it is none of ours."""
    if len(text) > _HANDLE_CHARACTERS_READ or not text.isascii():
        return None
    try:
        raw = binascii.a2b_base64(text.encode().translate(_FROM_URL) + b"=" * (-len(text) % 4))
    except (binascii.Error, ValueError):
        return None
    if len(raw) != _HANDLE.size + _CHECKSUM.size:
        return None
    content = raw[: _HANDLE.size]
    version, topic, partition, offset, lease, hashed = _HANDLE.unpack(content)
    is_ours = version == _HANDLE_VERSION and offset >= 0 <= lease and _CHECKSUM.unpack(raw[_HANDLE.size :])[0] == binascii.crc32(content)
    return Handle(topic, partition, offset, lease, hashed) if is_ours else None
