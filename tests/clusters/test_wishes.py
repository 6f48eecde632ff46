"""What an operator may rely on after each request about a partition: the replicas that it can have at the end."""

import pytest

from penstock.simulator.clusters.wishes import PROMPT_SECONDS, Wishes
from penstock.vocabulary import TopicPartition

WHERE = TopicPartition("t", 0)
AT_ONCE = PROMPT_SECONDS / 10


def wishes(*replicas: int) -> Wishes:
    made = Wishes()
    made.found(WHERE, replicas)
    return made


def possible(made: Wishes) -> set[frozenset[int]]:
    return set(made.by_partition[WHERE].possible())


def sets(*each: tuple[int, ...]) -> set[frozenset[int]]:
    return set(map(frozenset, each))


def test_a_move_that_was_answered_settles_where_the_partition_goes() -> None:
    made = wishes(1, 2)
    made.begun(WHERE, (2, 3), seconds=AT_ONCE)
    made.begun(WHERE, (4, 3), seconds=AT_ONCE)
    assert possible(made) == sets((3, 4))
    assert made.by_partition[WHERE].order == (4, 3)


def test_a_move_that_is_given_up_goes_back_to_what_was_there() -> None:
    made = wishes(1, 2)
    made.begun(WHERE, (2, 3), seconds=AT_ONCE)
    made.given_up(WHERE)
    assert possible(made) == sets((1, 2))


def test_a_move_that_may_have_ended_before_the_next_one_may_be_what_is_gone_back_to() -> None:
    made = wishes(1)
    made.begun(WHERE, (2,), seconds=AT_ONCE)
    made.begun(WHERE, (3,), seconds=AT_ONCE)
    made.given_up(WHERE)
    assert possible(made) == sets((1,), (2,))


def test_what_was_seen_to_have_ended_is_all_that_is_gone_back_to() -> None:
    made = wishes(1)
    made.begun(WHERE, (2,), seconds=AT_ONCE)
    made.ended(WHERE, (2,))
    made.begun(WHERE, (3,), seconds=AT_ONCE)
    made.given_up(WHERE)
    assert possible(made) == sets((2,))


def test_an_old_view_of_the_same_replicas_settles_nothing() -> None:
    """The partition goes back to where it was: a node that lags behind may show it before it ever left."""
    made = wishes(1)
    made.begun(WHERE, (2,), seconds=AT_ONCE)
    made.begun(WHERE, (1,), seconds=AT_ONCE)
    made.ended(WHERE, (1,))
    made.given_up(WHERE)
    assert possible(made) == sets((1,), (2,))


@pytest.mark.parametrize("seconds", [None, 2 * PROMPT_SECONDS])
def test_a_request_that_may_come_late_stays_possible_after_the_next_one(seconds: float | None) -> None:
    made = wishes(1)
    if seconds is None:
        made.may_have_begun(WHERE, (2,))
    else:
        made.begun(WHERE, (2,), seconds=seconds)
    made.begun(WHERE, (3,), seconds=AT_ONCE)
    made.ended(WHERE, (3,))
    assert possible(made) == sets((2,), (3,))
    assert made.by_partition[WHERE].order is None


def test_a_lost_request_to_give_up_leaves_both_possible() -> None:
    made = wishes(1)
    made.begun(WHERE, (2,), seconds=AT_ONCE)
    made.may_have_been_given_up(WHERE)
    assert possible(made) == sets((1,), (2,))
