"""Everything has a bound, and who is refused has changed nothing."""

import gc
from random import Random

import pytest
from queues.scene import Scene

from penstock.queues.commands import (
    ATTEMPT_ID_BYTES_MAX,
    COUNT_MAX,
    QUEUE_GROUP,
    RANGE_MAX,
    Buried,
    Cancel,
    Purge,
    Settle,
    Settlement,
    Start,
    Take,
    Verb,
)
from penstock.queues.dedup import DRAWN_MAX, DedupWindow
from penstock.queues.headers import TIME_MS_MAX, Traits
from penstock.queues.policy import LEASE_MS_MAX, Policy
from penstock.queues.records import encode
from penstock.queues.replies import Code, Fault
from penstock.queues.state import LedgerState, Marked, Run
from penstock.queues.turning import GROUPS_MAX
from penstock.vocabulary import Instant

TOO_MANY = tuple(Settlement(at, 1, Verb.DONE) for at in range(COUNT_MAX + 1))

REFUSED = [
    Take("t", QUEUE_GROUP, 0, None, "w"),
    Take("t", QUEUE_GROUP, COUNT_MAX + 1, None, "w"),
    Take("t", QUEUE_GROUP, 1, -1, "w"),
    Take("t", QUEUE_GROUP, 1, LEASE_MS_MAX + 1, "w"),
    Take("t", QUEUE_GROUP, 1, None, "w", b"x" * (ATTEMPT_ID_BYTES_MAX + 1)),
    Settle("t", QUEUE_GROUP, ()),
    Settle("t", QUEUE_GROUP, TOO_MANY),
    Settle("t", QUEUE_GROUP, (Settlement(0, 1, Verb.DONE, end_offset=RANGE_MAX + 1),)),
    Settle("t", QUEUE_GROUP, (Settlement(0, 1, Verb.RELEASE, -1),)),
    Settle("t", QUEUE_GROUP, (Settlement(0, 1, Verb.RELEASE, TIME_MS_MAX),)),
    Cancel("t", QUEUE_GROUP, tuple(range(COUNT_MAX + 1))),
    Buried("t", QUEUE_GROUP, tuple(range(RANGE_MAX + 1))),
    Start("t", "", 0),
    Start("t", "x" * 250, 0),
    Start("t", "x", -3),
]


@pytest.mark.parametrize("command", REFUSED, ids=lambda command: type(command).__name__)
def test_what_is_beyond_a_bound_is_refused_whole(command: Take | Settle) -> None:
    scene = Scene()
    scene.send(5)
    assert scene.do(command).fault is Fault.INVALID
    assert scene.records == []


def test_a_partition_has_a_bounded_number_of_groups() -> None:
    scene = Scene()
    for number in range(GROUPS_MAX - 1):
        assert scene.turn(Start("t", f"group-{number}", 0)).fault is Fault.NONE
    assert scene.turn(Start("t", "one more", 0)).fault is Fault.TOO_MANY_GROUPS
    assert scene.turn(Start("t", "group-0", 0)).fault is Fault.NONE, "it is there already"


def test_a_lease_lasts_twelve_hours_at_most_with_all_extensions() -> None:
    scene = Scene()
    scene.send()
    taken = scene.take(lease_ms=LEASE_MS_MAX)[0]
    scene.wait(1_000)
    outcome = scene.settle(taken, Verb.EXTEND, LEASE_MS_MAX)
    assert (outcome.code, outcome.when_ms) == (Code.TOO_LONG, taken.deadline_ms)
    assert scene.settle(taken, Verb.EXTEND, LEASE_MS_MAX - 1_000).code is Code.OK


def test_a_queue_that_is_full_says_so() -> None:
    scene = Scene(Policy(ready_max=10, dedup_max=3))
    scene.send(8)
    assert scene.state.room(8, is_dedup=False) == 2
    assert scene.state.room(9, is_dedup=False) == 1, "what was appended counts before it is learned of"
    assert scene.state.room(12, is_dedup=False) == 0
    scene.done(scene.take()[0])
    assert scene.state.room(8, is_dedup=False) == scene.state.room(8, is_dedup=True) == 3
    scene.send(dedup="x")
    scene.done(scene.take()[0])
    assert [scene.state.room(9, is_dedup=each) for each in (False, True)] == [3, 2]


def test_of_ids_that_clients_draw_the_newest_count_and_chosen_ones_are_not_displaced() -> None:
    window, until = DedupWindow(), 1_000
    window.note(b"chosen", 0, until)
    drawn = [b"%sdrawn %d" % (b"group\0" * (number % 2), number) for number in range(DRAWN_MAX + 2)]
    for number, key in enumerate(drawn):
        window.note(key, number + 1, until)
        window.note(key, number + 1, until)  # It is learned of when it was expected.
    assert len(window) == DRAWN_MAX + 1
    assert [window.find(key, 0) for key in (drawn[0], drawn[1], drawn[2], drawn[-1], b"chosen")] == [None, None, 3, DRAWN_MAX + 2, 0]


def test_one_record_of_the_largest_decision_fits_into_a_batch() -> None:
    scene = Scene()
    scene.send(COUNT_MAX)
    taken = scene.take(COUNT_MAX)
    items = [Settlement(each.offset, each.lease, Verb.RELEASE, 0, f"{each.offset:0200}", f"{each.offset:064}") for each in taken]
    scene.settle_all(*items)
    assert max(len(encode(record)[1]) for record in scene.records) < 400_000


@pytest.mark.invariant("queues.no-gc-objects")
def test_no_message_has_an_object_that_the_garbage_collector_looks_at() -> None:
    state = LedgerState(lambda _: Policy(), Random(1).random)
    state.begin(Instant(0), 1_000)
    messages = 20_000
    gc.collect()
    before = len(gc.get_objects())
    state.learn([Run(0, messages, 1_000)], messages)
    for _ in range(messages // 1_000):
        for record in state.decide(Take("t", QUEUE_GROUP, 1_000, None, "w"), Instant(0), 1_000).records:
            state.replay(record)
        del record
    gc.collect()
    assert state.counts(QUEUE_GROUP, 1_000).leased == messages
    assert len(gc.get_objects()) - before < 200


def test_an_id_from_the_future_counts_for_one_window_and_holds_up_nobody() -> None:
    scene = Scene()
    late_ms = scene.now + 10_000 * 86_400_000
    scene.state.learn([Marked(0, Traits(dedup=b"x", written_ms=late_ms)), Marked(1, Traits(dedup=b"y", written_ms=scene.now))], 2)
    scene.take()
    assert scene.state.dedup(b"x", scene.now + 299_999) == 0
    scene.wait(300_000)
    scene.take()
    assert (scene.state.dedup(b"x", scene.now), scene.state.dedup(b"y", scene.now)) == (None, None)


def test_what_is_known_of_when_messages_were_written_does_not_grow_for_ever() -> None:
    scene = Scene()
    for _ in range(500):
        scene.send()
        scene.done(scene.take()[0])
        scene.wait(20_000)
    scene.state.lapse(scene.instant(), scene.now)
    assert len(scene.state.messages.marks()) < 200


def test_a_purge_behind_very_many_messages_takes_nothing() -> None:
    scene = Scene()
    scene.send(10**12)
    scene.turn(Purge("t", QUEUE_GROUP))
    scene.send(2)
    assert scene.offsets(5) == [10**12, 10**12 + 1]
    scene.load(from_checkpoint=True)
    assert scene.counts().leased == 2
