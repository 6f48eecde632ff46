"""The `uniform` assignor: everybody gets as many partitions as the others, and what needn't move stays where it was.

Where all read the same topics, nobody has two more than another, and of those that must give something up each gives up as little as that
takes. Where they read different topics, nobody has two more than another one who could take one of them from it; that is what single moves
reach, as Kafka's does, and a chain of moves could sometimes do better.
Every step is linear in the partitions; where subscriptions differ also in the pairs of a member and a topic that it reads, half a
microsecond each, and in those of a topic of which something moves.
"""

from collections import deque
from collections.abc import Mapping, Sequence
from heapq import heapify, heapreplace

from penstock.groups.consumer.assignors import Reader, in_order
from penstock.groups.consumer.partitions import Partitions, each, gathered
from penstock.vocabulary import TopicId

_ROUNDS_MAX = 100  # Of balancing: each moves something; a few are enough for any group that people have.

Place = tuple[TopicId, int]


def assign_uniformly(readers: Sequence[Reader], partition_counts: Mapping[TopicId, int]) -> dict[str, Partitions]:
    if not readers:
        return {}
    ordered = in_order(readers)
    kept, free = _kept(ordered, partition_counts)
    if all(reader.topics == ordered[0].topics for reader in ordered):
        _share_alike(kept, free)
    else:
        _share_by_topic(ordered, kept, free)
    return {member_id: gathered((topic_id, (number,)) for topic_id, number in places) for member_id, places in kept.items()}


def _kept(readers: Sequence[Reader], partition_counts: Mapping[TopicId, int]) -> tuple[dict[str, list[Place]], list[Place]]:
    """What everybody had and may keep, and what nobody has: of topics that somebody reads."""
    kept: dict[str, list[Place]] = {}
    taken: set[Place] = set()
    for reader in readers:
        places = kept[reader.member_id] = []
        for topic_id, number in each(reader.target):
            is_there = topic_id in reader.topics and number < partition_counts.get(topic_id, 0)
            if is_there and (topic_id, number) not in taken:
                taken.add((topic_id, number))
                places.append((topic_id, number))
    read = frozenset().union(*(reader.topics for reader in readers))
    free = [
        (topic_id, number)
        for topic_id in sorted(partition_counts)
        if topic_id in read
        for number in range(partition_counts[topic_id])
        if (topic_id, number) not in taken
    ]
    return kept, free


def _share_alike(kept: dict[str, list[Place]], free: list[Place]) -> None:
    """All read the same. Those who have most keep the one more that some may have."""
    share, extra = divmod(sum(map(len, kept.values())) + len(free), len(kept))
    quotas = {}
    for position, member_id in enumerate(sorted(kept, key=lambda member_id: -len(kept[member_id]))):
        quotas[member_id] = share + (position < extra)
    for member_id, places in kept.items():
        free += places[quotas[member_id] :]
        del places[quotas[member_id] :]
    unfilled = deque(member_id for member_id, places in kept.items() if len(places) < quotas[member_id])
    for place in free:
        member_id = unfilled.popleft()
        kept[member_id].append(place)
        if len(kept[member_id]) < quotas[member_id]:
            unfilled.append(member_id)


def _share_by_topic(readers: Sequence[Reader], kept: dict[str, list[Place]], free: list[Place]) -> None:
    takers: dict[TopicId, list[str]] = {}
    for reader in readers:
        for topic_id in reader.topics:  # In any order: topics are sorted below, and takers stand in that of the readers.
            takers.setdefault(topic_id, []).append(reader.member_id)
    shares = _Shares(kept)
    topics = sorted(takers, key=lambda topic_id: (len(takers[topic_id]), topic_id))  # Those that fewest can take come first.
    by_topic: dict[TopicId, list[int]] = {}
    for topic_id, number in free:
        by_topic.setdefault(topic_id, []).append(number)
    for topic_id in topics:
        if topic_id in by_topic:
            shares.give(topic_id, by_topic[topic_id], takers[topic_id])
    for _ in range(_ROUNDS_MAX):
        if not any([shares.balance(topic_id, takers[topic_id]) for topic_id in topics]):
            break
    shares.put_into(kept)


class _Shares:
    """Who has how much, and what of each topic. Of most topics that it reads a member has nothing where subscriptions are many: such pairs
    are looked at in bulk, and one by one only where something moves."""

    def __init__(self, kept: Mapping[str, list[Place]]) -> None:
        self._loads = {member_id: len(places) for member_id, places in kept.items()}
        self._positions = {member_id: position for position, member_id in enumerate(kept)}
        self._held: dict[TopicId, dict[str, list[int]]] = {}  # The partitions of each topic, by who has them.
        for member_id, places in kept.items():
            for topic_id, number in places:
                self._held.setdefault(topic_id, {}).setdefault(member_id, []).append(number)

    def give(self, topic_id: TopicId, numbers: Sequence[int], takers: Sequence[str]) -> None:
        """Each partition to the one who has least."""
        least = self._least(takers)
        for number in numbers:
            self._take(topic_id, number, takers, least)

    def balance(self, topic_id: TopicId, takers: Sequence[str]) -> bool:
        """Moves partitions of one topic from those who have most to those who have least of all, while that evens them out."""
        held, loads = self._held.get(topic_id, {}), self._loads
        if not held or max(map(loads.__getitem__, held)) - min(map(loads.__getitem__, takers)) < 2:
            return False
        least = self._least(takers)
        has_moved = False
        for giver in sorted(held, key=lambda member_id: (-loads[member_id], self._positions[member_id])):
            while held[giver] and loads[giver] - least[0][0] >= 2:
                load, position = least[0]
                if load != loads[takers[position]]:
                    heapreplace(least, (loads[takers[position]], position))
                    continue
                loads[giver] -= 1
                self._take(topic_id, held[giver].pop(), takers, least)
                has_moved = True
        return has_moved

    def put_into(self, kept: dict[str, list[Place]]) -> None:
        for places in kept.values():
            places.clear()
        for topic_id, held in self._held.items():
            for member_id, numbers in held.items():
                kept[member_id] += [(topic_id, number) for number in numbers]

    def _least(self, takers: Sequence[str]) -> list[tuple[int, int]]:
        least = [(self._loads[member_id], position) for position, member_id in enumerate(takers)]
        heapify(least)
        return least

    def _take(self, topic_id: TopicId, number: int, takers: Sequence[str], least: list[tuple[int, int]]) -> None:
        load, position = least[0]
        taker = takers[position]
        self._held.setdefault(topic_id, {}).setdefault(taker, []).append(number)
        self._loads[taker] = load + 1
        heapreplace(least, (load + 1, position))
