"""Moves to another queue: bound to one place, named by a lease, taken back where they cannot be; and remembered where they end."""

import pytest
from queues.scene import Scene

from penstock.queues.commands import QUEUE_GROUP, Bind, Buried, Note, Purge, Rewind, Unbind, Verb
from penstock.queues.ids import group_hash
from penstock.queues.moves import Moves
from penstock.queues.policy import Policy
from penstock.queues.replies import Done, Fault
from penstock.queues.states import State

pytestmark = pytest.mark.invariant("queues.message-moved-once")

ELSEWHERE, OTHER = b"e" * 16, b"o" * 16
HASH = group_hash(QUEUE_GROUP)


def bound(scene: Scene, *offsets: int, topic_id: bytes = ELSEWHERE, sent_off: bool = False) -> int:
    return scene.turn(Bind("t", QUEUE_GROUP, topic_id, 3, offsets, sent_off)).count


def rejected(scene: Scene) -> None:
    for delivery in scene.take(10):
        scene.settle(delivery, Verb.REJECT, reason="never")


def dead(count: int = 1) -> Scene:
    scene = Scene(Policy(dead_letter="dead"))
    scene.send(count)
    rejected(scene)
    return scene


@pytest.mark.parametrize("is_restored", [False, True])
def test_a_letter_is_bound_to_one_place_and_that_outlives_the_ledger(is_restored: bool) -> None:
    scene = dead(2)
    assert bound(scene, 0, 5) == 1, "only what is being buried goes anywhere"
    scene.load(from_checkpoint=is_restored)
    first, second = scene.state.owed()
    assert (first.topic_id, first.partition, first.is_sent_off, second.topic_id) == (ELSEWHERE, 3, False, b"")
    assert bound(scene, 0, topic_id=OTHER) == 1, "a place that is gone is left for another"
    assert next(scene.state.owed()).topic_id == OTHER
    scene.turn(Buried("t", QUEUE_GROUP, (0,)))
    assert [each.offset for each in scene.state.owed()] == [1]


@pytest.mark.parametrize("is_restored", [False, True])
def test_a_message_that_is_sent_off_is_nobodys_and_may_come_back(is_restored: bool) -> None:
    scene = Scene()
    scene.send(3)
    (held,) = scene.take()
    assert bound(scene, 0, 1, 1, 7, sent_off=True) == 1, "neither what somebody has nor what is not there"
    scene.load(from_checkpoint=is_restored)
    (letter,) = scene.state.owed()
    assert (letter.offset, letter.is_sent_off, letter.lease > held.lease) == (1, True, True)
    assert scene.offsets(10) == [2]
    assert scene.turn(Unbind("t", QUEUE_GROUP, (0, 1, 1))).count == 1
    (back,) = scene.take(10)
    assert (back.offset, back.attempt, back.first_taken_ms, back.lease > letter.lease) == (1, 1, scene.now, True)
    assert not list(scene.state.owed())


def test_a_message_in_a_group_of_a_fifo_queue_is_sent_off_and_comes_back_in_its_place() -> None:
    scene = Scene(Policy(is_fifo=True))
    scene.send(3, group="g")
    assert bound(scene, 0, sent_off=True) == 1
    assert scene.offsets(1) == [1], "the others of its group go on"
    scene.turn(Unbind("t", QUEUE_GROUP, (0,)))
    assert scene.offsets(10) == [0], "it is before the one that somebody has"


def test_a_move_is_owed_until_it_is_made_and_the_next_one_of_the_message_is_another() -> None:
    scene = dead()
    lease = next(scene.state.owed()).lease
    assert scene.state.is_owed(HASH, 0, lease)
    assert not scene.state.is_owed(HASH + 1, 0, lease)
    assert not scene.state.is_owed(HASH, 0, lease + 1)
    scene.turn(Buried("t", QUEUE_GROUP, (0,)))
    assert not scene.state.is_owed(HASH, 0, lease)
    scene.turn(Rewind("t", QUEUE_GROUP, 0))
    scene.learn_again()
    rejected(scene)
    assert next(scene.state.owed()).lease > lease


def test_where_a_message_came_from_is_known_after_a_purge_a_checkpoint_and_any_time() -> None:
    scene = Scene(Policy(dedup_ms=1_000))
    scene.send(moved="a.1")
    scene.send(moved="b.2")
    scene.wait(100 * 24 * 3_600_000)
    scene.turn(Purge("t", QUEUE_GROUP))
    scene.load(from_checkpoint=True)
    assert [scene.state.find_moved(source) for source in (b"a.1", b"b.2", b"c.3")] == [0, 1, None]
    assert scene.state.base_of_all == 0, "its header is needed while it counts"
    scene.state.moves.forget(b"a.1")
    assert scene.state.base_of_all == 1
    scene.load(from_checkpoint=True)
    assert scene.state.find_moved(b"a.1") is None
    scene.load()
    assert scene.state.find_moved(b"a.1") == 0, "learned again from the log, and asked about again"


def test_sources_are_asked_about_in_turns() -> None:
    moves = Moves()
    for number in range(4):
        moves.note(b"%d" % number, number, 100 * number)
    assert moves.noted_by(200, 10) == [b"0", b"1", b"2"]
    assert moves.noted_by(200, 2) == [b"0", b"1"]
    moves.ask_later(b"0", 400)
    moves.forget(b"1")
    moves.note(b"2", 9, 900)
    assert (moves.noted_by(400, 10), moves.find(b"2"), moves.first_offset) == ([b"2", b"3", b"0"], 2, 0)
    moves.forget_from(2)
    assert moves.noted_by(1_000, 10) == [b"0"]


@pytest.mark.parametrize("is_restored", [False, True])
def test_notes_are_kept_with_the_ledger(is_restored: bool) -> None:
    scene = Scene()
    scene.turn(Note("t", "one", b"1"))
    scene.turn(Note("t", "two", b"2"))
    scene.turn(Note("t", "one", b"3"))
    scene.turn(Note("t", "two", b""))
    scene.load(from_checkpoint=is_restored)
    assert scene.state.notes == {"one": b"3"}
    for number in range(99):
        scene.turn(Note("t", f"n{number}", b"x"))
    assert scene.turn(Note("t", "more", b"x")) == Done(fault=Fault.TOO_MANY_NOTES)
    assert scene.turn(Note("t", "", b"x")) == Done(fault=Fault.INVALID)


@pytest.mark.parametrize("is_restored", [False, True])
def test_a_purge_that_is_too_soon_after_the_last_one_is_refused(is_restored: bool) -> None:
    scene = Scene()
    scene.send(2)
    scene.turn(Purge("t", QUEUE_GROUP, scene.now - 60_000))
    scene.load(from_checkpoint=is_restored)
    scene.send()
    assert scene.turn(Purge("t", QUEUE_GROUP, scene.now - 60_000)) == Done(fault=Fault.TOO_SOON)
    assert scene.stands(2) is State.READY
    scene.wait(60_000)
    assert scene.turn(Purge("t", QUEUE_GROUP, scene.now - 60_000)).count == 1
    scene.send()
    scene.now -= 86_400_000  # The clock was wrong, and is put right.
    assert scene.turn(Purge("t", QUEUE_GROUP, scene.now - 60_000)).count == 1
