"""What may be wanted of a transactional id: orders, as the APIs carry them, freed of versions and bytes.

Each carries the token of whom to answer, which is answered once. A fresh producer id is drawn by the asker, for a decision has no dice; it
is used only where one is needed (`TransactionCoordinator.needs_producer_id`) and may be left out elsewhere.
Not here: what the answers look like (replies.py).
"""

from collections.abc import Hashable
from dataclasses import dataclass

from penstock.transactions.records import NO_EPOCH, TransactionPartition
from penstock.vocabulary import NO_PRODUCER, ProducerId

Token = Hashable


@dataclass(frozen=True, slots=True, kw_only=True)
class InitProducer:
    """A producer begins with this id. With the name that it has (KIP-360), it goes on after an error; without, it fences all others."""

    token: Token
    transactional_id: str
    timeout_ms: int
    producer_id: ProducerId = NO_PRODUCER
    producer_epoch: int = NO_EPOCH
    fresh_producer_id: ProducerId = NO_PRODUCER
    is_transaction_v2: bool = True
    keeps_prepared: bool = False  # For two-phase commits (KIP-939), which are not served.


@dataclass(frozen=True, slots=True, kw_only=True)
class AddPartitions:
    """From a client, or from the leader of a partition to which a client has sent records (KIP-890)."""

    token: Token
    transactional_id: str
    producer_id: ProducerId
    producer_epoch: int
    partitions: tuple[TransactionPartition, ...]
    is_verify_only: bool = False  # Only says whether they are part of the transaction.
    is_transaction_v2: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class EndTransaction:
    token: Token
    transactional_id: str
    producer_id: ProducerId
    producer_epoch: int
    is_commit: bool
    is_transaction_v2: bool
    fresh_producer_id: ProducerId = NO_PRODUCER


@dataclass(frozen=True, slots=True, kw_only=True)
class MarkersWritten:
    """These partitions have the marker, or are gone for good. Nobody hears of it; what does not fit the state any more is left alone."""

    transactional_id: str
    producer_id: ProducerId  # As the `MarkersOwed` had them.
    producer_epoch: int
    number: int
    partitions: tuple[TransactionPartition, ...]


@dataclass(frozen=True, slots=True)
class Abandoned:
    """The asker has hung up. Every decision answers at once, so there is nothing to forget."""

    token: Token


Command = InitProducer | AddPartitions | EndTransaction | MarkersWritten | Abandoned
