"""When something lapses next, over many things with a name: the groups or the transactions of a coordinator.

One alarm for each name, at or before its earliest deadline. Most events only push deadlines back, and so touch nothing here: the alarm
rings, finds nothing due, and is set again. An alarm that was moved forward leaves its old entry behind, which is skipped when it comes up.
"""

from heapq import heappop, heappush
from math import inf

from penstock.vocabulary import Instant

_NEVER = Instant(inf)
_SKIPPED_MAX = 1_000  # Entries that don't count any more, beyond as many as do. Whoever comes and goes all day must not fill the memory.


class Alarms:
    def __init__(self) -> None:
        self._heap: list[tuple[Instant, str]] = []
        self._set: dict[str, Instant] = {}  # The one entry of each name that counts.

    def set_by(self, name: str, at: Instant) -> None:
        """Rings for the name at this time at the latest. A time that never comes needs no alarm."""
        if at < self._set.get(name, _NEVER):
            self._set[name] = at
            heappush(self._heap, (at, name))
            if len(self._heap) > 2 * len(self._set) + _SKIPPED_MAX:
                self._heap = sorted((at, name) for name, at in self._set.items())

    def forget(self, name: str) -> None:
        self._set.pop(name, None)

    def next(self) -> Instant | None:
        heap = self._heap
        while heap and self._set.get(heap[0][1]) != heap[0][0]:
            heappop(heap)
        return heap[0][0] if heap else None

    def ring(self, now: Instant) -> str | None:
        """The next name whose alarm is due; it has none until it is set again."""
        at = self.next()
        if at is None or at > now:
            return None
        name = heappop(self._heap)[1]
        del self._set[name]
        return name
