"""The delay of a queue whose messages ask for none, and what becomes of it when it is changed."""

import pytest
from queues.scene import Scene

from penstock.queues.commands import QUEUE_GROUP, Cancel, Purge, Rewind, Start
from penstock.queues.policy import Policy
from penstock.queues.states import State

pytestmark = pytest.mark.invariant("queues.changed-delay")

WAYS = pytest.mark.parametrize("how", ["running", "loaded", "from a checkpoint"])


def fifo(delay_ms: int) -> Scene:
    return Scene(Policy(is_fifo=True, delay_ms=delay_ms))


def go_on(scene: Scene, how: str) -> None:
    if how != "running":
        scene.load(from_checkpoint=how == "from a checkpoint")


@WAYS
def test_where_the_delay_of_a_fifo_queue_is_shortened_those_who_wait_come_at_once_and_first(how: str) -> None:
    scene = fifo(3_000)
    scene.send(2, group="g")
    scene.configure(delay_ms=0)
    scene.send(group="g")
    go_on(scene, how)
    assert scene.offsets(5) == [0, 1, 2]


@WAYS
def test_where_it_is_lengthened_those_who_wait_wait_longer_and_those_who_came_stay(how: str) -> None:
    scene = fifo(1_000)
    scene.send(group="g")
    scene.wait(1_000)
    scene.send(group="g")
    assert scene.counts().ready == 1
    scene.configure(delay_ms=5_000)
    scene.send(group="g")
    go_on(scene, how)
    scene.wait(4_999)
    assert (scene.offsets(5), scene.counts().delayed) == ([0], 2)
    scene.wait(1)
    assert scene.counts().delayed == 0
    assert scene.offsets(5) == [], "the first one is in flight"


@WAYS
def test_any_number_of_changes_leaves_the_order_of_a_group(how: str) -> None:
    scene = fifo(0)
    for delay_ms in (4_000, 0, 500, 9_000, 100, 0):
        scene.configure(delay_ms=delay_ms)
        scene.send(2, group="g")
        go_on(scene, how)
        scene.wait(50)
    scene.wait(10_000)
    assert scene.offsets(20) == list(range(12))


def test_a_clock_that_is_set_back_lets_nobody_overtake() -> None:
    scene = fifo(3_000)
    scene.send(group="g")
    scene.now -= 2_000  # Another leader's.
    scene.send(group="g")
    scene.wait(3_000)
    assert scene.offsets(5) == []
    scene.wait(2_000)
    assert scene.offsets(5) == [0, 1]


def test_who_waits_in_order_may_be_cancelled_purged_or_begun_with_anew() -> None:
    scene = fifo(3_000)
    scene.send(3, group="g")
    scene.turn(Cancel("t", QUEUE_GROUP, (0,)))
    scene.configure(delay_ms=1_000)
    scene.wait(1_000)
    assert scene.offsets(5) == [1, 2]
    scene.send(2, group="h")
    scene.turn(Purge("t", QUEUE_GROUP))
    scene.send(group="h")
    assert (scene.counts().delayed, scene.state.messages.common_delay.first(99)) == (1, 5)
    scene.turn(Start("t", "share", 3))
    scene.learn_again()
    scene.wait(1_000)
    assert scene.offsets(5) == [5]
    assert scene.offsets(5, group="share") == [3, 4, 5]


def test_messages_with_a_time_of_their_own_go_by_it_in_a_fifo_queue_too() -> None:
    scene = fifo(3_000)
    scene.send(group="g")
    scene.send(group="g", deliver_at=scene.now + 1_000)
    scene.configure(delay_ms=60_000)
    scene.wait(1_000)
    assert scene.offsets(5) == [1]


@WAYS
def test_a_delay_of_a_standard_queue_holds_for_what_is_sent_later_and_for_nothing_else(how: str) -> None:
    scene = Scene()
    scene.send(2)
    scene.configure(delay_ms=5_000)
    scene.send(2)
    scene.send(priority=9)
    scene.configure(delay_ms=0)
    scene.send(2)
    go_on(scene, how)
    assert [scene.stands(offset) for offset in range(7)] == [State.READY] * 2 + [State.DELAYED] * 3 + [State.READY] * 2
    scene.wait(5_000)
    assert scene.counts().ready == 7


def test_what_is_learned_anew_has_the_delay_that_it_had() -> None:
    scene = Scene()
    scene.send(1)
    scene.configure(delay_ms=5_000)
    scene.send(1)
    scene.turn(Rewind("t", QUEUE_GROUP, 0))
    scene.learn_again()
    assert scene.offsets(5) == [0]


def test_a_delay_that_was_not_noted_does_not_hold_yet() -> None:
    """The ledger could not record it: it goes by the one that it knows, before a load and after it."""
    scene = fifo(3_000)
    scene.send(group="g")
    scene.policy = Policy(is_fifo=True)
    scene.send(group="g")
    assert scene.offsets(5) == []
    scene.load()
    assert (scene.offsets(5), scene.counts().delayed) == ([], 2)
    scene.configure()
    assert scene.offsets(5) == [0, 1]


def test_changes_beyond_a_hundred_are_forgotten_from_the_oldest_on() -> None:
    scene = Scene()
    for number in range(150):
        scene.configure(delay_ms=1_000 + number)
        scene.send(1)
    told = scene.state.messages.common_delay.told()
    assert (len(told), told[0], told[-1]) == (100, (50, 1_050), (149, 1_149))


def test_who_waits_in_order_takes_sixteen_bytes_beside_its_options_and_gives_them_back() -> None:
    scene = fifo(600_000)
    for _ in range(10):
        scene.send(1_000)
    assert scene.state.messages.common_delay.held_bytes == 10_000 * 16
    scene.wait(600_000)
    for _ in range(6):
        scene.counts()
    assert scene.counts().ready == 10_000
    assert scene.state.messages.common_delay.held_bytes < 10_000


@pytest.mark.parametrize("options", [{"group": "a"}, {}])
def test_what_somebody_holds_does_not_wait_when_it_is_learned_of_anew(options: dict[str, str]) -> None:
    scene = fifo(10_000)
    scene.send(1, **options)
    scene.turn(Purge("t", QUEUE_GROUP))
    scene.configure(delay_ms=0)
    scene.send(2, **options)
    assert len(scene.take(1)) == 1
    scene.turn(Rewind("t", QUEUE_GROUP, 0))
    scene.learn_again()
    live = scene.counts()
    assert (live.leased, live.ready + live.delayed) == (1, 2)
    scene.load()
    assert scene.counts() == live
