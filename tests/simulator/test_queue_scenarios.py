"""Queues on one node whose disk and clock misbehave, step by step; some of it was found by seeds."""

from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

import pytest
from simulator.scene import Scene

from penstock.broker.queues.calls import Draft, Lent, Order, Outcome, Sent, State, Verb
from penstock.broker.queues.facade import Queues
from penstock.simulator.workloads.stage import NODE

pytestmark = pytest.mark.invariant(
    "queues.no-message-lost",
    "queues.no-early-delivery",
    "queues.lease-expires",
    "queues.pause-purge-rewind",
)

T = TypeVar("T")
QUEUE = "jobs"
LONG_MS = 3_600_000


class Work:
    """A queue of a scene's node."""

    def __init__(self, scene: Scene, **settings: str) -> None:
        self.scene = scene
        wanted = {name.replace("_", "."): value for name, value in settings.items()}
        self.at(lambda queues: queues.create(QUEUE, wanted))

    def at(self, work: Callable[[Queues], Coroutine[Any, Any, T]]) -> T:
        return self.scene.world.call(NODE, lambda env: work(self.scene.node.queues))

    def send(self, *drafts: Draft) -> list[Sent]:
        return [each for each in self.at(lambda queues: queues.send(QUEUE, drafts)) if isinstance(each, Sent)]

    def take(self, count: int = 10, *, lease_ms: int = LONG_MS, wait_s: float = 0.0) -> list[Lent]:
        return self.at(lambda queues: queues.take(QUEUE, count, lease_ms=lease_ms, wait_s=wait_s))

    def settle(self, *lent: Lent, verb: Verb = Verb.DONE, delay_ms: int | None = None) -> list[Outcome]:
        verdicts = self.at(lambda queues: queues.settle(QUEUE, [Order(each.handle, verb, delay_ms) for each in lent]))
        return [each.outcome for each in verdicts]

    def jump(self, seconds: float) -> None:
        self.scene.world.jump_clock(NODE, seconds)


def bodies(lent: list[Lent]) -> list[bytes]:
    return [each.body for each in lent]


def test_messages_that_cannot_be_read_for_once_are_not_taken_for_lost() -> None:
    """The node came up over a log that it could not read. Its ledger took the messages for lost, and lent from the beginning."""
    with Scene() as scene:
        work = Work(scene)
        work.send(Draft(b"one"), Draft(b"two"))
        (held,) = work.take(1)
        assert work.settle(held) == [Outcome.OK]
        topic_id = scene.node.queues.describe(QUEUE).topic_id
        scene.kill()
        scene.disk.fail_next_read_where(lambda path: path.startswith(f"topics/{topic_id.hex()}/0/"))
        scene.start()
        assert any("was offline" in ending for ending in scene.process.endings)
        assert bodies(work.take()) == [b"two"]


def test_a_power_cut_keeps_leases_failures_and_delays() -> None:
    with Scene() as scene:
        work = Work(scene, queue_deliveries_max="3", queue_backoff_min_ms="0")
        work.send(*(Draft(b"%d" % number) for number in range(4)), Draft(b"late", delay_ms=5_000))
        lent = work.take(3)
        assert work.settle(lent[0]) == [Outcome.OK]
        assert work.settle(lent[1], verb=Verb.RELEASE) == [Outcome.OK]
        scene.power_cut()
        scene.start()
        assert [(each.body, each.attempt) for each in work.take()] == [(b"1", 2), (b"3", 1)]
        assert work.settle(lent[2]) == [Outcome.OK]
        assert bodies(work.take(wait_s=10.0)) == [b"late"]


def test_a_clock_that_is_set_back_ends_no_lease_and_lets_nothing_out_early() -> None:
    with Scene() as scene:
        work = Work(scene)
        work.send(Draft(b"held"), Draft(b"late", delay_ms=2_000))
        (held,) = work.take(lease_ms=1_000)
        work.jump(-3_600.0)
        scene.run_for(5.0)
        assert work.take() == []
        assert work.settle(held, verb=Verb.EXTEND, delay_ms=1_000) == [Outcome.OK]
        scene.run_for(2.0)
        assert bodies(work.take()) == [b"held"]
        work.jump(3_600.0)
        assert bodies(work.take(wait_s=5.0)) == [b"late"]


def test_a_clock_that_is_set_forward_ends_leases_at_once_and_counts_them() -> None:
    with Scene() as scene:
        work = Work(scene, queue_lenient="false", queue_backoff_min_ms="0")
        work.send(Draft(b"held"))
        (held,) = work.take(lease_ms=60_000)
        work.jump(3_600.0)
        (again,) = work.take(wait_s=5.0)
        assert (again.body, again.attempt) == (b"held", 2)
        assert work.settle(held) == [Outcome.LOST]
        assert work.settle(again) == [Outcome.OK]


def test_a_purge_and_a_pause_hold_over_a_kill() -> None:
    with Scene() as scene:
        work = Work(scene)
        work.send(*(Draft(b"%d" % number) for number in range(5)))
        (held, _) = work.take(2)
        work.at(lambda queues: queues.purge(QUEUE))
        work.at(lambda queues: queues.pause(QUEUE))
        (after,) = work.send(Draft(b"after"))
        scene.kill()
        scene.start()
        assert work.take(wait_s=1.0) == []
        assert work.settle(held) == [Outcome.GONE]
        found = work.at(lambda queues: queues.find(QUEUE, after.id))
        assert found is not None and found.state is State.READY
        work.at(lambda queues: queues.resume(QUEUE))
        assert bodies(work.take(wait_s=5.0)) == [b"after"]


def test_a_rewind_during_takes_lends_everything_again_but_what_is_held() -> None:
    with Scene() as scene:
        work = Work(scene, queue_retention="keep")
        work.send(*(Draft(b"%d" % number) for number in range(6)))
        lent = work.take(4)
        assert work.settle(*lent[:2]) == [Outcome.OK] * 2
        work.at(lambda queues: queues.rewind(QUEUE, to_ms=0))
        assert sorted(bodies(work.take(2))) == [b"0", b"1"]
        scene.power_cut()
        scene.start()
        assert work.settle(lent[2]) == [Outcome.OK]
        assert bodies(work.take()) == [b"4", b"5"]
        assert work.settle(lent[3]) == [Outcome.OK]
