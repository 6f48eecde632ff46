"""Who says that it is the producer: a producer id and an epoch are its name, and every request tells one.

The name grows with every producer that begins with the transactional id, with every transaction that is ended for its producer, and in
version 2 of transactions with every end (KIP-890). Whoever comes with an older name is fenced.
An epoch is a number of 15 bits. The largest one is kept back: it lets a producer with the one below be fenced. So a producer whose next
epoch would be that one gets a new producer id instead, and begins with epoch 0.
"""

from dataclasses import replace
from enum import Enum, auto
from typing import NamedTuple

from penstock.errors import ErrorCode
from penstock.transactions.records import NO_EPOCH, TransactionSaved
from penstock.vocabulary import NO_PRODUCER, ProducerId

EPOCH_MAX = 32_767


class Name(NamedTuple):
    producer_id: ProducerId
    producer_epoch: int


NOBODY = Name(NO_PRODUCER, NO_EPOCH)


class Claim(Enum):
    """What a name is to a transactional id."""

    CURRENT = auto()
    PREVIOUS = auto()  # The one before the last bump: that producer may not have heard its new name.
    UPCOMING = auto()  # The one after the transaction that is about to end: the producer knows it already.
    OLD = auto()  # The id is right, and the epoch is one that is over, or was never given.
    FOREIGN = auto()


def claim_of(saved: TransactionSaved, name: Name) -> Claim:
    if name == (saved.producer_id, saved.producer_epoch) and saved.producer_epoch < EPOCH_MAX:
        return Claim.CURRENT
    if name == (saved.last_producer_id, saved.last_producer_epoch) and name != NOBODY:
        return Claim.PREVIOUS
    if name == (saved.next_producer_id, 0) and saved.next_producer_id != NO_PRODUCER:
        return Claim.UPCOMING
    return Claim.OLD if name.producer_id == saved.producer_id else Claim.FOREIGN


def refusal_of(saved: TransactionSaved, name: Name) -> ErrorCode:
    """What somebody hears whose name is not the right one."""
    return ErrorCode.PRODUCER_FENCED if name.producer_id == saved.producer_id else ErrorCode.INVALID_PRODUCER_ID_MAPPING


def name_of(saved: TransactionSaved) -> Name:
    return Name(saved.producer_id, saved.producer_epoch)


def is_used_up(saved: TransactionSaved) -> bool:
    """Whether the next name needs another producer id."""
    return saved.producer_epoch >= EPOCH_MAX - 1


def next_name(saved: TransactionSaved, fresh: ProducerId) -> Name | None:
    """None: it needs a fresh producer id, and there is none."""
    if not is_used_up(saved):
        return Name(saved.producer_id, saved.producer_epoch + 1)
    return None if fresh == NO_PRODUCER else Name(fresh, 0)


def renamed(saved: TransactionSaved, name: Name, *, before: Name) -> TransactionSaved:
    """The same under another name; `before` is the one that may be told once more."""
    return replace(
        saved, producer_id=name.producer_id, producer_epoch=name.producer_epoch,
        last_producer_id=before.producer_id, last_producer_epoch=before.producer_epoch, next_producer_id=NO_PRODUCER,
    )  # fmt: skip
