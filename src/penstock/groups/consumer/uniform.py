"""The `uniform` assignor: everybody gets as many partitions as the others, and what needn't move stays where it was.

Where all read the same topics, nobody has two more than another, and of those that must give something up each gives up as little as that
takes. Where they read different topics, nobody has two more than another one who could take one of them from it; that is what single moves
reach, as Kafka's does, and a chain of moves could sometimes do better.
Every step is linear in the partitions, but for the balancing of different subscriptions, which takes a heap for each topic.
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
        for topic_id in sorted(reader.topics):
            takers.setdefault(topic_id, []).append(reader.member_id)
    by_topic: dict[TopicId, list[Place]] = {}
    for place in free:
        by_topic.setdefault(place[0], []).append(place)
    topics = sorted(takers, key=lambda topic_id: (len(takers[topic_id]), topic_id))  # Those that fewest can take come first.
    for topic_id in topics:
        least = [(len(kept[member_id]), position) for position, member_id in enumerate(takers[topic_id])]
        heapify(least)
        for place in by_topic.get(topic_id, ()):
            load, position = least[0]
            kept[takers[topic_id][position]].append(place)
            heapreplace(least, (load + 1, position))
    for _ in range(_ROUNDS_MAX):
        if not any([_balance(topic_id, takers[topic_id], kept) for topic_id in topics]):
            return


def _balance(topic_id: TopicId, takers: Sequence[str], kept: dict[str, list[Place]]) -> bool:
    """Moves partitions of one topic from those who have most to those who have least of all, while that evens them out."""
    held = {member_id: [place for place in kept[member_id] if place[0] == topic_id] for member_id in takers}
    least = [(len(kept[member_id]), position) for position, member_id in enumerate(takers)]
    heapify(least)
    has_moved = False
    for giver in sorted(takers, key=lambda member_id: -len(kept[member_id])):
        while held[giver] and len(kept[giver]) - least[0][0] >= 2:
            load, position = least[0]
            if load != len(kept[takers[position]]):
                heapreplace(least, (len(kept[takers[position]]), position))
                continue
            place = held[giver].pop()
            kept[giver].remove(place)
            kept[takers[position]].append(place)
            heapreplace(least, (load + 1, position))
            has_moved = True
    return has_moved
