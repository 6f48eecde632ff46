"""Guards of transactions that are about to begin on a partition: why none is left hanging (KIP-890).

Before the first batch of a transaction is appended, its coordinator is asked whether the transaction is open and knows of the partition.
From before that question until the append the leader holds a guard for the producer. A marker for it, or a change of leader, voids the
guard: what the coordinator said may not hold any more, and a batch appended after the marker would be of a transaction that nobody ends.
All batches of a producer that wait at the same time share one guard. It remembers the lowest sequence among them: if that one's question
came to nothing, a later batch that was let through must not take its place.
What waits may be forgotten: a guard is no part of what is replayed.
"""

from penstock.wire.batches import BatchHeader
from penstock.wire.markers import NO_NUMBER


class Guard:
    """Held by whoever asks a transaction's coordinator on behalf of some batch, and given back with the batch."""

    __slots__ = ("epoch", "is_v2", "is_valid", "lowest_sequence", "number", "producer_id")

    def __init__(self, header: BatchHeader, *, is_v2: bool) -> None:
        self.producer_id = header.producer_id
        self.epoch = header.producer_epoch
        self.lowest_sequence = header.base_sequence
        self.is_v2 = is_v2  # By the second version of transactions, in which each has an epoch of its own.
        self.is_valid = True
        self.number = NO_NUMBER  # Of the transaction: whoever hears it from the coordinator notes it here.

    def share(self, header: BatchHeader) -> None:
        """Another batch of the same producer waits too."""
        if header.producer_epoch > self.epoch:
            self.epoch, self.lowest_sequence = header.producer_epoch, header.base_sequence
        elif header.producer_epoch == self.epoch:
            self.lowest_sequence = min(self.lowest_sequence, header.base_sequence)


class Guards:
    """Past the bound the oldest is void: its batch is refused, and may be sent again."""

    __slots__ = ("_held", "_held_max")

    def __init__(self, held_max: int) -> None:
        self._held: dict[int, Guard] = {}  # By producer, the oldest first.
        self._held_max = held_max

    def __len__(self) -> int:
        return len(self._held)

    def hold(self, header: BatchHeader, *, is_v2: bool) -> Guard:
        guard = self._held.get(header.producer_id)
        if guard is None:
            if len(self._held) >= self._held_max:
                self.void(next(iter(self._held)))
            guard = self._held[header.producer_id] = Guard(header, is_v2=is_v2)
        else:
            guard.share(header)
        return guard

    def void(self, producer_id: int) -> None:
        """The producer's transaction has begun here, or something has ended."""
        guard = self._held.pop(producer_id, None)
        if guard is not None:
            guard.is_valid = False

    def void_all(self) -> None:
        for producer_id in list(self._held):
            self.void(producer_id)
