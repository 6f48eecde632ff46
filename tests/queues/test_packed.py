"""Packed sets and schedules, held against plain ones."""

from heapq import heapify
from itertools import pairwise

from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.queues import pages, timetable
from penstock.queues.bits import CHUNK, Bits, DoneSet
from penstock.queues.lanes import in_order
from penstock.queues.pages import MemoryPages
from penstock.queues.schedule import Schedule
from penstock.queues.timetable import Timetable
from penstock.simulator.knobs import replaced

END = 3 * CHUNK + 50
offsets = st.integers(0, END - 1)
ranges = st.tuples(offsets, st.integers(0, 2 * CHUNK)).map(lambda pair: (pair[0], min(pair[0] + pair[1], END)))
steps = st.lists(st.one_of(offsets, ranges, st.tuples(st.just("rewind"), offsets)), max_size=25)


@given(steps)
def test_a_done_set_is_a_set(taken: list[object]) -> None:
    packed, plain = DoneSet(), set[int]()
    for each in taken:
        match each:
            case int():
                assert packed.add(each) == (each not in plain)
                plain.add(each)
            case ("rewind", to):
                packed.rewind(to)
                plain = {offset for offset in plain if offset < to}
            case (start, end):
                new = set(range(start, end)) - plain
                assert packed.add_range(start, end) == len(new)
                plain |= new
        base = next(offset for offset in range(END + 1) if offset not in plain)
        assert packed.base == base
        assert packed.bits.count == len(plain) - base
    assert [offset for offset in range(END) if offset in packed] == sorted(plain)
    missing = [offset for start, end in packed.gaps(0, END) for offset in range(start, end)]
    assert missing == [offset for offset in range(END) if offset not in plain]
    runs = list(packed.gaps(0, END))
    assert all(left[1] < right[0] for left, right in pairwise(runs)), "runs do not touch"


@given(st.sets(offsets), ranges, st.sets(offsets), st.integers(0, END))
def test_bits_are_a_set(first: set[int], gone: tuple[int, int], done: set[int], base: int) -> None:
    packed, others = Bits(), DoneSet(base)
    for offset in first:
        packed.add(offset)
    for offset in done:
        others.add(offset)
    removed = packed.discard_range(*gone)
    left = first - set(range(*gone))
    assert (removed, packed.count, list(packed.offsets())) == (len(first) - len(left), len(left), sorted(left))
    assert packed.count_without(others) == len([offset for offset in left if offset not in others])


moments = st.one_of(st.integers(0, 5_000), st.integers(0, 4_000_000), st.integers(0, 400 * 86_400_000))


@settings(max_examples=60)
@given(st.lists(st.tuples(st.booleans(), moments), max_size=60))
def test_a_schedule_is_a_list_in_order(taken: list[tuple[bool, int]]) -> None:
    packed, plain, now = Schedule(), list[tuple[int, int]](), 0
    for number, (is_added, moment) in enumerate(taken):
        if is_added:
            packed.add(now + moment, number)
            plain.append((now + moment, number))
        else:
            now += moment
            due = []
            while (found := packed.pop(now)) is not None:
                due.append(found)
            assert due == sorted(each for each in plain if each[0] <= now)
            plain = [each for each in plain if each[0] > now]
        next_ms = packed.next_ms(now)
        first = min(plain, default=None)
        assert (next_ms is None) == (first is None)
        assert next_ms is None or first is None or (next_ms <= first[0] and (next_ms > now or first[0] <= now))
        assert sorted(packed.entries()) == sorted(plain)
        assert len(packed) == len(plain)


@settings(max_examples=60)
@given(st.lists(st.tuples(st.sampled_from(("add", "end", "wait")), moments), max_size=60))
def test_a_schedule_gives_all_that_count_and_keeps_few_of_the_others(taken: list[tuple[str, int]]) -> None:
    alive, plain, now, end = dict[int, None](), dict[int, int](), 0, 0
    packed = Schedule(alive=alive)
    for what, moment in taken:
        if what == "add":
            offsets = range(end, end + moment % 5 + 1)
            packed.add_all(now + moment, offsets)
            alive.update(dict.fromkeys(offsets))
            plain.update(dict.fromkeys(offsets, now + moment))
            end = offsets.stop
        elif what == "end":
            for offset in [offset for offset in alive if offset % 3 == moment % 3]:
                del alive[offset]
        else:
            now += moment
            due = []
            while (found := packed.pop(now)) is not None:
                due.append(found)
            assert due == sorted(due)
            assert {(when, offset) for when, offset in due if offset in alive} == {
                (when, offset) for offset, when in plain.items() if when <= now and offset in alive
            }
            plain = {offset: when for offset, when in plain.items() if when > now}
        assert {offset for _, offset in packed.entries()} >= {offset for offset in plain if offset in alive}
        assert len(packed) == len(list(packed.entries()))
    alive.clear()
    while (found := packed.pop(now + 10**12)) is not None:
        assert found[0] < now + 1_000, "only of the second that has begun any are left"
    assert len(packed) == 0


@settings(max_examples=60)
@given(st.lists(st.tuples(st.sampled_from(("add", "wait", "unlearn")), moments), max_size=60), st.booleans())
def test_a_timetable_is_a_list_in_order(taken: list[tuple[str, int]], starts_late: bool) -> None:
    with replaced([(pages, "PAGE_BYTES", 60), (timetable, "TAILS_BYTES", 100)]):
        brought, now = dict[int, bytes](), 10**12
        table = Timetable("t", MemoryPages(), now if starts_late else 0, counts=lambda _: True, arrived=brought.__setitem__)
        plain, end = list[tuple[int, int]](), 0
        for what, moment in taken:
            if what == "add":
                if not table.add(now + moment, end, b"%d" % end):
                    brought[end] = b"%d" % end
                plain.append((now + moment, end))
                end += 1
            elif what == "unlearn":
                end = max(0, end - moment % 5)
                table.unlearn(end)
                plain = [each for each in plain if each[1] < end]
            else:
                now += moment
                due = []
                while (found := table.pop(now)) is not None:
                    due.append(found)
                assert due == sorted(each for each in plain if each[0] <= now)
                assert all(brought[offset] == b"%d" % offset for _, offset in due)
                plain = [each for each in plain if each[0] > now]
            next_ms, first = table.next_ms(now), min(plain, default=None)
            assert (next_ms is None) == (first is None)
            assert next_ms is None or first is None or (next_ms <= first[0] and (next_ms > now or first[0] <= now))


@given(st.lists(st.integers(0, 1 << 70)))
def test_a_heap_is_walked_in_order_and_stays_as_it_was(entries: list[int]) -> None:
    heap = entries[:]
    heapify(heap)
    before = heap[:]
    assert list(in_order(heap)) == sorted(entries)
    assert heap == before
