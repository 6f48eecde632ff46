"""Offsets that a transaction commits, while nobody knows yet how it ends: two records of `__consumer_offsets`.

Kafka writes such offsets under the key of the committed one, in transactional batches, and a marker in the log decides over them. Here each
key stands alone, so they have a key of their own, with the producer in it; when the transaction ends they are deleted, and what it has
committed is written as any other committed offset. A producer has one transaction at a time, so all that it has pending here is of one.
Not here: what becomes of them (pending.py), and which of them there are (pending_image.py).
"""

import struct
from typing import NamedTuple

from penstock.groups.packing import SHORT, unknown_form
from penstock.vocabulary import ProducerId, TopicId

PENDING_KIND = 3
PENDING_VERSION = 1
NO_NUMBER = -1  # Of a transaction whose number nobody told.

_KEY = struct.Struct(">hqiI")  # kind, producer id, partition, bytes of the group's name; the name and the topic's are the rest
_VALUE = struct.Struct(">hhqqqiq16s")  # version, producer epoch, number, order, offset, leader epoch, committed at, topic id; then metadata


class OffsetPending(NamedTuple):
    group: str
    producer_id: ProducerId
    topic: str
    partition: int
    producer_epoch: int
    number: int  # Which of the producer's transactions this is: it grows by one with each.
    offset: int
    leader_epoch: int
    metadata: str
    committed_ms: int
    topic_id: TopicId
    order: int  # Of two producers that commit for one partition, the one with the greater order came later and holds, as at Kafka.


class PendingDropped(NamedTuple):
    group: str
    producer_id: ProducerId
    topic: str
    partition: int


def encode_pending(record: OffsetPending | PendingDropped) -> tuple[bytes, bytes | None]:
    name = record.group.encode()
    key = _KEY.pack(PENDING_KIND, record.producer_id, record.partition, len(name)) + name + record.topic.encode()
    if isinstance(record, PendingDropped):
        return key, None
    value = _VALUE.pack(
        PENDING_VERSION, record.producer_epoch, record.number, record.order, record.offset, record.leader_epoch, record.committed_ms,
        record.topic_id,
    )  # fmt: skip
    return key, value + record.metadata.encode()


def decode_pending(key: bytes, value: bytes | None) -> OffsetPending | PendingDropped:
    """Raises one of NOT_A_RECORD on bytes that were never written by `encode_pending`."""
    _, producer_id, partition, name_bytes = _KEY.unpack_from(key)
    name_end = _KEY.size + name_bytes
    if name_end > len(key):
        raise struct.error(f"{name_bytes} bytes announced, {len(key) - _KEY.size} there")
    group, topic = key[_KEY.size : name_end].decode(), key[name_end:].decode()
    if value is None:
        return PendingDropped(group, ProducerId(producer_id), topic, partition)
    version = SHORT.unpack_from(value)[0]
    if version != PENDING_VERSION:
        raise unknown_form("pending offset", version)
    _, epoch, number, order, offset, leader_epoch, committed_ms, topic_id = _VALUE.unpack_from(value)
    metadata = value[_VALUE.size :].decode()
    return OffsetPending(
        group, ProducerId(producer_id), topic, partition, epoch, number, offset, leader_epoch, metadata, committed_ms,
        TopicId(topic_id), order,
    )  # fmt: skip
