"""The index of aborted transactions against the list that it stands for."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.partition.aborted import _BLOCK, AbortedIndex

pytestmark = pytest.mark.invariant("transactions.partition-state-matches-log")

# Of each transaction: how long before its end it began, and how many offsets passed before it ended.
stories = st.lists(st.tuples(st.integers(1, 60), st.integers(1, 9)), max_size=40)


def index_of(story: list[tuple[int, int]]) -> tuple[AbortedIndex, list[tuple[int, int, int]]]:
    """Each of a producer of its own; the rows are (producer, first, marker)."""
    rows, offset = [], 0
    for producer, (length, pause) in enumerate(story):
        offset += pause
        rows.append((producer, max(0, offset - length), offset))
    index = AbortedIndex()
    for at, (producer, first, marker) in enumerate(rows):
        later = [began for _, began, _ in rows[at + 1 :] if began < marker]
        index.add(producer, first, marker, min(later, default=marker + 1))
    return index, rows


@given(stories, st.integers(0, 250), st.integers(0, 250))
def test_exactly_those_that_overlap_a_range_are_found(story: list[tuple[int, int]], one: int, other: int) -> None:
    index, rows = index_of(story)
    start, end = min(one, other), max(one, other)
    assert index.between(start, end) == [(producer, first) for producer, first, marker in rows if marker >= start and first < end]
    assert index.has_any_after(start) == any(marker >= start for _, _, marker in rows)


def test_one_long_transaction_among_many_blocks_of_short_ones_is_found() -> None:
    index, count = AbortedIndex(), 5 * _BLOCK + 7
    for number in range(count):
        index.add(1, 100 + number, 101 + number, 50)
    index.add(2, 50, 101 + count, 102 + count)
    assert index.between(0, 60) == [(2, 50)]
    assert index.between(100 + count, 10**6) == [(1, 99 + count), (2, 50)]
    assert len(index.between(0, 10**6)) == count + 1


@given(stories)
def test_a_snapshot_holds_all_of_it(story: list[tuple[int, int]]) -> None:
    index, _ = index_of(story)
    restored, around = AbortedIndex(), b"before" + index.snapshot()
    assert restored.restore(around + b"after", 6) == len(around)
    assert restored.snapshot() == index.snapshot()
    assert restored.between(0, 10**6) == index.between(0, 10**6)
    restored.add(99, 10**6, 10**6 + 1, 10**6 + 2)
    assert restored.between(10**6, 10**7) == [(99, 10**6)]


def test_exactly_those_are_forgotten_that_ended_before_an_offset() -> None:
    index = AbortedIndex()
    for number in range(3 * _BLOCK):
        index.add(number, 10 * number, 10 * number + 5, 10 * number + 6)
    for first_left in (9, _BLOCK - 1, _BLOCK, 2 * _BLOCK + 9):
        index.forget_below(10 * first_left)
        for known in (index, again(index)):
            assert len(known) == 3 * _BLOCK - first_left
            assert known.between(0, 10**9) == [(number, 10 * number) for number in range(first_left, 3 * _BLOCK)]
            assert known.between(10 * first_left + 6, 10 * first_left + 11) == [(first_left + 1, 10 * first_left + 10)]
            assert list(known.spans().markers) == [10 * number + 5 for number in range(first_left, 3 * _BLOCK)]
    index.forget_below(10**9)
    assert not index.has_any_after(0) and not index.between(0, 10**9)


def again(index: AbortedIndex) -> AbortedIndex:
    restored = AbortedIndex()
    restored.restore(index.snapshot(), 0)
    return restored
