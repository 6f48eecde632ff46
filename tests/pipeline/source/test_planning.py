"""What one task reads, how much one batch takes, and what filters leave to read: reckoning without brokers."""

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

pytest.importorskip("pyspark", reason="needs spark: pyspark is not installed")

from pyspark.sql.datasource import (
    EqualTo,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
    Not,
    StringStartsWith,
)

from penstock.pipeline.source.admission import Patience, at_most
from penstock.pipeline.source.filters import Span, narrow
from penstock.pipeline.source.following import up_to
from penstock.pipeline.source.offsets import Offsets, from_json, to_json
from penstock.pipeline.source.options import Admission, Splitting
from penstock.pipeline.source.ranges import SPLIT_RECORDS_MIN, Range, split
from penstock.vocabulary import NO_TOPIC_ID, Instant, TopicId, TopicPartition

WHOLE = Splitting(None, None, is_even=False)
sizes = st.lists(st.integers(0, 400), min_size=1, max_size=8)


def ranges(*counts: int) -> list[Range]:
    return [Range(TopicPartition("t", number), NO_TOPIC_ID, 100, 100 + count) for number, count in enumerate(counts)]


def places(*offsets: int) -> dict[TopicPartition, int]:
    return {TopicPartition("t", number): offset for number, offset in enumerate(offsets)}


def test_a_partition_is_a_task_where_nothing_else_is_asked_for() -> None:
    assert split(ranges(5, 0, 7), WHOLE) == [each for each in ranges(5, 0, 7) if each.size]


@given(sizes, st.integers(1, 50), st.none() | st.integers(1, 300), st.booleans())
@settings(deadline=None)
def test_every_offset_is_read_by_one_task(counts: list[int], wanted: int, records_max: int | None, is_even: bool) -> None:
    cut = split(ranges(*counts), Splitting(wanted, records_max, is_even=is_even))
    for whole in ranges(*counts):
        offsets = [offset for each in cut if each.where == whole.where for offset in range(each.start, each.end)]
        assert offsets == list(range(whole.start, whole.end))
    filled = [count for count in counts if count]
    assert len(cut) >= min(max(wanted, len(filled)), sum(filled))
    if records_max is not None:
        assert all(each.size <= records_max for each in cut)


def test_as_many_tasks_as_were_asked_for_and_the_longest_as_short_as_can_be() -> None:
    cut = split(ranges(900, 90, 10), Splitting(10, None, is_even=False))
    assert len(cut) == 10
    assert [sum(each.where.partition == number for each in cut) for number in range(3)] == [8, 1, 1]
    assert max(each.size for each in cut) == 113


def test_a_skewed_partition_is_read_by_several_tasks_unasked() -> None:
    big, small = 8 * SPLIT_RECORDS_MIN, SPLIT_RECORDS_MIN
    cut = split(ranges(big, small, small, small), Splitting(None, None, is_even=True))
    assert [sum(each.where.partition == number for each in cut) for number in range(4)] == [3, 1, 1, 1]
    assert len(split(ranges(1000, 1, 1, 1), Splitting(None, None, is_even=True))) == 4, "small ones are not worth it"


@example([1, 1, 4], 3)  # Two that get one though their share is less: the third gives it.
@given(sizes, st.integers(1, 1_000))
@settings(deadline=None)
def test_a_batch_takes_what_it_may_and_starves_nobody(counts: list[int], offsets_max: int) -> None:
    start, latest = places(*[50] * len(counts)), places(*[50 + count for count in counts])
    end = at_most(start, latest, offsets_max)
    taken = {where: end[where] - start[where] for where in end}
    assert end.keys() == latest.keys()
    assert all(0 <= taken[where] <= latest[where] - start[where] for where in taken)
    assert all(taken[where] > 0 for where in taken if latest[where] > start[where])
    filled = sum(1 for count in counts if count)
    assert sum(taken.values()) == min(sum(counts), max(offsets_max, filled))


def test_a_partition_that_shrank_takes_nothing_from_the_others() -> None:
    assert at_most(places(50, 0), places(10, 100), 20) == places(10, 20)


def test_small_batches_wait_but_not_for_ever() -> None:
    patience = Patience(Admission(None, offsets_min=10, delay_s=60.0))
    assert patience.is_enough(places(0), places(1), Instant(0.0)), "the first does not wait"
    assert not patience.is_enough(places(1), places(5), Instant(1.0))
    assert patience.is_enough(places(1), places(11), Instant(2.0)), "there are ten"
    assert not patience.is_enough(places(11), places(12), Instant(61.0))
    assert patience.is_enough(places(11), places(12), Instant(62.0)), "a minute has passed since the last"


def test_filters_on_topic_partition_and_offset_are_kept_to_exactly() -> None:
    narrowing, left = narrow(
        [
            IsNotNull(("partition",)), EqualTo(("topic",), "a"), In(("partition",), (1, 2, 3)), LessThanOrEqual(("partition",), 2),
            GreaterThanOrEqual(("offset",), 100), LessThan(("offset",), 110), GreaterThan(("offset",), 101),
        ]
    )  # fmt: skip
    assert left == []
    assert [where for where in (TopicPartition(t, p) for t in "ab" for p in range(5)) if narrowing.has(where)] == [("a", 1), ("a", 2)]
    assert narrowing.offsets == Span(102, 110)


def test_a_timestamp_says_where_to_begin_and_spark_looks_again() -> None:
    at = datetime(2026, 1, 1, tzinfo=UTC)
    ms = int(at.timestamp() * 1000)
    filters = [GreaterThan(("timestamp",), at), LessThanOrEqual(("timestamp",), at + timedelta(microseconds=1500))]
    narrowing, left = narrow(filters)
    assert left == filters
    assert narrowing.timestamps_ms == Span(ms + 1, ms + 2)
    assert narrow([GreaterThanOrEqual(("timestamp",), at + timedelta(microseconds=1))])[0].timestamps_ms.low == ms + 1
    assert narrow([EqualTo(("timestamp",), at)])[0].timestamps_ms == Span(ms, ms + 1)


def test_what_is_not_understood_is_left_to_spark() -> None:
    filters = [
        EqualTo(("key",), b"k"), Not(EqualTo(("partition",), 1)), StringStartsWith(("topic",), "o"), EqualTo(("partition",), None),
        In(("offset",), (1, 2)), IsNotNull(("key",)), GreaterThan(("timestamp",), datetime(2026, 1, 1)),
    ]  # fmt: skip
    narrowing, left = narrow(filters)
    assert left == filters
    assert narrowing.has(TopicPartition("any", 9)) and narrowing.offsets == Span()


def test_offsets_are_written_as_sparks_kafka_source_writes_them_with_the_topics_ids_beside() -> None:
    offsets = Offsets({TopicPartition("b", 10): 3, TopicPartition("b", 2): 1, TopicPartition("a", 0): 7}, {"a": TopicId(bytes(range(16)))})
    written = to_json(offsets)
    assert list(written) == ["a", "b", "topic ids"]
    assert list(written["b"].items()) == [("2", 1), ("10", 3)], "in the order of their numbers"
    assert from_json(written) == offsets
    assert to_json(offsets, has_topic_ids=False) == {"a": {"0": 7}, "b": {"2": 1, "10": 3}}
    assert from_json({"a": {"0": 7}}).next == {TopicPartition("a", 0): 7}, "a checkpoint of Spark's own"


def test_a_topic_that_was_made_again_is_told_by_its_id() -> None:
    old, new = Offsets(places(5), {"t": TopicId(b"1" * 16)}), Offsets(places(5), {"t": TopicId(b"2" * 16)})
    unknown = Offsets(places(5))
    assert not old.is_same_topic(new, "t") and not old.is_same_place(new)
    assert old.is_same_topic(unknown, "t") and unknown.is_same_place(old)


def test_a_run_that_ends_now_does_not_read_what_came_later() -> None:
    began, target, latest = Offsets(places(5, 9)), Offsets(places(8, 7)), Offsets(places(20, 20, 20))
    assert up_to(target, latest, began).next == places(8, 9), "not past the target, but what was begun is not taken back"
