"""How far a consumer has come: what was handed to the caller, and what may be committed of it.

The offset to commit is the one after the last record handed out: everything below it counts as done when the caller says so. A
partition that is taken away is forgotten at once: to commit it later could set its new owner back, or make it skip what this one never
finished. That it was taken away with records that the caller has not finished is remembered until the caller turns back or has
committed: what it made of those records must not count (transactions.py), since their new owner makes it again.
No thread, no library, no waiting: plain bookkeeping.
"""

from collections.abc import Iterable

from penstock.client.records import Message

Place = tuple[str, int]  # A topic and one of its partitions.


class Progress:
    def __init__(self) -> None:
        self.assigned: dict[Place, None] = {}  # In the order in which they came.
        self._next: dict[Place, int] = {}  # The offset after the last one handed out, or the one sought.
        self._owed: dict[Place, int] = {}  # What committing now would commit.
        self._since: dict[Place, int] = {}  # Of each that is owed: the first offset handed out and not committed.
        self._lost: dict[Place, None] = {}  # Taken away while something of them was owed.

    def assign(self, places: Iterable[Place]) -> None:
        self.assigned.update(dict.fromkeys(places))

    def revoke(self, places: Iterable[Place]) -> None:
        for place in places:
            if place in self._owed:
                self._lost[place] = None
            for table in (self.assigned, self._next, self._owed, self._since):
                table.pop(place, None)

    def handed(self, message: Message) -> None:
        """The caller has it. Of a partition that is no longer ours nothing is noted: its new owner gets the record too."""
        place = (message.topic, message.partition)
        if place in self.assigned:
            self._since.setdefault(place, message.offset)
            self._next[place] = self._owed[place] = message.offset + 1

    def sought(self, place: Place, offset: int) -> None:
        """The next record is to be this one. What was handed out before is no longer owed: the caller has turned away from it."""
        self._next[place] = offset
        self._owed.pop(place, None)
        self._since.pop(place, None)

    def position(self, place: Place) -> int | None:
        return self._next.get(place)

    def owed(self) -> dict[Place, int]:
        return dict(self._owed)

    def since(self) -> dict[Place, int]:
        """Where to turn back to, to be handed again all that is owed."""
        return dict(self._since)

    def lost(self) -> list[Place]:
        """What was taken away while something of it was owed."""
        return list(self._lost)

    def forgive(self) -> None:
        """The caller has let go of whatever it made of lost records."""
        self._lost.clear()

    def after(self, messages: Iterable[Message]) -> dict[Place, int]:
        """The offsets that say: these, and all before them, are done."""
        offsets: dict[Place, int] = {}
        for message in messages:
            place = (message.topic, message.partition)
            offsets[place] = max(offsets.get(place, 0), message.offset + 1)
        return offsets

    def committed(self, offsets: dict[Place, int]) -> None:
        for place, offset in offsets.items():
            if self._owed.get(place, offset + 1) <= offset:
                del self._owed[place], self._since[place]
            elif place in self._since:
                self._since[place] = max(self._since[place], offset)
