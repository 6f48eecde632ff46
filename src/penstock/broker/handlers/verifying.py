"""Before the first batch of a transaction is appended to a partition: its coordinator's word that the partition is part of it (KIP-890).

Clients of the second version of transactions do not say beforehand which partitions they write to: for them the same question adds it.
From before the question until the append a guard is held, which the transaction's end voids (partition/guards.py).
What a coordinator, or a partition, says about a transaction is told to clients in words that their version knows.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from penstock.errors import ErrorCode, Refusal
from penstock.links.transaction_calls import AddToTransaction, Place
from penstock.partition.guards import Guard
from penstock.partition.partition import Partition
from penstock.vocabulary import ProducerId
from penstock.wire.batches import BatchHeader
from penstock.wire.markers import NO_NUMBER

if TYPE_CHECKING:
    from penstock.broker.node import Node

_ABORTABLE_FROM = 11  # Of Produce.
_TRANSACTION_V2_FROM = 12
_NOT_OPEN = "the transaction is not open, or does not know of this partition"

# The coordinator cannot say now: the client is told of something that it waits out.
_ASK_AGAIN = frozenset({
    ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.REQUEST_TIMED_OUT,
})  # fmt: skip

Batch = tuple[Partition, BatchHeader]


def is_v2(version: int) -> bool:
    return version >= _TRANSACTION_V2_FROM


async def verify(node: "Node", transactional_id: str, batches: Mapping[int, Batch], *, is_v2: bool) -> dict[int, Guard | Refusal]:
    """Of each batch the guard with which it may be appended, or why it may not."""
    verified: dict[int, Guard | Refusal] = {}
    by_producer: dict[tuple[int, int], dict[int, Batch]] = {}  # A client has one; but a request may say anything.
    for key, (partition, header) in batches.items():
        by_producer.setdefault((header.producer_id, header.producer_epoch), {})[key] = (partition, header)
    for (producer_id, epoch), theirs in by_producer.items():
        guards: dict[int, Guard] = {}
        for key, (partition, header) in theirs.items():
            try:
                guards[key] = partition.guard(header, is_v2=is_v2)
            except Refusal as refusal:
                verified[key] = refusal
        if guards:
            places = tuple(_place(theirs[key][0]) for key in guards)
            codes, number = await _ask(node, AddToTransaction(transactional_id, ProducerId(producer_id), epoch, not is_v2, places))
            for (key, guard), code in zip(guards.items(), codes, strict=True):
                guard.number = number if code is ErrorCode.NONE else guard.number
                verified[key] = guard if code is ErrorCode.NONE else Refusal(code, _NOT_OPEN)
    return verified


async def _ask(node: "Node", wish: AddToTransaction) -> tuple[tuple[ErrorCode, ...], int]:
    try:
        codes, number = await node.transactions.add(wish)
    except Refusal as refusal:
        return (refusal.code,) * len(wish.places), NO_NUMBER
    return codes, number


def _place(partition: Partition) -> Place:
    return Place(partition.topic, partition.topic_id, partition.index)


def spoken(code: ErrorCode, version: int) -> ErrorCode:
    """What a client that produces with this version understands, and does the right thing about."""
    if code in _ASK_AGAIN or (code is ErrorCode.CONCURRENT_TRANSACTIONS and version < _TRANSACTION_V2_FROM):
        return ErrorCode.NOT_ENOUGH_REPLICAS
    if code is ErrorCode.PRODUCER_FENCED:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    if code in (ErrorCode.INVALID_TXN_STATE, ErrorCode.TRANSACTION_ABORTABLE):
        return ErrorCode.TRANSACTION_ABORTABLE if version >= _ABORTABLE_FROM else ErrorCode.INVALID_TXN_STATE
    return code
