"""Failed deliveries: backoff with jitter, a history that is bounded, and dead letters in two steps."""

import pytest
from queues.scene import Scene

from penstock.queues.commands import QUEUE_GROUP, Buried, Purge, Verb
from penstock.queues.history import FAILURES_MAX
from penstock.queues.policy import Backoff, Policy
from penstock.queues.records import Changed
from penstock.queues.replies import Code, Delivery
from penstock.queues.states import State

RETRIES = Policy(lease_ms=10_000, deliveries_max=3, dead_letter="dead")


def test_backoff_grows_up_to_its_bound_and_jitter_takes_some_of_it_away() -> None:
    backoff = Backoff(min_ms=1_000, max_ms=10_000, factor=3.0, jitter=0.5)
    assert [backoff.delay_ms(failures, 0.0) for failures in (1, 2, 3, 4, 100_000)] == [1_000, 3_000, 9_000, 10_000, 10_000]
    assert backoff.delay_ms(2, 0.999) == pytest.approx(1_500, abs=2)
    assert Backoff().delay_ms(5, 0.3) == 0


@pytest.mark.parametrize("way", ["release", "lapse"])
def test_a_failed_message_waits_for_its_next_try(way: str) -> None:
    scene = Scene(Policy(lease_ms=10_000, backoff=Backoff(1_000, 60_000, 2.0, 0.5)), chance=0.5)
    scene.send()
    taken = scene.take()[0]
    if way == "release":
        assert scene.release(taken, reason="boom").when_ms == scene.now + 750
    else:
        scene.wait(10_000)
    assert scene.stands(0) is State.DELAYED
    scene.wait(749)
    assert scene.take() == []
    scene.wait(1)
    taken = scene.take()[0]
    assert taken.attempt == 2
    assert scene.release(taken).when_ms == scene.now + 1_500


def test_a_release_may_bring_its_own_delay_however_long() -> None:
    scene = Scene(Policy(backoff=Backoff(1_000)))
    scene.send()
    years_ms = 10 * 365 * 86_400_000
    scene.release(scene.take()[0], years_ms)
    scene.load(from_checkpoint=True)
    scene.wait(years_ms - 1)
    assert scene.take() == []
    scene.wait(1)
    assert scene.offsets() == [0]


def test_chance_is_asked_when_it_is_decided_and_never_again() -> None:
    scene = Scene(Policy(backoff=Backoff(1_000)), chance=0.5)
    scene.send()
    scene.release(scene.take()[0])
    due_ms = scene.view(0).when_ms
    scene.chance = 0.9
    scene.load()
    assert scene.view(0).when_ms == due_ms


def test_history_tells_when_who_how_long_and_why() -> None:
    scene = Scene(RETRIES)
    scene.send()
    began = scene.now
    taken = scene.take(who="one")[0]
    scene.wait(500)
    scene.release(taken, 0, reason="boom")
    scene.take(who="two")
    scene.wait(10_000)
    told = [(each.taken_ms - began, each.ended_ms - began, each.who, each.reason) for each in scene.view(0).history]
    assert told == [(0, 500, "one", "boom"), (500, 10_500, "two", "lapsed")]


def test_history_is_bounded_in_number_and_in_words() -> None:
    scene = Scene(Policy())
    scene.send()
    for number in range(FAILURES_MAX + 4):
        scene.release(scene.take(who="w" * 500)[0], 0, reason=f"{number:04}" + "é" * 500)
    history = scene.view(0).history
    assert [each.reason[:4] for each in history] == [f"{number:04}" for number in range(4, FAILURES_MAX + 4)]
    assert {len(each.reason.encode()) for each in history} == {200}
    assert {len(each.who) for each in history} == {64}
    scene.load(from_checkpoint=True)
    assert scene.view(0).history == history


def test_history_of_very_many_failures_keeps_the_last_of_each(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.queues.ledger.HISTORY_BYTES_MAX", 100)
    scene = Scene(Policy())
    scene.send()
    for reason in ("a" * 40, "b" * 40, "c" * 40):
        scene.release(scene.take()[0], 0, reason=reason)
    assert [each.reason[0] for each in scene.view(0).history] == ["c"]


@pytest.mark.invariant("queues.dead-letter-after-limit")
@pytest.mark.parametrize("way", ["release", "lapse", "give back"])
def test_a_message_that_failed_as_often_as_it_may_is_buried_in_two_steps(way: str) -> None:
    scene = Scene(RETRIES)
    scene.send()
    for attempt in (1, 2, 3):
        taken = scene.take()[0]
        assert taken.attempt == attempt
        if way == "lapse":
            scene.wait(10_000)
        else:
            outcome = scene.settle(taken, Verb.RELEASE if way == "release" else Verb.EXTEND, 0, reason="boom")
            assert outcome.is_buried == (attempt == 3)
    assert scene.stands(0) is State.BURYING
    assert scene.take() == []
    letter = scene.state.newly_owed()[0]
    assert (letter.group, letter.offset, letter.attempts, letter.failed_ms) == (QUEUE_GROUP, 0, 3, scene.now)
    assert scene.state.newly_owed() == []
    assert scene.turn(Buried("t", QUEUE_GROUP, (0,))).count == 1
    assert scene.stands(0) is State.DONE
    assert scene.counts().base == 1
    assert list(scene.state.owed()) == []


@pytest.mark.parametrize("is_extended", [False, True])
@pytest.mark.parametrize("from_checkpoint", [False, True])
def test_what_comes_back_untouched_is_no_delivery_however_often(from_checkpoint: bool, is_extended: bool) -> None:
    scene = Scene(RETRIES)
    scene.send()
    scene.release(scene.take()[0], 0, reason="boom")
    for _ in range(5):
        taken = scene.take()[0]
        assert taken.attempt == 2
        if is_extended:
            scene.settle(taken, Verb.EXTEND, 20_000)
        assert scene.settle(taken, Verb.RETURN).code is Code.OK
        assert scene.settle(taken, Verb.RETURN).code is Code.LOST, "it is nobody's"
        scene.load(from_checkpoint=from_checkpoint)
    assert (scene.stands(0), scene.view(0).attempts, len(scene.view(0).history)) == (State.READY, 1, 1)
    scene.release(scene.take()[0], 0)
    assert scene.release(scene.take()[0], 0).is_buried, "failures still count"


@pytest.mark.invariant("queues.dead-letter-owed")
@pytest.mark.parametrize("from_checkpoint", [False, True])
def test_what_was_owed_is_owed_again_after_a_load_and_once_it_is_moved_no_more(from_checkpoint: bool) -> None:
    scene = Scene(RETRIES)
    scene.send(2)
    scene.settle(scene.take()[0], Verb.REJECT, reason="never")
    scene.load(from_checkpoint=from_checkpoint)
    letters = scene.state.newly_owed()
    assert [(letter.offset, letter.reason, len(letter.history)) for letter in letters] == [(0, "never", 1)]
    scene.turn(Buried("t", QUEUE_GROUP, (0,)))
    assert scene.turn(Buried("t", QUEUE_GROUP, (0, 1))).count == 0, "twice does no harm, nor does one that is not being buried"
    scene.load(from_checkpoint=from_checkpoint)
    assert scene.state.newly_owed() == []


def test_nobody_settles_a_message_that_is_being_buried() -> None:
    scene = Scene(RETRIES)
    scene.send()
    taken = scene.take()[0]
    scene.settle(taken, Verb.REJECT)
    assert [scene.settle(taken, verb).code for verb in Verb] == [Code.LOST] * len(Verb)


def test_without_a_queue_for_dead_letters_a_message_ends_there() -> None:
    scene = Scene(Policy(deliveries_max=1))
    scene.send(2)
    first, second = scene.take(2)
    scene.release(first, 0)
    scene.settle(second, Verb.REJECT)
    assert (scene.stands(0), scene.stands(1)) == (State.DONE, State.DONE)
    assert list(scene.state.owed()) == []


def test_a_purge_buries_nobody() -> None:
    scene = Scene(RETRIES)
    scene.send()
    scene.settle(scene.take()[0], Verb.REJECT)
    scene.turn(Purge("t", QUEUE_GROUP))
    assert scene.state.newly_owed() == []


def test_a_fifo_group_goes_on_behind_a_dead_letter() -> None:
    scene = Scene(Policy(is_fifo=True, deliveries_max=1, dead_letter="dead"))
    scene.send(2, group="a")
    scene.settle(scene.take()[0], Verb.REJECT)
    assert scene.offsets() == [1]


def test_more_leases_than_one_call_looks_at_lapse_all_the_same() -> None:
    scene = Scene(Policy(lease_ms=1_000))
    scene.send(5_000)
    for _ in range(5):
        scene.take(1_000)
    scene.wait(1_000)
    assert scene.counts().leased == 0
    assert scene.offsets(3) == [0, 1, 2]


@pytest.mark.invariant("queues.lease-expires")
def test_a_lapse_that_could_not_be_stored_is_caused_again() -> None:
    scene = Scene(Policy(lease_ms=1_000))
    scene.send()
    scene.take()
    scene.now += 1_000
    assert scene.state.lapse(scene.instant(), scene.now).records
    scene.wait(1_000)
    assert scene.offsets() == [0]


def test_an_older_backoff_does_not_end_a_later_one() -> None:
    scene = Scene(Policy(lease_ms=10_000, backoff=Backoff(5_000, jitter=0.0)))
    offset = scene.send()
    (first,) = scene.take()
    scene.wait(10_000)
    assert scene.stands(offset) is State.DELAYED, "the lease has lapsed"
    assert scene.settle(first, Verb.EXTEND, 8_000).code is Code.OK, "who had it last takes it up again"
    scene.release(first, 60_000)
    scene.wait(30_000)
    assert (scene.offsets(), scene.stands(offset), scene.counts().delayed) == ([], State.DELAYED, 1)
    scene.wait(30_000)
    assert scene.offsets() == [offset]


@pytest.mark.invariant("queues.only-leader-denies-lease")
@pytest.mark.parametrize("verb", [Verb.DONE, Verb.EXTEND, Verb.RELEASE])
def test_who_is_told_that_a_lease_is_not_theirs_hears_it_from_the_leader_alone(verb: Verb) -> None:
    """Found by simulation: a node that led no more, and did not know it, told workers of leases of its successor that nobody held them.
    Nothing had to be recorded for that, and so nothing was waited for."""
    scene = Scene(Policy(lease_ms=10_000, is_lenient=False))
    scene.send(2)
    (taken,) = scene.take()
    before = len(scene.records)
    assert scene.settle(Delivery(1, 1, taken.lease + 1, 0, 0), verb).code is Code.UNKNOWN
    assert scene.settle(Delivery(0, 1, taken.lease + 1, 0, 0), verb).code is Code.LOST
    assert scene.records[before:] == [Changed(QUEUE_GROUP, scene.now)] * 2, "they say nothing, but wait for the others"
    assert (scene.stands(0), scene.stands(1)) == (State.LEASED, State.READY)
    scene.wait(10_000)
    (again,) = scene.take()
    before = len(scene.records)
    assert scene.settle(taken, verb).code is Code.LOST
    assert scene.records[before:] == [Changed(QUEUE_GROUP, scene.now)], "another leader may have extended it"
    assert scene.done(again) is Code.OK
    before = len(scene.records)
    assert scene.settle(again, verb).code is Code.GONE
    assert len(scene.records) == before, "that is so everywhere"
