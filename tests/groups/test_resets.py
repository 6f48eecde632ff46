"""Where a group is sent by each kind of reset, and what happens at the ends of a log."""

import pytest

from penstock.errors import ErrorCode, Refusal
from penstock.groups.resets import Move, Reset, ShiftBy, Standing, ToEarliest, ToLatest, ToOffset, ToTime, plan_move
from penstock.vocabulary import TopicPartition

WHERE = TopicPartition("orders", 2)


def standing(committed: int | None = 50, at_time: int | None = None) -> Standing:
    return Standing(WHERE, committed, start_offset=10, end_offset=100, offset_at_time=at_time)


@pytest.mark.parametrize(
    ("reset", "target"),
    [
        (ToEarliest(), 10), (ToLatest(), 100), (ToOffset(77), 77), (ToOffset(100), 100), (ToOffset(10), 10), (ShiftBy(5), 55),
        (ShiftBy(-5), 45),
    ],
)  # fmt: skip
def test_a_reset_within_the_log_is_taken_as_it_is(reset: Reset, target: int) -> None:
    assert plan_move(reset, standing()) == Move(WHERE, 50, target)


@pytest.mark.parametrize(
    ("reset", "target", "note"),
    [
        (ToOffset(3), 10, "the log starts at 10, after 3"),
        (ToOffset(101), 100, "the log ends at 100, before 101"),
        (ShiftBy(-41), 10, "the log starts at 10, after 9"),
        (ShiftBy(51), 100, "the log ends at 100, before 101"),
    ],
)
def test_a_reset_outside_the_log_goes_to_its_nearest_end_and_says_so(reset: Reset, target: int, note: str) -> None:
    assert plan_move(reset, standing()) == Move(WHERE, 50, target, note)


def test_a_time_leads_to_the_record_that_was_found_or_to_the_end() -> None:
    assert plan_move(ToTime(1), standing(at_time=33)).target == 33
    assert plan_move(ToTime(1), standing(at_time=None)).target == 100


def test_only_a_shift_needs_something_committed() -> None:
    for reset in (ToEarliest(), ToLatest(), ToOffset(20), ToTime(1)):
        assert plan_move(reset, standing(committed=None)).committed is None
    with pytest.raises(Refusal, match="no committed offset") as refused:
        plan_move(ShiftBy(1), standing(committed=None))
    assert refused.value.code is ErrorCode.INVALID_REQUEST
