"""What the assignors promise: everything is shared out among those who read it, evenly, and what needn't move stays."""

from heapq import heapify
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.groups.consumer import uniform
from penstock.groups.consumer.assignors import Reader
from penstock.groups.consumer.partitions import NOTHING, Partitions, count, each, gathered
from penstock.groups.consumer.range import assign_ranges
from penstock.groups.consumer.uniform import assign_uniformly
from penstock.vocabulary import TopicId

pytestmark = pytest.mark.invariant("groups.consumer-sticky", "groups.consumer-all-assigned")

A, B, C = (TopicId(name * 16) for name in (b"a", b"b", b"c"))
TOPICS = (A, B, C)

sizes = st.fixed_dictionaries({topic_id: st.integers(1, 9) for topic_id in TOPICS})
targets = st.lists(st.tuples(st.sampled_from(TOPICS), st.lists(st.integers(0, 12), max_size=6)), max_size=3).map(gathered)
some_topics = st.frozensets(st.sampled_from(TOPICS))


@st.composite
def groups(draw: st.DrawFn, *, are_alike: bool) -> list[Reader]:
    """Readers with whatever targets: stale, of topics that they don't read, even of two readers at once."""
    topics = draw(st.frozensets(st.sampled_from(TOPICS), min_size=1))
    members = draw(st.integers(1, 7))
    return [
        Reader(f"m{at}", draw(st.none() | st.just(f"i{at}")), topics if are_alike else draw(some_topics), draw(targets))
        for at in range(members)
    ]


def is_shared_out(readers: list[Reader], counts: dict[TopicId, int], given_away: dict[str, Partitions]) -> bool:
    read = {topic_id for reader in readers for topic_id in reader.topics}
    wanted = sorted((topic_id, number) for topic_id in read for number in range(counts[topic_id]))
    handed = sorted(place for partitions in given_away.values() for place in each(partitions))
    is_read = all(set(given_away[reader.member_id]) <= reader.topics for reader in readers)
    return handed == wanted and is_read and given_away.keys() == {reader.member_id for reader in readers}


@given(groups(are_alike=True), sizes)
def test_uniform_gives_everybody_as_much(readers: list[Reader], counts: dict[TopicId, int]) -> None:
    found = assign_uniformly(readers, counts)
    assert is_shared_out(readers, counts, found)
    loads = [count(partitions) for partitions in found.values()]
    assert max(loads) - min(loads) <= 1


@given(groups(are_alike=False), sizes)
def test_uniform_leaves_nothing_that_one_move_could_even_out(readers: list[Reader], counts: dict[TopicId, int]) -> None:
    found = assign_uniformly(readers, counts)
    assert is_shared_out(readers, counts, found)
    for giver in readers:
        for taker in readers:
            could_take = any(topic_id in taker.topics for topic_id in found[giver.member_id])
            assert not could_take or count(found[giver.member_id]) - count(found[taker.member_id]) <= 1


@given(groups(are_alike=False), sizes)
def test_uniform_finds_nothing_to_do_the_second_time(readers: list[Reader], counts: dict[TopicId, int]) -> None:
    first = assign_uniformly(readers, counts)
    again = [reader._replace(target=first[reader.member_id]) for reader in reversed(readers)]
    assert assign_uniformly(again, counts) == first


@given(st.integers(1, 8), sizes)
def test_a_newcomer_moves_only_what_it_gets(members: int, counts: dict[TopicId, int]) -> None:
    readers = [Reader(f"m{at}", None, frozenset(TOPICS), NOTHING) for at in range(members)]
    first = assign_uniformly(readers, counts)
    before = [reader._replace(target=first[reader.member_id]) for reader in readers]
    second = assign_uniformly([*before, Reader("newcomer", None, frozenset(TOPICS), NOTHING)], counts)
    for reader in before:
        assert set(each(second[reader.member_id])) <= set(each(reader.target)), "nobody gets anything but the newcomer"


@given(st.integers(2, 8), sizes)
def test_whoever_goes_moves_only_what_it_had(members: int, counts: dict[TopicId, int]) -> None:
    readers = [Reader(f"m{at}", None, frozenset(TOPICS), NOTHING) for at in range(members)]
    first = assign_uniformly(readers, counts)
    left = [reader._replace(target=first[reader.member_id]) for reader in readers[1:]]
    second = assign_uniformly(left, counts)
    for reader in left:
        assert set(each(reader.target)) <= set(each(second[reader.member_id])), "nobody gives anything up"


@given(groups(are_alike=False), sizes)
def test_ranges_are_runs_in_the_order_of_the_readers(readers: list[Reader], counts: dict[TopicId, int]) -> None:
    found = assign_ranges(readers, counts)
    assert is_shared_out(readers, counts, found)
    for topic_id in TOPICS:
        runs = [numbers for partitions in found.values() if (numbers := partitions.get(topic_id, ()))]
        for numbers in runs:
            assert all(right == left + 1 for left, right in pairwise(numbers))
        assert not runs or max(map(len, runs)) - min(map(len, runs)) <= 1


def test_ranges_of_topics_of_one_size_are_cut_alike_and_static_members_come_first() -> None:
    readers = [Reader("a", None, frozenset((A, B)), NOTHING), Reader("z", "static", frozenset((A, B)), NOTHING)]
    assert assign_ranges(readers, {A: 3, B: 3}) == {"z": {A: (0, 1), B: (0, 1)}, "a": {A: (2,), B: (2,)}}


def test_nobody_reads_nothing() -> None:
    assert assign_uniformly([], {}) == assign_ranges([], {}) == {}
    alone = [Reader("a", None, frozenset(), {A: (0,)})]
    assert assign_uniformly(alone, {A: 3}) == assign_ranges(alone, {A: 3}) == {"a": {}}


def test_two_thousand_members_are_assigned_in_linear_work() -> None:
    readers = [Reader(f"m{at:04}", None, frozenset(TOPICS), NOTHING) for at in range(2_000)]
    found = assign_uniformly(readers, {A: 5_000, B: 5_000, C: 1})
    assert {count(partitions) for partitions in found.values()} == {5, 6}


def test_where_subscriptions_differ_only_topics_of_which_something_moves_are_looked_at_member_by_member(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    topics = [TopicId(b"%016d" % number) for number in range(30)]
    counts = dict.fromkeys(topics, 10)
    readers = [Reader(f"m{at}", None, frozenset(topics[at % 10 : 15 + at % 16]), NOTHING) for at in range(300)]
    first = assign_uniformly(readers, counts)
    heaps: list[int] = []
    monkeypatch.setattr(uniform, "heapify", lambda heap: heaps.append(len(heap)) or heapify(heap))
    settled = [reader._replace(target=first[reader.member_id]) for reader in readers]
    assert assign_uniformly(settled, counts) == first
    assert heaps == []
    gone = settled[:-1]
    assert is_shared_out(gone, counts, assign_uniformly(gone, counts))
    assert len(heaps) <= sum(len(first[settled[-1].member_id][topic_id]) for topic_id in first[settled[-1].member_id])
