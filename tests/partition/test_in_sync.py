"""The in-sync set as a leader knows it: proposals, doubt, and who is late."""

from penstock.partition.in_sync import LOOKS_PER_LAG, NOTHING, InSync, ProposeInSync

LAG = 8.0
LOOK = LAG / LOOKS_PER_LAG


def three(*members: int, now: float = 0.0) -> InSync:
    """Node 1 leads."""
    return InSync(1, [(node, 7) for node in members or (1, 2, 3)], (1, 2, 3), 4, lag_max_s=LAG, now=now)


def bounds(some: InSync) -> dict[int, int]:
    return {each.node: each.reached for each in some.bounds}


def looks(some: InSync, ends: dict[float, int], *, until: float, begin: float = 0.0) -> None:
    """Looks at the log's end as often as it should; `ends` is where the log ends from each moment on."""
    now = begin
    while now < until:
        now += LOOK
        some.look(max((end for moment, end in ends.items() if moment <= now), default=0), now)


def test_who_has_never_reported_counts_as_having_nothing() -> None:
    assert bounds(three()) == {2: NOTHING, 3: NOTHING}


def test_who_has_reached_enough_is_proposed_once_and_bounds_the_watermark_at_once() -> None:
    some = three(1, 2)
    some.note(3, 9, 10)
    assert some.propose(11) is None
    assert some.propose(10) == ProposeInSync(4, ((1, 7), (2, 7), (3, 9)))
    assert some.propose(10) is None
    assert bounds(some) == {2: NOTHING, 3: 10}


def test_who_still_has_deleted_records_does_not_join() -> None:
    some = three(1, 2)
    assert some.note(3, 9, 10, 4)
    assert some.propose(10, 5) is None
    assert some.note(3, 9, 10, 5)
    assert not some.note(3, 9, 10, 4), "an older report that comes late"
    assert some.propose(10, 5) == ProposeInSync(4, ((1, 7), (2, 7), (3, 9)))


def test_a_log_that_began_anew_is_believed_to_start_earlier() -> None:
    some = three(1, 2)
    some.note(3, 9, 10, 10)
    assert some.note(3, 9, 12, 8)
    assert some.propose(12, 10) is None


def test_a_member_is_proposed_with_the_life_that_is_in_the_set() -> None:
    """A later life of it may have less than what made it a member."""
    some = three(1, 2)
    some.note(2, 8, 5)
    some.note(3, 9, 10)
    assert some.propose(10) == ProposeInSync(4, ((1, 7), (2, 7), (3, 9)))


def test_a_later_life_replaces_what_the_earlier_one_reported_and_an_earlier_one_is_not_heard() -> None:
    some = three()
    assert some.note(2, 7, 50)
    assert some.note(2, 8, 3)
    assert not some.note(2, 7, 60)
    assert bounds(some)[2] == 3


def test_after_a_refusal_whoever_was_proposed_stays_a_bound_until_another_version_comes() -> None:
    some = three(1, 2)
    some.note(3, 9, 10)
    some.propose(10)
    some.refused(4)
    assert 3 in bounds(some)
    assert some.propose(10) == ProposeInSync(4, ((1, 7), (2, 7))), "what holds, to have a version that nothing earlier can change"
    assert some.adopt([(1, 7), (2, 7)], (1, 2, 3), 5, 1.0)
    assert bounds(some) == {2: NOTHING}
    assert some.propose(10) is None, "it is heard again when it reports again"
    some.note(3, 9, 10)
    assert some.propose(10) == ProposeInSync(5, ((1, 7), (2, 7), (3, 9)))


def test_one_that_is_refused_does_not_spoil_the_chances_of_another() -> None:
    some = three(1)
    some.note(2, 7, 10)
    some.note(3, 7, 10)
    assert some.propose(10) == ProposeInSync(4, ((1, 7), (2, 7)))
    some.refused(4)
    assert some.propose(10) == ProposeInSync(4, ((1, 7), (3, 7)))


def test_a_lost_proposal_is_put_again_at_the_next_look() -> None:
    some = three(1, 2)
    some.note(3, 9, 10)
    first = some.propose(10)
    some.lost(4)
    assert some.propose(10) is None
    some.look(10, LOOK)
    assert some.propose(10) == first


def test_an_end_of_another_proposal_changes_nothing() -> None:
    some = three(1, 2)
    some.note(3, 9, 10)
    some.propose(10)
    for outcome in (some.refused, some.lost):
        outcome(3)
        assert 3 in bounds(some)


def test_who_lacks_what_was_there_long_ago_is_left_out() -> None:
    some = three()
    some.note(2, 7, 100)
    some.note(3, 7, 50)
    looks(some, {0.0: 50, 2.0: 100}, until=LAG)
    assert some.propose(0) is None, "what it lacks is not old enough"
    looks(some, {0.0: 100}, begin=LAG, until=2 * LAG)
    assert some.propose(0) == ProposeInSync(4, ((1, 7), (2, 7)))
    assert 3 in bounds(some), "until the controller says so"


def test_who_lags_a_little_for_ever_stays() -> None:
    some = three(1, 2)
    for second in range(100):
        some.note(2, 7, 10 * second)
        some.look(10 * second + 30, float(second))
        assert some.propose(10**9) is None


def test_an_idle_partition_puts_nobody_out_and_its_first_record_gives_everybody_time() -> None:
    some = three(1, 2)
    some.note(2, 7, 50)
    looks(some, {0.0: 50}, until=100.0)
    assert some.propose(10**9) is None
    looks(some, {0.0: 50, 101.0: 51}, begin=100.0, until=100.0 + LAG)
    assert some.propose(10**9) is None
    looks(some, {0.0: 51}, begin=100.0 + LAG, until=104.0 + 2 * LAG)
    assert some.propose(10**9) == ProposeInSync(4, ((1, 7),))


def test_who_has_just_joined_is_not_judged_by_what_is_older() -> None:
    some = three(1, 2)
    looks(some, {0.0: 100}, until=50.0)
    some.adopt([(1, 7), (3, 7)], (1, 2, 3), 5, 50.0)
    some.look(100, 51.0)
    assert some.propose(10**9) is None


def test_a_leader_that_was_away_judges_nobody_by_that_time() -> None:
    some = three(1, 2)
    looks(some, {0.0: 100}, until=LOOK)
    some.look(100, LOOK + 3 * LAG)
    assert some.propose(10**9) is None
    looks(some, {0.0: 100}, begin=LOOK + 3 * LAG, until=LOOK + 5 * LAG)
    assert some.propose(10**9) is not None


def test_who_was_put_out_must_report_again_to_come_in() -> None:
    some = three()
    some.note(3, 7, 100)
    some.adopt([(1, 7), (2, 7)], (1, 2, 3), 5, 1.0)
    assert some.propose(0) is None
    some.note(3, 7, 100)
    assert some.propose(0) == ProposeInSync(5, ((1, 7), (2, 7), (3, 7)))


def test_a_replica_that_was_moved_away_is_not_heard() -> None:
    some = three(1, 2)
    some.adopt([(1, 7), (2, 7)], (1, 2), 5, 1.0)
    assert not some.note(3, 7, 100)


def test_a_leader_that_leaves_proposes_the_others_when_it_can() -> None:
    some = three(1, 2)
    some.note(3, 7, 100)
    some.propose(0)
    some.leader_leaves = True
    assert some.propose(0) is None, "one proposal at a time"
    some.adopt([(1, 7), (2, 7), (3, 7)], (1, 2, 3), 5, 1.0)
    assert some.propose(0) == ProposeInSync(5, ((2, 7), (3, 7)))
