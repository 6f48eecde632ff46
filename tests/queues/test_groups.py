"""Several ledgers over one partition, as Kafka's share groups need them: starts, ranges, rewinds, and what is done in all of them."""

import pytest
from queues.scene import Scene

from penstock.queues.commands import (
    ANY_LEASE,
    COUNT_MAX,
    EARLIEST,
    LATEST,
    QUEUE_GROUP,
    Forget,
    Purge,
    ReleaseAll,
    Rewind,
    Settle,
    Settlement,
    Start,
    Take,
    Trimmed,
    Verb,
)
from penstock.queues.policy import Policy
from penstock.queues.replies import Code, Fault, Settled, Taken
from penstock.queues.states import State


@pytest.fixture
def scene() -> Scene:
    made = Scene(Policy(is_lenient=False, deliveries_max=3))
    made.send(10)
    return made


def start(scene: Scene, group: str, at: int) -> None:
    scene.turn(Start("t", group, at))
    scene.learn_again()


@pytest.mark.parametrize(("at", "first"), [(EARLIEST, 0), (LATEST, 10), (4, 4)])
def test_a_group_starts_where_it_is_told_to(scene: Scene, at: int, first: int) -> None:
    start(scene, "share", at)
    scene.send(2)
    assert scene.state.base("share") == first
    assert scene.offsets(20, group="share") == list(range(first, 12))


def test_groups_do_not_see_each_other(scene: Scene) -> None:
    start(scene, "share", EARLIEST)
    taken = scene.take(3, group="share")
    for delivery in taken:
        assert scene.done(delivery, group="share") is Code.OK
    assert scene.offsets(3) == [0, 1, 2]
    assert (scene.state.base("share"), scene.state.base(QUEUE_GROUP), scene.state.base_of_all) == (3, 0, 0)


def test_a_group_that_was_not_started_is_told_so(scene: Scene) -> None:
    reply = scene.do(Take("t", "nobody", 1, None, "w"))
    assert isinstance(reply, Taken) and reply.fault is Fault.NO_SUCH_GROUP
    assert not scene.state.has("nobody")


def test_a_group_that_starts_anew_voids_its_leases(scene: Scene) -> None:
    start(scene, "share", EARLIEST)
    taken = scene.take(3, group="share")
    start(scene, "share", 2)
    assert scene.done(taken[0], group="share") is Code.GONE
    assert scene.done(taken[2], group="share") is Code.UNKNOWN
    assert scene.offsets(2, group="share") == [2, 3]


def test_a_late_group_hears_of_options_that_others_are_done_with(scene: Scene) -> None:
    scene.send(priority=9)
    scene.send(deliver_at=scene.now + 1_000)
    scene.wait(1_000)
    for delivery in scene.take(20):
        scene.done(delivery)
    start(scene, "share", EARLIEST)
    assert scene.offsets(20, group="share") == [10, *range(10), 11]


def test_a_group_can_be_forgotten(scene: Scene) -> None:
    start(scene, "share", EARLIEST)
    scene.take(2, group="share")
    scene.turn(Forget("t", "share"))
    assert scene.state.groups() == [QUEUE_GROUP]
    scene.load()
    assert scene.state.groups() == [QUEUE_GROUP]


def test_a_range_is_settled_in_one_go_by_whoever_holds_it(scene: Scene) -> None:
    scene.take(6, who="member")
    outcome = scene.settle_all(Settlement(0, ANY_LEASE, Verb.DONE, who="member", end_offset=4))[0]
    assert outcome.code is Code.OK
    assert scene.counts().base == 4
    assert len(scene.records[-1].done) == 1, "one run, whatever its length"
    outcome = scene.settle_all(Settlement(4, ANY_LEASE, Verb.RELEASE, 0, who="member", end_offset=6))[0]
    assert outcome.code is Code.OK
    assert [(each.offset, each.attempt) for each in scene.take(3)] == [(4, 2), (5, 2), (6, 1)]


def test_a_range_that_somebody_else_has_a_part_of_is_left_alone(scene: Scene) -> None:
    scene.take(2, who="one")
    scene.take(2, who="two")
    for verb in Verb:
        assert scene.settle_all(Settlement(0, ANY_LEASE, verb, 1_000, who="one", end_offset=4))[0].code is Code.LOST
    assert scene.counts().leased == 4
    assert scene.settle_all(Settlement(0, ANY_LEASE, Verb.DONE, who="one", end_offset=7))[0].code is Code.LOST
    assert scene.settle_all(Settlement(7, ANY_LEASE, Verb.DONE, who="one", end_offset=9))[0].code is Code.UNKNOWN


def test_a_range_passes_over_offsets_without_a_message_and_what_is_done(scene: Scene) -> None:
    scene.end += 2  # Markers of a transaction.
    scene.state.learn([], 12)
    scene.send(2)
    taken = scene.take(20, who="member")
    assert [each.offset for each in taken] == [*range(10), 12, 13]
    scene.done(taken[3])
    assert scene.settle_all(Settlement(2, ANY_LEASE, Verb.DONE, who="member", end_offset=14))[0].code is Code.OK
    assert scene.settle_all(Settlement(2, ANY_LEASE, Verb.DONE, who="member", end_offset=14))[0].code is Code.GONE
    assert scene.settle_all(Settlement(0, ANY_LEASE, Verb.DONE, who="member", end_offset=14))[0].code is Code.OK
    assert scene.counts().base == 14


def test_what_is_settled_as_a_whole_is_settled_or_nothing_is(scene: Scene) -> None:
    taken = scene.take(4, who="member")
    verbs = (Verb.DONE, Verb.RELEASE, Verb.REJECT, Verb.EXTEND)
    items = tuple(Settlement(each.offset, each.lease, verb) for each, verb in zip(taken, verbs, strict=True))
    before = scene.counts()
    reply = scene.do(Settle("t", QUEUE_GROUP, (*items, Settlement(9, 1, Verb.DONE)), is_whole=True))
    assert isinstance(reply, Settled)
    assert [outcome.code for outcome in reply.outcomes] == [Code.OK] * 4 + [Code.UNKNOWN]
    assert scene.counts() == before
    reply = scene.do(Settle("t", QUEUE_GROUP, items, is_whole=True))
    assert isinstance(reply, Settled)
    assert [outcome.code for outcome in reply.outcomes] == [Code.OK] * 4
    assert scene.counts().leased == 1


def test_a_range_is_extended_as_a_whole_or_not_at_all(scene: Scene) -> None:
    scene.take(1, who="member", lease_ms=43_200_000)
    scene.wait(10_000)
    scene.take(1, who="member", lease_ms=43_200_000)
    renewal = Settlement(0, ANY_LEASE, Verb.EXTEND, 43_200_000, who="member", end_offset=2)
    assert scene.settle_all(renewal)[0].code is Code.TOO_LONG
    assert scene.view(1).when_ms == scene.now + 43_200_000


def test_a_member_that_leaves_gives_back_what_it_has_and_its_deliveries_count(scene: Scene) -> None:
    scene.take(3, who="leaver")
    scene.take(2, who="stayer")
    assert scene.turn(ReleaseAll("t", QUEUE_GROUP, "leaver")).count == 3
    assert scene.counts().leased == 2
    assert [(each.offset, each.attempt) for each in scene.take(4)] == [(0, 2), (1, 2), (2, 2), (5, 1)]
    assert scene.view(0).history == ()


def test_a_member_that_has_very_many_gives_them_back_piece_by_piece(scene: Scene) -> None:
    scene.send(COUNT_MAX + 5)
    scene.take(COUNT_MAX, who="member")
    scene.take(3, who="ember")
    scene.take(3, who="member")
    assert [scene.turn(ReleaseAll("t", QUEUE_GROUP, "member")).count for _ in range(3)] == [COUNT_MAX, 3, 0]
    assert scene.counts().leased == 3, "another one's name may be a part of it"


def test_what_kills_every_member_that_has_it_comes_as_often_as_it_may(scene: Scene) -> None:
    """It came for ever: a member that dies gives back what it has long before its leases end, and that did not count."""
    for attempt in (1, 2, 3):
        assert [(each.offset, each.attempt) for each in scene.take(who="member")] == [(0, attempt)]
        scene.turn(ReleaseAll("t", QUEUE_GROUP, "member"))
    assert scene.stands(0) is State.DONE
    assert scene.offsets() == [1]


def test_what_is_said_of_records_that_were_deleted_meanwhile_spoils_nothing_that_is_said_with_it(scene: Scene) -> None:
    scene.take(10, who="member")
    scene.do(Trimmed("t", 4))
    release = Settlement(0, ANY_LEASE, Verb.RELEASE, 0, who="member", end_offset=4)
    accept = Settlement(4, ANY_LEASE, Verb.DONE, 0, who="member", end_offset=10)
    reply = scene.do(Settle("t", QUEUE_GROUP, (release, accept), is_whole=True))
    assert isinstance(reply, Settled) and [outcome.code for outcome in reply.outcomes] == [Code.OK, Code.OK]
    assert (scene.state.base(QUEUE_GROUP), scene.counts().leased) == (10, 0)


def test_what_is_finished_because_its_record_is_gone_is_counted_as_dropped(scene: Scene) -> None:
    first, second = scene.take(2)
    scene.do(Settle("t", QUEUE_GROUP, (Settlement(first.offset, first.lease, Verb.DONE),), is_dropped=True))
    scene.done(second)
    for from_checkpoint in (False, True):
        assert (scene.counts().finished, scene.counts().dropped) == (2, 1)
        scene.load(from_checkpoint=from_checkpoint)


def test_what_nobody_has_seen_is_undone_however_often_and_never_archived(scene: Scene) -> None:
    for _ in range(9):
        (delivery,) = scene.take()
        assert (delivery.offset, delivery.attempt) == (0, 1)
        assert scene.settle_all(Settlement(0, delivery.lease, Verb.UNDO))[0].code is Code.OK
    assert scene.settle_all(Settlement(0, delivery.lease, Verb.DONE))[0].code is Code.LOST
    assert scene.stands(0) is State.READY


def test_a_lapsed_lock_counts_and_at_the_limit_the_message_is_archived(scene: Scene) -> None:
    for attempt in (1, 2, 3):
        assert scene.take()[0].attempt == attempt
        scene.wait(30_000)
    assert scene.stands(0) is State.DONE
    assert scene.state.base(QUEUE_GROUP) == 1
    assert scene.offsets() == [1]


def test_who_is_late_by_a_moment_is_refused_though_nobody_has_noticed(scene: Scene) -> None:
    taken = scene.take()[0]
    scene.now += 30_000
    assert [scene.settle(taken, verb, 1_000).code for verb in Verb] == [Code.LOST] * len(Verb)


def test_who_settles_one_message_twice_in_a_call_hears_of_it(scene: Scene) -> None:
    first, second = scene.take(2)
    items = [Settlement(first.offset, first.lease, verb) for verb in (Verb.EXTEND, Verb.DONE, Verb.RELEASE)]
    items += [Settlement(second.offset, second.lease, verb) for verb in (Verb.RELEASE, Verb.DONE)]
    codes = [outcome.code for outcome in scene.settle_all(*items)]
    assert codes == [Code.OK, Code.OK, Code.GONE, Code.OK, Code.LOST]
    assert (scene.stands(0), scene.stands(1)) == (State.DONE, State.READY)


# Rewinding and losing


def test_a_rewind_gives_finished_messages_again_and_leaves_alone_what_is_in_flight(scene: Scene) -> None:
    scene.send(priority=9)
    taken = scene.take(8)
    for delivery in taken[:6]:
        scene.done(delivery)
    assert scene.turn(Rewind("t", QUEUE_GROUP, 2)).count == 9
    assert scene.state.learned_end == 2
    scene.learn_again()
    assert [(each.offset, each.attempt) for each in scene.take(20)] == [(10, 1), (2, 1), (3, 1), (4, 1), (7, 1), (8, 1), (9, 1)]
    assert scene.done(taken[-1]) is Code.OK
    before = scene.counts()
    scene.load()
    assert scene.counts() == before


def test_messages_that_are_being_learned_of_again_are_not_behind_the_end(scene: Scene) -> None:
    """A group that began at the end, or a second rewind, in that moment: it was told that the log ends where learning had come to."""
    scene.turn(Start("t", "share", EARLIEST))
    assert scene.state.learned_end == 0
    scene.turn(Start("t", "late", LATEST))
    assert scene.turn(Rewind("t", QUEUE_GROUP, 4)).count == 6
    scene.learn_again()
    scene.send()
    assert (scene.state.base("late"), scene.offsets(20, group="late")) == (10, [10])
    assert scene.offsets(20, group="share") == list(range(11))


def test_a_rewind_of_one_group_changes_nothing_for_another(scene: Scene) -> None:
    start(scene, "share", EARLIEST)
    for delivery in scene.take(10):
        scene.done(delivery)
    held = scene.take(4, group="share")
    scene.turn(Rewind("t", QUEUE_GROUP, 0))
    scene.learn_again()
    assert scene.done(held[0], group="share") is Code.OK
    assert scene.offsets(20, group="share") == list(range(4, 10))
    assert scene.offsets(20) == list(range(10))


@pytest.mark.parametrize("to", [-1, 11])
def test_a_rewind_to_nowhere_is_refused(scene: Scene, to: int) -> None:
    assert scene.turn(Rewind("t", QUEUE_GROUP, to)).fault is Fault.INVALID
    assert scene.records == []


def test_what_the_log_has_lost_is_lost_for_all_groups_and_counted(scene: Scene) -> None:
    start(scene, "share", EARLIEST)
    taken = scene.take(2)
    scene.done(taken[0])
    scene.turn(Trimmed("t", 5))
    assert (scene.counts().base, scene.counts().dropped, scene.counts("share").dropped) == (5, 4, 5)
    assert scene.done(taken[1]) is Code.GONE
    assert scene.offsets(20, group="share") == list(range(5, 10))


def test_messages_that_are_learned_behind_a_purge_are_there(scene: Scene) -> None:
    scene.turn(Purge("t", QUEUE_GROUP))
    scene.send(2)
    scene.load()
    assert scene.offsets(5) == [10, 11]


@pytest.mark.invariant("queues.dedup-window")
def test_data_is_held_back_while_an_id_in_it_counts() -> None:
    scene = Scene()
    scene.send(3, dedup="x")
    scene.wait(1)
    scene.done(scene.take()[0])
    assert (scene.counts().base, scene.state.base_of_all) == (3, 0)
    scene.wait(300_000)
    assert scene.take() == []
    assert scene.state.base_of_all == 3
