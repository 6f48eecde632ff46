"""Guards against offsets that come after the end of their transaction.

Before the coordinator of groups takes the first offsets of a transaction, the coordinator of transactions is asked whether it is open. The
answer may be old when it arrives: the transaction may have ended meanwhile, and its end may have been here already. So a guard is taken
before the question is asked and shown with the offsets, and whatever ends here in between is noted on it.
A guard lives as long as somebody holds it; nothing need be given back. One that was taken before this state was loaded is worth nothing.
"""

from weakref import WeakValueDictionary

from penstock.errors import ErrorCode
from penstock.groups.pending_records import NO_NUMBER
from penstock.vocabulary import ProducerId


class Guard:
    """What has ended of one producer since this was taken."""

    __slots__ = ("__weakref__", "_ended_epoch", "_ended_number")

    def __init__(self) -> None:
        self._ended_number = NO_NUMBER
        self._ended_epoch = -1

    def ended(self, epoch: int, number: int) -> None:
        self._ended_epoch = max(self._ended_epoch, epoch)
        self._ended_number = max(self._ended_number, number)

    def fault_of(self, epoch: int, number: int) -> ErrorCode:
        """Why this transaction may add no more; NONE if nothing of it has ended.

        The late end of an older one, which carries a smaller number, does not count."""
        if epoch < self._ended_epoch:
            return ErrorCode.INVALID_PRODUCER_EPOCH
        return ErrorCode.INVALID_TXN_STATE if number <= self._ended_number else ErrorCode.NONE


class Guards:
    def __init__(self) -> None:
        self._held: WeakValueDictionary[ProducerId, Guard] = WeakValueDictionary()

    def take(self, producer_id: ProducerId) -> Guard:
        """One for all that ask at the same time about the same producer."""
        guard = self._held.get(producer_id)
        if guard is None:
            guard = self._held[producer_id] = Guard()
        return guard

    def holds(self, producer_id: ProducerId, guard: Guard) -> bool:
        return self._held.get(producer_id) is guard

    def ended(self, producer_id: ProducerId, epoch: int, number: int) -> None:
        """An end that doesn't say which transaction it means may mean any: whoever is on the way asks again."""
        guard = self._held.get(producer_id)
        if guard is not None and number == NO_NUMBER:
            del self._held[producer_id]
        elif guard is not None:
            guard.ended(epoch, number)
