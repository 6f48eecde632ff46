"""What offsets in transactions must look like, told naively: everything that was ever said has a number, and the greatest one holds.

It knows nothing of records, pieces and guards. While an end is under way, what it decides over may be seen as before or as after.
"""

from dataclasses import dataclass, field

from groups.checkers import must

from penstock.groups.coordinator import GroupCoordinator
from penstock.vocabulary import ProducerId

Place = tuple[str, str, int]  # group, topic, partition
Said = tuple[int, int]  # when, what
NOTHING: Said = (0, -1)
UNSTABLE = -2


@dataclass(slots=True)
class Open:
    number: int
    said: dict[Place, Said] = field(default_factory=dict)
    ends_as: bool | None = None  # Committed or aborted: its end has begun.


class Model:
    def __init__(self) -> None:
        self.committed: dict[Place, Said] = {}
        self.open: dict[ProducerId, Open] = {}
        self._clock = 0

    # What happens

    def commit(self, place: Place, offset: int) -> None:
        self._clock += 1
        self.committed[place] = (self._clock, offset)

    def pend(self, producer: ProducerId, number: int, place: Place, offset: int) -> None:
        self._clock += 1
        transaction = self.open.setdefault(producer, Open(number))
        must(transaction.number == number, f"{number} of {producer} begins before {transaction.number} is over")
        transaction.said[place] = (self._clock, offset)

    def end_begins(self, producer: ProducerId, number: int, commits: bool) -> None:
        transaction = self.open.get(producer)
        if transaction is not None and transaction.number == number:
            transaction.ends_as = commits

    def end_is_over(self, producer: ProducerId, number: int) -> None:
        transaction = self.open.get(producer)
        if transaction is None or transaction.number != number:
            return
        del self.open[producer]
        for place, said in transaction.said.items():
            if transaction.ends_as and said > self.committed.get(place, NOTHING):
                self.committed[place] = said

    def delete(self, *, group: str | None = None, topic: str | None = None, partition: int | None = None) -> None:
        """All that was said of these, by whomever."""

        def is_meant(place: Place) -> bool:
            return group in (None, place[0]) and topic in (None, place[1]) and partition in (None, place[2])

        for held in (self.committed, *(transaction.said for transaction in self.open.values())):
            for place in [place for place in held if is_meant(place)]:
                del held[place]

    # What must be seen

    def check(self, coordinator: GroupCoordinator, places: list[Place]) -> None:
        for place in places:
            group, *where = place
            (plain,) = coordinator.offsets(group, [(where[0], where[1])])
            (stable,) = coordinator.offsets(group, [(where[0], where[1])], require_stable=True)
            must(plain.offset in self._plain(place), f"{place} is {plain.offset}, and {self._plain(place)} was said")
            seen = UNSTABLE if stable.is_unstable else stable.offset
            must(seen in self._stable(place), f"{place} is stable at {seen}, and {self._stable(place)} was said")
        for group in dict.fromkeys(place[0] for place in places):
            self._check_group(coordinator, group)

    def _check_group(self, coordinator: GroupCoordinator, group: str) -> None:
        committed = any(place[0] == group for place in self.committed)
        pending = [transaction for transaction in self.open.values() if any(place[0] == group for place in transaction.said)]
        if committed or any(transaction.ends_as is None and self._may_change(transaction, group) for transaction in pending):
            must(coordinator.holds(group), f"{group} is forgotten")
        elif not pending:
            must(not coordinator.holds(group), f"{group} is there for nothing")

    def _may_change(self, transaction: Open, group: str) -> bool:
        return any(place[0] == group and said > self._latest(place) for place, said in transaction.said.items())

    def _plain(self, place: Place) -> list[int]:
        return [said[1] for said in (self.committed.get(place, NOTHING), *self._ending(place))]

    def _stable(self, place: Place) -> list[int]:
        base, latest = self.committed.get(place, NOTHING), self._latest(place)
        pending = [(each.said[place], each.ends_as) for each in self.open.values() if each.said.get(place, NOTHING) > base]
        if any(said > latest and ends_as is None for said, ends_as in pending):
            return [UNSTABLE]
        return self._plain(place) + ([UNSTABLE] if pending else [])

    def _ending(self, place: Place) -> list[Said]:
        """What ends that are under way commit here, or have committed already."""
        base = self.committed.get(place, NOTHING)
        return [each.said[place] for each in self.open.values() if each.ends_as and each.said.get(place, NOTHING) > base]

    def _latest(self, place: Place) -> Said:
        return max([self.committed.get(place, NOTHING), *self._ending(place)])
