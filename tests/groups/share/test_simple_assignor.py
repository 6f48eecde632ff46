"""The simple assignor: every partition has a member, every member a partition, and both evenly."""

from collections import Counter
from math import ceil

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.groups.consumer.assignors import Reader
from penstock.groups.consumer.partitions import NOTHING, Partitions, count, each
from penstock.groups.share.simple import assign_simply
from penstock.vocabulary import TopicId

pytestmark = pytest.mark.invariant("share.assignment-even")

A, B = TopicId(b"a" * 16), TopicId(b"b" * 16)


def readers(number: int, targets: dict[str, Partitions] | None = None, topics: tuple[TopicId, ...] = (A, B)) -> list[Reader]:
    names = [f"m{index}" for index in range(number)]
    return [Reader(name, None, frozenset(topics), (targets or {}).get(name, NOTHING)) for name in names]


@settings(deadline=None)
@given(st.integers(1, 12), st.integers(0, 7), st.integers(0, 7))
def test_members_and_partitions_are_balanced(members: int, of_a: int, of_b: int) -> None:
    assigned = assign_simply(readers(members), {A: of_a, B: of_b})
    places = of_a + of_b
    sizes = [count(partitions) for partitions in assigned.values()]
    shared = Counter(place for partitions in assigned.values() for place in each(partitions))
    assert len(assigned) == members
    if not places:
        assert sizes == [0] * members
        return
    assert min(sizes) >= 1
    assert max(sizes) - min(sizes) <= 1
    assert set(shared.values()) == {ceil(members / places)}
    assert len(shared) == places


@settings(deadline=None)
@given(st.integers(1, 9), st.integers(1, 9), st.integers(1, 9), st.integers(1, 9))
def test_a_change_leaves_nobody_and_no_partition_out(before: int, after: int, parts_before: int, parts_after: int) -> None:
    first = assign_simply(readers(before, topics=(A,)), {A: parts_before})
    then = assign_simply(readers(after, first, topics=(A,)), {A: parts_after})
    shared = Counter(place for partitions in then.values() for place in each(partitions))
    assert set(shared) == {(A, number) for number in range(parts_after)}
    assert max(shared.values()) <= ceil(after / parts_after)
    assert all(count(partitions) >= 1 for partitions in then.values())


def test_what_a_member_has_it_keeps() -> None:
    first = assign_simply(readers(4), {A: 2, B: 2})
    assert assign_simply(readers(4, first), {A: 2, B: 2}) == first
    fewer = assign_simply(readers(3, first), {A: 2, B: 2})
    assert all(set(each(first[name])) <= set(each(fewer[name])) for name in fewer)


def test_members_get_only_what_they_read() -> None:
    both = Reader("x", None, frozenset({A, B}), NOTHING)
    one = Reader("y", None, frozenset({A}), {B: (0,)})
    assigned = assign_simply([both, one], {A: 2, B: 1})
    assert assigned["y"] == {A: (0, 1)}
    assert assigned["x"] == {A: (0, 1), B: (0,)}
