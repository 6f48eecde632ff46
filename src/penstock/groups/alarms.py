"""When something lapses next, over all groups of a coordinator.

One alarm for each group, at or before its earliest deadline. Heartbeats only push deadlines back, so they touch nothing here: the alarm
rings, finds nothing due, and is set again. An alarm that was moved forward leaves its old entry behind, which is skipped when it comes up.
"""

from heapq import heappop, heappush

from penstock.groups.group import NEVER
from penstock.vocabulary import Instant

_SKIPPED_MAX = 1_000  # Entries that don't count any more, beyond as many as do. Whoever joins and leaves all day must not fill the memory.


class Alarms:
    def __init__(self) -> None:
        self._heap: list[tuple[Instant, str]] = []
        self._set: dict[str, Instant] = {}  # The one entry of each group that counts.

    def set_by(self, group: str, at: Instant) -> None:
        """Rings for the group at this time at the latest."""
        if at < self._set.get(group, NEVER):
            self._set[group] = at
            heappush(self._heap, (at, group))
            if len(self._heap) > 2 * len(self._set) + _SKIPPED_MAX:
                self._heap = sorted((at, group) for group, at in self._set.items())

    def forget(self, group: str) -> None:
        self._set.pop(group, None)

    def next(self) -> Instant | None:
        heap = self._heap
        while heap and self._set.get(heap[0][1]) != heap[0][0]:
            heappop(heap)
        return heap[0][0] if heap else None

    def ring(self, now: Instant) -> str | None:
        """The next group whose alarm is due; it has none until it is set again."""
        at = self.next()
        if at is None or at > now:
            return None
        group = heappop(self._heap)[1]
        del self._set[group]
        return group
