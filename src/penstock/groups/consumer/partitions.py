"""Sets of partitions, as members own them and are given them: by topic id, sorted, nothing empty.

They are values: never changed once they are made, equal when they hold the same. Whoever walks through one does it by `each`, in one order.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping

from penstock.vocabulary import TopicId

Partitions = Mapping[TopicId, tuple[int, ...]]

NOTHING: Partitions = {}


def gathered(rows: Iterable[tuple[TopicId, Iterable[int]]]) -> Partitions:
    """What the rows name, however often and in whatever order they do."""
    found: dict[TopicId, set[int]] = {}
    for topic_id, numbers in rows:
        found.setdefault(topic_id, set()).update(numbers)
    return {topic_id: tuple(sorted(numbers)) for topic_id, numbers in sorted(found.items()) if numbers}


def each(partitions: Partitions) -> Iterator[tuple[TopicId, int]]:
    for topic_id in sorted(partitions):
        for number in partitions[topic_id]:
            yield topic_id, number


def count(partitions: Partitions) -> int:
    return sum(map(len, partitions.values()))


def common(one: Partitions, other: Partitions) -> Partitions:
    return _filtered(one, lambda topic_id: _members(other, topic_id).__contains__)


def without(one: Partitions, other: Partitions) -> Partitions:
    def lacks(topic_id: TopicId) -> Callable[[int], bool]:
        held = _members(other, topic_id)
        return lambda number: number not in held

    return _filtered(one, lacks)


def joined(one: Partitions, other: Partitions) -> Partitions:
    return gathered([*one.items(), *other.items()]) if one and other else one or other


def is_within(one: Partitions, other: Partitions) -> bool:
    return all(_members(other, topic_id).issuperset(numbers) for topic_id, numbers in one.items())


def overlap(one: Partitions, other: Partitions) -> bool:
    return any(not _members(other, topic_id).isdisjoint(numbers) for topic_id, numbers in one.items())


def _members(partitions: Partitions, topic_id: TopicId) -> frozenset[int]:
    return frozenset(partitions.get(topic_id, ()))


def _filtered(partitions: Partitions, keeps: Callable[[TopicId], Callable[[int], bool]]) -> Partitions:
    kept = {topic_id: tuple(filter(keeps(topic_id), numbers)) for topic_id, numbers in partitions.items()}
    return {topic_id: numbers for topic_id, numbers in kept.items() if numbers}
