"""What is owed to partitions, and what readers may see of transactional ids, as plain values."""

from collections.abc import Callable, Collection
from dataclasses import dataclass

from penstock.transactions.records import NO_TIME_MS, TransactionPartition, TransactionSaved
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """Which ids a list is to have: those that pass all of it. What is left out lets everything pass."""

    states: tuple[TransactionState, ...] | None = None  # An empty tuple wants none of them: all that were named are unknown.
    producer_ids: Collection[ProducerId] = ()  # Empty: of any.
    longer_than_ms: int = -1  # Of the transaction that was last begun. An id that has begun none has lasted for no time at all.
    matches: Callable[[str], bool] | None = None

    def includes(self, saved: TransactionSaved, wall_ms: int) -> bool:
        if self.states is not None and saved.state not in self.states:
            return False
        if self.producer_ids and saved.producer_id not in self.producer_ids:
            return False
        if self.longer_than_ms >= 0 and (saved.started_ms == NO_TIME_MS or wall_ms - saved.started_ms <= self.longer_than_ms):
            return False
        return self.matches is None or self.matches(saved.transactional_id)
