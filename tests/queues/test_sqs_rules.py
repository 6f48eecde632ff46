"""What AWS was recorded doing, as far as a ledger decides it."""

from dataclasses import replace

import pytest
from queues.scene import Scene

from penstock.queues.commands import ATTEMPT_ID_MS, QUEUE_GROUP, Pause, Purge, Resume, Verb
from penstock.queues.headers import Traits
from penstock.queues.policy import Backoff, Policy
from penstock.queues.replies import Code, Outcome
from penstock.queues.state import Marked
from penstock.queues.states import State

STANDARD = Policy(lease_ms=30_000, has_priorities=False, back_after=3)
FIFO = Policy(lease_ms=30_000, is_fifo=True, has_priorities=False)


@pytest.fixture
def standard() -> Scene:
    return Scene(STANDARD)


@pytest.fixture
def fifo() -> Scene:
    return Scene(FIFO)


# Standard queues


def test_a_lapsed_lease_still_finishes_its_message(standard: Scene) -> None:
    standard.send()
    taken = standard.take()[0]
    standard.wait(30_000)
    assert standard.stands(0) is State.READY
    assert standard.done(taken) is Code.OK
    assert standard.stands(0) is State.DONE
    assert standard.take() == []


def test_a_lapsed_lease_finishes_a_message_that_somebody_else_has(standard: Scene) -> None:
    standard.send()
    first = standard.take()[0]
    standard.wait(30_000)
    second = standard.take()[0]
    assert standard.done(first) is Code.OK
    assert standard.done(second) is Code.GONE


def test_finishing_again_changes_nothing_any_number_of_times(standard: Scene) -> None:
    standard.send()
    taken = standard.take()[0]
    assert [standard.done(taken) for _ in range(3)] == [Code.OK, Code.GONE, Code.GONE]


def test_the_lease_of_a_finished_message_cannot_be_extended(standard: Scene) -> None:
    standard.send()
    taken = standard.take()[0]
    standard.done(taken)
    assert standard.settle(taken, Verb.EXTEND, 5_000).code is Code.GONE


@pytest.mark.parametrize("is_noticed", [False, True])
def test_a_lapsed_lease_can_be_extended_while_nobody_else_has_had_the_message(standard: Scene, is_noticed: bool) -> None:
    standard.policy = replace(STANDARD, backoff=Backoff(1_000))
    standard.send()
    taken = standard.take()[0]
    standard.now += 30_000
    if is_noticed:
        standard.wait(0)
        assert standard.stands(0) is State.DELAYED
    assert standard.settle(taken, Verb.EXTEND, 5_000).when_ms == standard.now + 5_000
    standard.load(from_checkpoint=is_noticed)
    standard.wait(4_999)
    assert standard.counts().leased == 1
    assert standard.take() == []
    standard.wait(1)
    standard.wait(1_000)
    again = standard.take()[0]
    assert again.attempt == 2, "it was one delivery, however late it was extended"
    assert standard.settle(taken, Verb.EXTEND, 5_000) == Outcome(Code.LOST, again.deadline_ms)


@pytest.mark.invariant("queues.undo-only-undelivered")
@pytest.mark.parametrize("given_back", [(Verb.RELEASE, 0), (Verb.RELEASE, 60_000), (Verb.EXTEND, 0), (Verb.UNDO, None)])
def test_what_its_holder_gave_back_is_not_theirs_to_extend(standard: Scene, given_back: tuple[Verb, int | None]) -> None:
    """A heartbeat that comes late must not take the message from everybody until its lease lapses, and count as a failure then."""
    standard.send()
    taken = standard.take()[0]
    assert standard.settle(taken, *given_back).code is Code.OK
    standard.load(from_checkpoint=given_back[1] == 0)
    assert standard.settle(taken, Verb.EXTEND, 5_000).code is Code.LOST
    assert standard.settle(taken, Verb.EXTEND, 0).code is Code.OK, "it is given back already"
    assert standard.counts().leased == 0


@pytest.mark.invariant("queues.only-holder-settles")
def test_giving_back_what_has_lapsed_changes_nothing(standard: Scene) -> None:
    standard.send()
    taken = standard.take()[0]
    standard.wait(30_000)
    made = len(standard.records)
    assert standard.settle(taken, Verb.EXTEND, 0).code is Code.OK
    assert len(standard.records) == made


def test_a_late_extension_keeps_to_the_limit_in_flight(standard: Scene) -> None:
    standard.policy = replace(STANDARD, in_flight_max=1, backoff=Backoff(60_000))
    standard.send(2)
    late = standard.take()[0]
    standard.wait(30_000)
    other = standard.take()[0]
    assert standard.settle(late, Verb.EXTEND, 5_000).code is Code.LOST
    standard.done(other)
    assert standard.settle(late, Verb.EXTEND, 5_000).code is Code.OK


def test_a_late_extension_does_not_keep_what_has_expired(standard: Scene) -> None:
    standard.send(expires_at=standard.now + 20_000)
    taken = standard.take()[0]
    standard.now += 30_000  # Nobody has noticed yet.
    assert standard.settle(taken, Verb.EXTEND, 5_000).code is Code.LOST


def test_an_extension_is_not_remembered_for_the_next_delivery(standard: Scene) -> None:
    standard.send()
    taken = standard.take()[0]
    assert standard.settle(taken, Verb.EXTEND, 100_000).when_ms == standard.now + 100_000
    standard.wait(99_999)
    assert standard.take() == []
    standard.wait(1)
    assert standard.take()[0].deadline_ms == standard.now + 30_000


def test_an_extension_by_nothing_gives_it_back_at_once_and_is_no_failure(standard: Scene) -> None:
    standard.send()
    assert standard.settle(standard.take()[0], Verb.EXTEND, 0).code is Code.OK
    assert standard.take()[0].attempt == 2
    assert standard.view(0).history == ()


def test_a_message_that_was_returned_three_times_goes_to_the_back(standard: Scene) -> None:
    standard.send(3)
    for attempt in (1, 2, 3):
        taken = standard.take()[0]
        assert (taken.offset, taken.attempt) == (0, attempt)
        standard.settle(taken, Verb.EXTEND, 0)
    assert standard.offsets(5) == [1, 2, 0]


def test_leases_beyond_the_limit_are_not_given(standard: Scene) -> None:
    standard.policy = Policy(in_flight_max=3)
    standard.send(5)
    assert standard.offsets(10) == [0, 1, 2]
    assert standard.taken().is_over_limit
    assert standard.state.ready_at(QUEUE_GROUP, standard.now) == standard.now + 30_000


def test_a_purge_drops_what_is_ready_delayed_and_in_flight(standard: Scene) -> None:
    standard.send(3)
    standard.send(deliver_at=standard.now + 60_000)
    taken = standard.take()[0]
    assert standard.turn(Purge("t", QUEUE_GROUP)).count == 4
    assert standard.done(taken) is Code.GONE
    standard.wait(60_000)
    assert standard.take(10) == []
    assert standard.counts().base == 4


# FIFO queues


@pytest.mark.invariant("queues.only-holder-settles")
def test_a_lapsed_lease_of_a_fifo_queue_is_refused(fifo: Scene) -> None:
    fifo.send(group="a")
    taken = fifo.take()[0]
    fifo.now += 30_000  # Nobody has noticed yet.
    assert fifo.done(taken) is Code.LOST
    fifo.wait(0)
    assert fifo.done(taken) is Code.LOST
    assert fifo.stands(0) is State.READY


def test_a_lapsed_lease_of_a_fifo_queue_cannot_be_extended(fifo: Scene) -> None:
    fifo.send(group="a")
    taken = fifo.take()[0]
    fifo.wait(30_000)
    assert fifo.settle(taken, Verb.EXTEND, 5_000).code is Code.LOST


def test_a_new_message_does_not_unlock_its_group(fifo: Scene) -> None:
    fifo.send(group="a")
    fifo.take()
    fifo.send(group="a")
    assert fifo.take(10) == []
    assert fifo.view(1).is_blocked
    assert fifo.state.ready_at(QUEUE_GROUP, fifo.now) == fifo.now + 30_000


def test_finishing_all_unlocks_the_group_at_once(fifo: Scene) -> None:
    fifo.send(3, group="a")
    first, second = fifo.take(2)
    assert fifo.done(first) is Code.OK
    assert fifo.done(second) is Code.OK
    assert fifo.state.ready_at(QUEUE_GROUP, fifo.now) == 0
    assert fifo.offsets() == [2]


@pytest.mark.invariant("queues.fifo-order")
def test_finishing_some_keeps_the_group_locked_until_the_rest_is_done_or_lapses(fifo: Scene) -> None:
    fifo.send(3, group="a")
    first, _ = fifo.take(2)
    fifo.done(first)
    assert fifo.take() == []
    fifo.wait(30_000)
    assert fifo.offsets(5) == [1, 2]


@pytest.mark.invariant("queues.fifo-order")
@pytest.mark.parametrize("extended", [0, 1, 2])
def test_what_came_back_in_front_of_the_first_in_flight_is_given_again(fifo: Scene, extended: int) -> None:
    fifo.send(4, group="a")
    taken = fifo.take(3)
    fifo.settle(taken[extended], Verb.EXTEND, 60_000)
    fifo.wait(30_000)
    for from_checkpoint in (False, True):
        fifo.load(from_checkpoint=from_checkpoint)
        assert [fifo.view(offset).state for offset in range(3)].count(State.LEASED) == 1
    assert fifo.offsets(10) == list(range(extended)), "the extended one and all behind it stay where they are"
    assert fifo.take(10) == []


def test_a_group_opens_up_to_the_first_that_is_still_in_flight_or_waits_for_its_next_try(fifo: Scene) -> None:
    fifo.send(6, group="a")
    taken = fifo.take(5)
    fifo.settle(taken[2], Verb.EXTEND, 0)
    assert fifo.take(10) == [], "two in front of it are in flight"
    fifo.done(taken[1])
    fifo.settle(taken[0], Verb.EXTEND, 0)
    assert fifo.state.ready_at(QUEUE_GROUP, fifo.now) == 0
    first, third = fifo.take(10)
    assert (first.offset, third.offset) == (0, 2)
    fifo.release(third, 5_000)
    fifo.done(taken[3])
    fifo.done(taken[4])
    fifo.settle(first, Verb.EXTEND, 0)
    assert fifo.offsets(10) == [0], "the third waits, and so does what is behind it"
    fifo.wait(5_000)
    assert fifo.take(10) == []
    fifo.wait(25_000)
    assert fifo.offsets(10) == [0, 2, 5]


def test_one_group_is_given_in_order_before_the_next(fifo: Scene) -> None:
    for group in ("a", "b", "a", "c", "b", "a"):
        fifo.send(group=group)
    assert fifo.offsets(4) == [0, 2, 5, 1]
    assert fifo.offsets(4) == [3], "b is locked by its first message"


def test_a_delayed_message_does_not_lock_its_group(fifo: Scene) -> None:
    fifo.send(group="a", deliver_at=fifo.now + 10_000)
    fifo.send(group="a")
    assert fifo.offsets(5) == [1]
    fifo.send(group="a")
    fifo.wait(10_000)
    assert fifo.offsets(5) == [0], "it is in front of the one in flight; the last one is behind it"


@pytest.mark.invariant("queues.fifo-order")
@pytest.mark.parametrize("way", ["lapse", "release", "release later", "give back"])
def test_order_is_kept_whatever_happens_to_a_message(fifo: Scene, way: str) -> None:
    fifo.send(3, group="a")
    taken = fifo.take()[0]
    match way:
        case "lapse":
            fifo.wait(30_000)
        case "release":
            fifo.release(taken, 0)
        case "release later":
            fifo.release(taken, 5_000)
            assert fifo.take(5) == [], "others of its group wait for it"
            fifo.wait(5_000)
        case "give back":
            fifo.settle(taken, Verb.EXTEND, 0)
    assert fifo.offsets(5) == [0, 1, 2]


def test_a_locked_group_does_not_hold_up_others(fifo: Scene) -> None:
    fifo.send(2, group="a")
    fifo.send(group="b")
    fifo.take()
    assert fifo.offsets() == [2]


@pytest.mark.invariant("queues.fifo-order")
def test_locks_outlive_a_failover(fifo: Scene) -> None:
    fifo.send(2, group="a")
    taken = fifo.take()[0]
    for from_checkpoint in (False, True):
        fifo.load(from_checkpoint=from_checkpoint)
        assert fifo.take(5) == []
    fifo.done(taken)
    assert fifo.offsets() == [1]


@pytest.mark.invariant("queues.dedup-window")
def test_an_id_counts_after_its_message_was_finished(fifo: Scene) -> None:
    fifo.send(group="a", dedup="x")
    fifo.done(fifo.take()[0])
    assert fifo.state.dedup(b"x", fifo.now) == 0
    fifo.load(from_checkpoint=True)
    assert fifo.state.dedup(b"x", fifo.now + 299_999) == 0
    assert fifo.state.dedup(b"x", fifo.now + 300_000) is None


def test_a_duplicate_that_came_as_a_plain_record_is_given_to_nobody(fifo: Scene) -> None:
    fifo.send(2, group="a", dedup="x")
    assert fifo.offsets(5) == [0]
    fifo.wait(1)
    assert fifo.stands(1) is State.DONE
    assert fifo.counts().base == 0


def test_an_id_counts_from_the_append_on(fifo: Scene) -> None:
    fifo.state.expect(b"x", 0, fifo.now)
    assert fifo.state.dedup(b"x", fifo.now) == 0


def test_an_id_may_count_in_its_group_alone(fifo: Scene) -> None:
    fifo.policy = Policy(is_fifo=True, dedup_by_group=True)
    fifo.send(group="a", dedup="x")
    fifo.send(group="b", dedup="x")
    assert sorted(fifo.offsets(5)) == [0, 1]
    assert fifo.state.dedup_key(b"x", b"a") != fifo.state.dedup_key(b"x", b"b")


def test_a_purge_forgets_ids(fifo: Scene) -> None:
    fifo.send(group="a", dedup="x")
    fifo.turn(Purge("t", QUEUE_GROUP))
    assert fifo.state.dedup(b"x", fifo.now) is None
    fifo.load()
    assert fifo.state.dedup(b"x", fifo.now) is None, "nor are they learned from the log again"
    fifo.send(group="a", dedup="x")
    assert fifo.offsets() == [1]


def test_the_same_attempt_gets_the_same_batch_again_and_its_time_begins_anew(fifo: Scene) -> None:
    fifo.send(2, group="a")
    first = fifo.take(2, attempt="try")
    fifo.wait(20_000)
    again = fifo.take(2, attempt="try")
    assert [(each.offset, each.lease, each.attempt) for each in again] == [(each.offset, each.lease, each.attempt) for each in first]
    assert {each.deadline_ms for each in again} == {fifo.now + 30_000}
    fifo.load(from_checkpoint=True)
    assert fifo.take(2, attempt="try") == again
    fifo.wait(29_999)
    assert fifo.take(2) == []
    assert fifo.done(first[0]) is Code.OK


def test_the_same_attempt_gets_what_is_still_held_of_its_batch(standard: Scene) -> None:
    standard.send(4)
    first = standard.take(3, attempt="try")
    standard.done(first[0])
    standard.settle(first[1], Verb.UNDO)
    again = standard.take(3, attempt="try")
    assert [(each.offset, each.lease) for each in again] == [(2, first[2].lease)]
    assert standard.offsets(3) == [1, 3], "what did not fit into the first answer is anybody's"


@pytest.mark.invariant("queues.undo-only-undelivered")
@pytest.mark.parametrize("from_checkpoint", [False, True])
def test_what_was_given_to_the_same_attempt_again_is_not_undone(standard: Scene, from_checkpoint: bool) -> None:
    """The first answer goes to nobody, and is to be undone; but the second has the same leases, and whoever asked again has them."""
    standard.send()
    first = standard.take(attempt="try")[0]
    again = standard.take(attempt="try")[0]
    assert again.lease == first.lease
    standard.load(from_checkpoint=from_checkpoint)
    assert standard.settle(first, Verb.UNDO).code is Code.LOST
    assert standard.take() == []
    standard.wait(30_000)
    assert standard.take()[0].attempt == 2


def test_an_extended_delivery_is_not_undone(standard: Scene) -> None:
    standard.send()
    taken = standard.take()[0]
    standard.settle(taken, Verb.EXTEND, 5_000)
    assert standard.settle(taken, Verb.UNDO).code is Code.LOST
    assert standard.done(taken) is Code.OK


@pytest.mark.parametrize("change", ["finished", "lapsed", "too late"])
def test_an_attempt_is_a_new_one_once_its_batch_is_not_the_same(fifo: Scene, change: str) -> None:
    fifo.send(group="a")
    fifo.send(group="b")
    taken = fifo.take(1, attempt="try")[0]
    if change == "finished":
        fifo.done(taken)
    elif change == "lapsed":
        fifo.wait(30_000)
    else:
        for _ in range(ATTEMPT_ID_MS // 25_000 + 1):
            fifo.settle(taken, Verb.EXTEND, 30_000)
            fifo.wait(25_000)
    again = fifo.take(1, attempt="try")[0]
    assert again.lease != taken.lease
    assert again.offset == (0 if change == "lapsed" else 1)


def test_a_paused_queue_gives_nothing_and_keeps_what_was_given(fifo: Scene) -> None:
    fifo.send(2)
    taken = fifo.take()[0]
    fifo.turn(Pause("t", QUEUE_GROUP))
    fifo.load()
    assert fifo.taken().is_paused
    assert fifo.state.ready_at(QUEUE_GROUP, fifo.now) is None
    assert fifo.done(taken) is Code.OK
    fifo.turn(Resume("t", QUEUE_GROUP))
    assert fifo.offsets() == [1]


def test_a_message_without_a_group_locks_nothing(fifo: Scene) -> None:
    fifo.send(2)
    assert fifo.offsets() == [0]
    assert fifo.offsets() == [1]


def test_an_id_with_an_older_time_than_the_window_is_no_duplicate(fifo: Scene) -> None:
    fifo.send(group="a", dedup="x")
    fifo.now += 300_000
    fifo.state.learn([Marked(1, Traits(group=b"b", dedup=b"x", written_ms=fifo.now))], 2)
    assert fifo.offsets(5) == [0, 1]
