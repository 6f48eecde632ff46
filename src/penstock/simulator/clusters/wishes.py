"""Keeps where partitions may be, by what an operator asked for and was told: what the end of a run is judged by.

Of each partition, the replicas that it may have had before the move under way (a move that is given up goes back to those), and those that
it may be moving to. A request that was answered settles where the partition goes. One whose answer was lost may be carried out at any
later moment, even after the next one, so it stays possible until the end.
"""

from dataclasses import dataclass, field

from penstock.vocabulary import TopicPartition

Replicas = tuple[int, ...]
PROMPT_SECONDS = 1.0  # An answer that took longer may stand for a request that some node sent twice: the second may still be under way.


@dataclass(slots=True)
class Wish:
    before: dict[frozenset[int], None] = field(default_factory=dict)
    wanted: dict[frozenset[int], None] = field(default_factory=dict)
    unknown: dict[frozenset[int], None] = field(default_factory=dict)  # Of requests that may still be carried out.
    order: Replicas | None = None  # Of the replicas, where it is known.

    def possible(self) -> dict[frozenset[int], None]:
        return {**self.wanted, **self.unknown}


@dataclass(slots=True)
class Wishes:
    by_partition: dict[TopicPartition, Wish] = field(default_factory=dict)
    throttles: dict[str | None, None] = field(default_factory=lambda: {None: None})  # What the throttle may be.

    def found(self, where: TopicPartition, replicas: Replicas) -> Wish:
        """The partition is to have these replicas as far as it was not asked for others before."""
        if where not in self.by_partition:
            here = {frozenset(replicas): None}
            self.by_partition[where] = Wish(dict(here), dict(here))
        return self.by_partition[where]

    def begun(self, where: TopicPartition, replicas: Replicas, *, seconds: float) -> None:
        wish = self.by_partition[where]
        wish.before |= wish.possible()
        wish.wanted, wish.order = {frozenset(replicas): None}, replicas if not wish.unknown else None
        if seconds > PROMPT_SECONDS:
            wish.unknown |= wish.wanted

    def may_have_begun(self, where: TopicPartition, replicas: Replicas) -> None:
        wish = self.by_partition[where]
        wish.before |= wish.possible()
        wish.unknown[frozenset(replicas)] = None
        wish.order = None

    def given_up(self, where: TopicPartition) -> None:
        wish = self.by_partition[where]
        wish.wanted, wish.order = dict(wish.before), None

    def may_have_been_given_up(self, where: TopicPartition) -> None:
        wish = self.by_partition[where]
        wish.unknown |= wish.before
        wish.order = None

    def ended(self, where: TopicPartition, replicas: Replicas) -> None:
        """The partition was seen with these replicas and nothing under way: nothing earlier comes back, if this is news at all."""
        wish = self.by_partition[where]
        here = frozenset(replicas)
        if not wish.unknown and [*wish.wanted] == [here] and here not in wish.before:
            wish.before = {here: None}
