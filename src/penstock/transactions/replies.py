"""What the askers hear: one shape for each API, with the fields of its newest version. All that was asked is answered, in that order.

Who does not hold the id any more hears PRODUCER_FENCED; what older versions of an API call that is the handler's affair.
"""

from dataclasses import dataclass

from penstock.errors import ErrorCode
from penstock.transactions.records import NO_EPOCH, TransactionPartition
from penstock.vocabulary import NO_PRODUCER, ProducerId

NO_NUMBER = -1  # In a refusal.


@dataclass(frozen=True, slots=True)
class InitReply:
    error: ErrorCode
    producer_id: ProducerId = NO_PRODUCER
    producer_epoch: int = NO_EPOCH


@dataclass(frozen=True, slots=True)
class AddReply:
    partitions: tuple[tuple[TransactionPartition, ErrorCode], ...]
    number: int = NO_NUMBER  # Of the transaction that the partitions without an error are part of.


@dataclass(frozen=True, slots=True)
class EndReply:
    error: ErrorCode
    producer_id: ProducerId = NO_PRODUCER  # Whose the next transaction is to be; only in version 2 of transactions.
    producer_epoch: int = NO_EPOCH


Reply = InitReply | AddReply | EndReply
