"""What is owed to partitions, and what readers may see of transactional ids, as plain values."""

from dataclasses import dataclass

from penstock.transactions.records import TransactionPartition
from penstock.transactions.states import TransactionState
from penstock.vocabulary import ProducerId


@dataclass(frozen=True, slots=True, kw_only=True)
class MarkersOwed:
    """The end of a transaction is settled, and these partitions have yet to get its marker."""

    transactional_id: str
    producer_id: ProducerId
    producer_epoch: int  # The marker's.
    number: int
    is_commit: bool
    is_v2: bool  # The marker's epoch is above that of the records it ends.
    partitions: tuple[TransactionPartition, ...]


@dataclass(frozen=True, slots=True)
class TransactionListed:
    transactional_id: str
    producer_id: ProducerId
    state: TransactionState


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionView:
    transactional_id: str
    state: TransactionState
    producer_id: ProducerId
    producer_epoch: int
    timeout_ms: int
    started_ms: int  # -1: no transaction has started since a producer began with the id.
    number: int
    partitions: tuple[TransactionPartition, ...]
