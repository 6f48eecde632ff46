"""The records of `__transaction_state`: one key for each transactional id, whose last record says all there is to say of it.

Each record is absolute, so whoever replays only the last one of every key, in any order, reaches the same state: that is what lets
compaction drop the others, and a loader skip them.

A key is a big-endian int16 kind and the id; a value is an int16 version and the fields. A kind or version that this node doesn't know is
refused: guessing at transactions loses data. A new field gets a new version; a number is never used again for something else.
Partitions of one topic that stand side by side are written with its name once: a large transaction writes all of them with every record.
"""

import struct
from dataclasses import dataclass
from itertools import groupby
from typing import NamedTuple, assert_never

from penstock.cluster.records import UnknownRecord
from penstock.errors import BrokenPromise, require
from penstock.transactions.states import TransactionState
from penstock.vocabulary import NO_PRODUCER, ProducerId, TopicId

TRANSACTION_KIND = 1
TRANSACTION_VERSION = 1

NO_EPOCH = -1  # Of a producer that there isn't.
NO_TIME_MS = -1  # When a transaction started that has not.

_KIND = struct.Struct(">h")
# version, producer id and epoch, the last ones, next producer id, time-out, state, number, started, updated, client's version, topics
_FIXED = struct.Struct(">hqhqhqibqqqbI")
_NAME_LENGTH = struct.Struct(">H")
_TOPIC = struct.Struct(">16sI")  # id, how many partitions


class TransactionPartition(NamedTuple):
    """A partition that a transaction writes to. A topic that is deleted and made again under its name is another topic."""

    topic: str
    topic_id: TopicId
    partition: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionSaved:
    transactional_id: str
    producer_id: ProducerId
    producer_epoch: int  # While the transaction ends: that of its markers. The largest number that fits is never given to a client.
    last_producer_id: ProducerId = NO_PRODUCER  # The name that the same producer had before its last bump: it may not have heard of the
    last_producer_epoch: int = NO_EPOCH  # new one, and asks again with this. None where another producer has begun since.
    next_producer_id: ProducerId = NO_PRODUCER  # While the transaction ends: the id after it, with epoch 0, where epochs are used up.
    timeout_ms: int
    state: TransactionState
    partitions: tuple[TransactionPartition, ...] = ()  # In the order in which they came, each once.
    number: int = 0  # How many transactions this id has begun: markers carry it, lest a late one ends the next transaction.
    started_ms: int = NO_TIME_MS  # Wall clock of the first partition.
    updated_ms: int
    client_version: int  # 1: epochs stay over the end of a transaction. 2: they grow with it (KIP-890).


@dataclass(frozen=True, slots=True)
class TransactionForgotten:
    transactional_id: str


Record = TransactionSaved | TransactionForgotten


def encode(record: Record) -> tuple[bytes, bytes | None]:
    """The key and the value; None is a tombstone."""
    match record:
        case TransactionSaved():
            return _key(record.transactional_id), _value(record)
        case TransactionForgotten():
            return _key(record.transactional_id), None
        case _:
            assert_never(record)


def decode(key: bytes, value: bytes | None) -> Record:
    try:
        kind = _KIND.unpack_from(key)[0]
        if kind != TRANSACTION_KIND:
            raise _unknown("key", kind)
        transactional_id = str(key[_KIND.size :], "utf-8")
        return TransactionForgotten(transactional_id) if value is None else _read(transactional_id, value)
    except (struct.error, UnicodeDecodeError, ValueError) as wrong:
        raise BrokenPromise(f"a transaction's record does not read back: {wrong}") from None


def _key(transactional_id: str) -> bytes:
    return _KIND.pack(TRANSACTION_KIND) + transactional_id.encode()


def _value(record: TransactionSaved) -> bytes:
    require(record.state.is_recorded, "a state that passes at once is not recorded")
    topics = [(topic, [each.partition for each in group]) for topic, group in groupby(record.partitions, key=_topic_of)]
    pieces = [
        _FIXED.pack(
            TRANSACTION_VERSION, record.producer_id, record.producer_epoch, record.last_producer_id, record.last_producer_epoch,
            record.next_producer_id, record.timeout_ms, record.state, record.number, record.started_ms, record.updated_ms,
            record.client_version, len(topics),
        )
    ]  # fmt: skip
    for (topic, topic_id), numbers in topics:
        name = topic.encode()
        pieces += (_NAME_LENGTH.pack(len(name)), name, _TOPIC.pack(topic_id, len(numbers)), struct.pack(f">{len(numbers)}i", *numbers))
    return b"".join(pieces)


def _topic_of(partition: TransactionPartition) -> tuple[str, TopicId]:
    return partition.topic, partition.topic_id


def _read(transactional_id: str, value: bytes) -> TransactionSaved:
    version = _KIND.unpack_from(value)[0]
    if version != TRANSACTION_VERSION:
        raise _unknown("transaction", version)
    (
        _, producer_id, producer_epoch, last_producer_id, last_producer_epoch, next_producer_id, timeout_ms, state, number,
        started_ms, updated_ms, client_version, topics,
    ) = _FIXED.unpack_from(value)  # fmt: skip
    return TransactionSaved(
        transactional_id=transactional_id, producer_id=producer_id, producer_epoch=producer_epoch,
        last_producer_id=last_producer_id, last_producer_epoch=last_producer_epoch, next_producer_id=next_producer_id,
        timeout_ms=timeout_ms, state=_recorded(state), partitions=_read_partitions(value, topics), number=number,
        started_ms=started_ms, updated_ms=updated_ms, client_version=client_version,
    )  # fmt: skip


def _recorded(number: int) -> TransactionState:
    state = TransactionState(number)
    if not state.is_recorded:
        raise ValueError(f"{state.title} is never recorded")
    return state


def _read_partitions(value: bytes, topics: int) -> tuple[TransactionPartition, ...]:
    found: list[TransactionPartition] = []
    at = _FIXED.size
    for _ in range(topics):
        name_at = at + _NAME_LENGTH.size
        name_end = name_at + _NAME_LENGTH.unpack_from(value, at)[0]
        topic_id, count = _TOPIC.unpack_from(value, name_end)  # Past the end it raises, so the name was there whole.
        at = name_end + _TOPIC.size
        topic = str(value[name_at:name_end], "utf-8")
        found += [TransactionPartition(topic, topic_id, number) for number in struct.unpack_from(f">{count}i", value, at)]
        at += 4 * count
    if at != len(value):
        raise ValueError(f"{len(value) - at} bytes more than the partitions take")
    return tuple(found)


def _unknown(what: str, number: int) -> UnknownRecord:
    return UnknownRecord(f"transaction record with a {what} of form {number}: start a newer Penstock on this data directory")
