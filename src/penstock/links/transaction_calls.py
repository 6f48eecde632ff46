"""Bytes ⇄ what coordinators of transactions and leaders of partitions ask of each other.

As JSON: it is asked once for each partition of a transaction, not for each batch. A field that is not known is passed over, so that nodes
of the next version may say more.
"""

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from penstock.errors import ErrorCode, MalformedInput
from penstock.links.lists import read_list, write_list
from penstock.vocabulary import ProducerId, TopicId


class Place(NamedTuple):
    """One of a topic's partitions."""

    topic: str
    topic_id: TopicId
    partition: int



class AddToTransaction(NamedTuple):
    transactional_id: str
    producer_id: ProducerId
    producer_epoch: int
    is_verify_only: bool
    places: tuple[Place, ...]


class Added(NamedTuple):
    codes: tuple[ErrorCode, ...]  # Of each place, in the order asked for.
    number: int  # Of the transaction; -1 in a refusal.


class Ended(NamedTuple):
    """The end of a transaction, as it is told to its partitions."""

    producer_id: ProducerId
    producer_epoch: int  # The marker's.
    number: int
    is_commit: bool
    is_v2: bool  # The marker's epoch is above that of the records it ends.
    coordinator_epoch: int
    places: tuple[Place, ...]


def write_add(wish: AddToTransaction) -> bytes:
    return write_list([wish.transactional_id, wish.producer_id, wish.producer_epoch, wish.is_verify_only, _plain_places(wish.places)])


def read_add(body: memoryview) -> AddToTransaction:
    try:
        transactional_id, producer_id, producer_epoch, is_verify_only, places, *_ = read_list(body)
        return AddToTransaction(
            str(transactional_id), ProducerId(int(producer_id)), int(producer_epoch), bool(is_verify_only), _read_places(places)
        )
    except (TypeError, ValueError) as wrong:
        raise _malformed(wrong) from None


def write_added(added: Added) -> bytes:
    return write_list([list(map(int, added.codes)), added.number])


def read_added(body: memoryview) -> Added:
    try:
        codes, number, *_ = read_list(body)
        return Added(_read_codes(codes), int(number))
    except (TypeError, ValueError) as wrong:
        raise _malformed(wrong) from None


def write_ended(ends: Sequence[Ended]) -> bytes:
    return write_list([[*end[:6], _plain_places(end.places)] for end in ends])


def read_ended(body: memoryview) -> list[Ended]:
    try:
        return [_read_end(row) for row in read_list(body)]
    except (TypeError, ValueError) as wrong:
        raise _malformed(wrong) from None


def write_codes(codes: Iterable[Sequence[ErrorCode]]) -> bytes:
    """Of each end, in the order asked for: what became of each of its places."""
    return write_list([list(map(int, row)) for row in codes])


def read_codes(body: memoryview) -> list[tuple[ErrorCode, ...]]:
    try:
        return [_read_codes(row) for row in read_list(body)]
    except (TypeError, ValueError) as wrong:
        raise _malformed(wrong) from None


def _read_end(row: Any) -> Ended:
    producer_id, producer_epoch, number, is_commit, is_v2, coordinator_epoch, places, *_ = row
    return Ended(
        ProducerId(int(producer_id)), int(producer_epoch), int(number), bool(is_commit), bool(is_v2), int(coordinator_epoch),
        _read_places(places),
    )  # fmt: skip


def _plain_places(places: Iterable[Place]) -> list[list[Any]]:
    return [[topic, topic_id.hex(), partition] for topic, topic_id, partition in places]


def _read_places(rows: Any) -> tuple[Place, ...]:
    return tuple(Place(str(topic), TopicId(bytes.fromhex(topic_id)), int(partition)) for topic, topic_id, partition in rows)


def _read_codes(numbers: Any) -> tuple[ErrorCode, ...]:
    return tuple(ErrorCode(int(number)) for number in numbers)


def _malformed(wrong: Exception) -> MalformedInput:
    return MalformedInput(f"a call about transactions is not what it should be: {wrong}")
