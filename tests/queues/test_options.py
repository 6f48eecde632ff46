"""What senders may ask for: priorities, delays, a time to live; and fairness between tenants."""

import pytest
from queues.scene import Scene

from penstock.queues.commands import QUEUE_GROUP, Bind, Cancel, Settlement, Unbind, Verb
from penstock.queues.headers import Traits
from penstock.queues.lapsing import LAPSES_MAX
from penstock.queues.message_groups import NOISY_IN_FLIGHT, QUIET_AFTER_MS
from penstock.queues.messages import Kept, Messages
from penstock.queues.picking import PASSED_MAX
from penstock.queues.policy import Policy
from penstock.queues.records import Changed
from penstock.queues.replies import Code
from penstock.queues.state import Marked, Run
from penstock.queues.states import State

DAY_MS = 86_400_000


# Priorities


@pytest.mark.invariant("queues.priority-order")
def test_levels_are_strict_and_kept_in_order() -> None:
    scene = Scene()
    scene.send(2)
    for priority in (9, 0, 5, 9):
        scene.send(priority=priority)
    assert scene.offsets(10) == [2, 5, 4, 0, 1, 3]


@pytest.mark.invariant("queues.priority-order", "queues.options-kept")
def test_a_message_keeps_its_priority_when_it_is_tried_again() -> None:
    scene = Scene()
    scene.send(3)
    scene.send(priority=9)
    scene.release(scene.take()[0], 1_000)
    scene.load(from_checkpoint=True)
    assert scene.offsets() == [0]
    scene.wait(1_000)
    assert scene.offsets(2) == [3, 1]


def test_the_starvation_guard_lets_the_first_in_line_through_now_and_then() -> None:
    scene = Scene(Policy(starvation_every=4))
    scene.send(2)
    scene.send(8, priority=9)
    assert scene.offsets(10) == [2, 3, 4, 0, 5, 6, 7, 1, 8, 9]


def test_without_priorities_all_are_equal_and_the_policy_may_change() -> None:
    scene = Scene(Policy(has_priorities=False))
    scene.send(2)
    scene.send(priority=9)
    assert scene.offsets() == [0]
    scene.policy = Policy()
    assert scene.offsets(5) == [2, 1]


# Delays


@pytest.mark.invariant("queues.no-early-delivery")
@pytest.mark.parametrize("delay_ms", [1, 999, 1_000, 59_999, 600_000, 3_600_001, DAY_MS, 400 * DAY_MS])
@pytest.mark.parametrize("is_loaded", [False, True])
def test_a_delayed_message_is_never_early_and_never_late(delay_ms: int, is_loaded: bool) -> None:
    scene = Scene()
    scene.send(deliver_at=scene.now + delay_ms)
    if is_loaded:
        scene.load(from_checkpoint=True)
    assert scene.stands(0) is State.DELAYED
    scene.wait(delay_ms - 1)
    assert scene.take() == []
    due_ms = scene.state.ready_at(QUEUE_GROUP, scene.now)
    assert due_ms is not None and scene.now < due_ms <= scene.now + 1
    scene.wait(1)
    assert scene.offsets() == [0]


def test_ready_at_comes_nearer_and_never_spins() -> None:
    scene = Scene()
    due_ms = scene.now + 40 * DAY_MS + 12_345
    scene.send(deliver_at=due_ms)
    looks = 0
    while (next_ms := scene.state.ready_at(QUEUE_GROUP, scene.now)) != 0:
        assert next_ms is not None and scene.now < next_ms <= due_ms
        scene.wait(next_ms - scene.now)
        looks += 1
    assert scene.now == due_ms and looks <= 7


def test_a_delayed_message_can_be_cancelled_and_one_in_flight_cannot() -> None:
    scene = Scene()
    scene.send(deliver_at=scene.now + DAY_MS)
    scene.send(2)
    taken = scene.take()[0]
    assert scene.turn(Cancel("t", QUEUE_GROUP, (0, 1, 2, 2, 99, -1))).count == 2
    scene.load(from_checkpoint=True)
    scene.wait(DAY_MS)
    assert scene.stands(0) is State.DONE
    assert scene.offsets(5) == [1], "its lease has lapsed"
    assert scene.done(taken) is Code.OK


def test_a_queues_own_delay_holds_for_those_who_say_nothing() -> None:
    scene = Scene(Policy(delay_ms=5_000))
    scene.send(2)
    scene.send(priority=9)
    scene.send(deliver_at=scene.now + 1)
    scene.wait(1)
    assert scene.offsets(5) == [3]
    scene.wait(4_999)
    assert scene.offsets(5) == [2, 0, 1]


@pytest.mark.invariant("queues.stuck-message-stalls-nothing")
def test_one_stuck_and_one_delayed_message_stall_nobody() -> None:
    scene = Scene()
    scene.send(2)
    scene.send(deliver_at=scene.now + 1_000 * DAY_MS)
    stuck = scene.take(lease_ms=40_000_000)[0]
    for _ in range(50):
        scene.send(1_000)
        scene.settle_all(*(Settlement(each.offset, each.lease, Verb.DONE) for each in scene.take(1_000)))
    assert scene.counts().finished == 50_000
    assert scene.counts().base == 0
    assert scene.done(stuck) is Code.OK


# Time to live


@pytest.mark.invariant("queues.expired-not-delivered")
def test_a_message_whose_time_is_up_is_given_to_nobody_and_finished() -> None:
    scene = Scene()
    scene.send(expires_at=scene.now + 1_000)
    scene.send(deliver_at=scene.now + 5_000, expires_at=scene.now + 1_000)
    scene.now += 1_000  # Nobody has noticed yet.
    assert scene.take() == []
    scene.wait(0)
    assert scene.counts().base == 2


@pytest.mark.parametrize("policy", [Policy(), Policy(is_fifo=True), Policy(is_fair=True)], ids=["plain", "fifo", "fair"])
@pytest.mark.parametrize("has_one_in_front", [False, True])
def test_very_many_that_have_expired_are_passed_over_piece_by_piece(
    policy: Policy, has_one_in_front: bool, monkeypatch: pytest.MonkeyPatch
) -> None:  # fmt: skip
    scene, looked_at = Scene(policy), 0
    first = [scene.send(group="a")] if has_one_in_front else []
    scene.send(20 * PASSED_MAX, expires_at=scene.now + 1_000, group="a")
    last = scene.send(group="a")
    options = Messages.options

    def counting(messages: Messages, offset: int) -> Kept:
        nonlocal looked_at
        looked_at += 1
        return options(messages, offset)

    monkeypatch.setattr(Messages, "options", counting)
    scene.now += 1_000
    found: list[int] = []
    for _ in range(100):
        ready_at = scene.state.ready_at(QUEUE_GROUP, scene.now)
        assert ready_at in (0, scene.now + 1) or len(found) == len(first) + 1, "it is to be asked again at once"
        for each in scene.take(10):
            scene.done(each)
            found.append(each.offset)
        scene.now += 1
    assert found == [*first, last]
    assert looked_at < 20 * PASSED_MAX * 10, "each of them is looked at a few times, not at every call"
    scene.wait(0)
    assert scene.counts().base == scene.end


def test_a_piece_of_what_time_causes_is_bounded() -> None:
    scene = Scene(Policy(ttl_ms=5_000, dead_letter="dead"))
    scene.send(3 * LAPSES_MAX, expires_at=scene.now + 1_000)
    scene.send(3 * LAPSES_MAX, priority=9)
    scene.now += 10_000
    finished = 0
    while scene.counts().base < scene.end:
        (record,) = scene.state.lapse(scene.instant(), scene.now).records
        assert isinstance(record, Changed)
        scene.state.replay(record)
        finished += 1
        assert sum(end - start for start, end in record.done) <= 2 * LAPSES_MAX
    assert finished >= 3


def test_a_message_that_was_sent_off_and_comes_back_too_late_has_expired() -> None:
    scene = Scene()
    scene.send(expires_at=scene.now + 1_000)
    scene.turn(Bind("t", QUEUE_GROUP, bytes(16), 0, (0,), sent_off=True))
    scene.wait(2_000)
    assert scene.stands(0) is State.BURYING
    scene.turn(Unbind("t", QUEUE_GROUP, (0,)))
    assert scene.stands(0) is State.DONE


@pytest.mark.invariant("queues.expired-not-delivered")
def test_a_message_that_expires_under_a_lease_is_left_to_its_holder() -> None:
    scene = Scene(Policy(lease_ms=10_000))
    scene.send(2, expires_at=scene.now + 1_000)
    first, second = scene.take(2)
    scene.wait(2_000)
    assert scene.done(first) is Code.OK
    assert scene.stands(1) is State.LEASED
    scene.settle(second, Verb.RELEASE, 0)
    assert scene.stands(1) is State.DONE


@pytest.mark.parametrize("is_plain", [False, True])
def test_a_message_from_the_future_does_not_keep_those_behind_it(is_plain: bool) -> None:
    scene = Scene(Policy(ttl_ms=60_000))
    late_ms = scene.now + 3_600_000
    scene.end = 1
    scene.state.learn([Run(0, 1, late_ms) if is_plain else Marked(0, Traits(written_ms=late_ms))], 1, scene.now)
    scene.send(3)
    scene.wait(59_999)
    assert scene.counts().ready == 4
    scene.wait(1)
    assert scene.counts().base == 4


@pytest.mark.invariant("queues.expired-not-delivered")
def test_a_queue_forgets_messages_after_its_time_to_live() -> None:
    scene = Scene(Policy(ttl_ms=60_000, lease_ms=1_000_000))
    scene.send(3_000)
    held = scene.take(2)
    scene.wait(30_000)
    scene.send(2)
    scene.wait(30_000)
    assert (scene.counts().leased, scene.counts().ready) == (2, 2)
    assert scene.offsets(1) == [3_000]
    scene.release(held[0])
    assert scene.stands(0) is State.DONE, "it comes back too late"
    scene.wait(40_000)
    assert (scene.counts().leased, scene.counts().ready) == (2, 0)


# Fairness


def busy(scene: Scene) -> None:
    """One tenant with much in line and thirty in flight, and two with little."""
    scene.send(200, group="noisy")
    scene.take(NOISY_IN_FLIGHT)
    scene.send(2, group="quiet")
    scene.send(1, group="shy")
    scene.send(1)


def test_quiet_tenants_are_served_before_a_noisy_one() -> None:
    scene = Scene(Policy(is_fair=True))
    busy(scene)
    assert scene.offsets(6) == [200, 201, 202, 203, 30, 31]


def test_without_fairness_it_is_first_come_first_served() -> None:
    scene = Scene(Policy())
    busy(scene)
    assert scene.offsets(2) == [30, 31]


def test_a_tenant_with_less_than_thirty_in_flight_is_not_noisy() -> None:
    scene = Scene(Policy(is_fair=True))
    scene.send(200, group="much")
    scene.take(NOISY_IN_FLIGHT - 1)
    scene.send(group="quiet")
    assert scene.offsets() == [29]


def test_a_tenant_with_a_tenth_of_all_in_flight_is_not_noisy() -> None:
    scene = Scene(Policy(is_fair=True))
    scene.send(9 * NOISY_IN_FLIGHT)
    scene.send(100, group="much")
    scene.take(10 * NOISY_IN_FLIGHT)  # Those without a group are a tenant each.
    scene.send(group="quiet")
    assert scene.offsets() == [10 * NOISY_IN_FLIGHT]


def test_of_two_noisy_tenants_the_one_with_less_in_flight_goes_first() -> None:
    scene = Scene(Policy(is_fair=True))
    scene.send(50, group="a")
    scene.take(50)
    scene.send(60, group="b")
    scene.take(40)
    scene.send(3, group="a")
    assert scene.offsets(3) == [90, 91, 92], "b has forty in flight, a fifty"


def test_a_noisy_tenant_is_forgiven_when_it_has_sent_nothing_for_a_while() -> None:
    scene = Scene(Policy(is_fair=True, lease_ms=10 * QUIET_AFTER_MS))
    scene.send(200, group="noisy")
    held = scene.take(NOISY_IN_FLIGHT)
    scene.send(9, group="quiet")
    assert scene.offsets() == [200]
    scene.done(held[0])
    assert scene.offsets() == [201], "fewer than thirty are in flight, but it is noisy still"
    scene.now += QUIET_AFTER_MS
    assert scene.offsets() == [30]


def test_a_tenant_stays_noisy_until_nothing_of_it_is_in_line() -> None:
    scene = Scene(Policy(is_fair=True))
    scene.send(32, group="noisy")
    held = scene.take(NOISY_IN_FLIGHT)
    scene.send(1, group="quiet")
    assert scene.offsets() == [32]
    for delivery in held:
        scene.done(delivery)
    scene.send(1, group="quiet")
    assert scene.offsets() == [33], "it was noisy and has two in line"
    assert scene.offsets(2) == [30, 31]
    scene.send(1, group="noisy")
    scene.send(1, group="quiet")
    assert scene.offsets() == [34]


def test_a_tenant_that_takes_most_of_the_workers_time_is_noisy() -> None:
    scene = Scene(Policy(is_fair=True))
    scene.send(5, group="slow")
    scene.send(5, group="quick")
    slow = scene.take(2)
    scene.wait(29_000)
    scene.done(slow[0])
    assert scene.offsets() == [2], "not much time was spent yet"
    scene.wait(500)
    scene.send(1, group="slow")
    scene.done(slow[1])
    assert scene.offsets() == [5]


def test_a_fair_queue_locks_nothing_and_orders_tenants_by_age() -> None:
    scene = Scene(Policy(is_fair=True))
    for group in ("a", "b", "a", "c"):
        scene.send(group=group)
    assert scene.offsets() == [0]
    assert scene.offsets(5) == [1, 2, 3]
