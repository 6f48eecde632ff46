"""A queue's leader is killed between the append of what its ledger decided and the answer: before its followers have it, or after.

Whoever asked hears that nobody knows. Asked again, the next leader has either carried it out or knows nothing of it, and both are right;
never is a message lost, lent to two, counted wrongly, or at two places.
"""

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from clusters.scene import Scene
from clusters.test_letters import DEAD, JOBS, at, ledger_of, living, owes_nothing, rejected
from clusters.test_queues import begun

from penstock.broker.node import Node
from penstock.broker.queues.calls import Draft, Lent, Order, Outcome, QueueRefusal, Redrive, TaskStatus, Verb
from penstock.partition.partition import Partition
from penstock.simulator.knobs import replaced

pytestmark = pytest.mark.invariant("queues.leader-death-atomic")

LONG_MS = 600_000
APPENDED, COMMITTED = "before its followers have it", "when its followers have it"
both = pytest.mark.parametrize("moment", [APPENDED, COMMITTED])


@pytest.fixture
def cluster() -> Iterator[Scene]:
    with Scene() as scene:
        at(scene, 1, lambda queues: queues.create(DEAD, {"queue.backoff.min.ms": "0"}, replicas=3))
        settings = {"queue.dead.letter": DEAD, "queue.deliveries.max": "5", "queue.backoff.min.ms": "0", "queue.lenient": "false"}
        at(scene, 1, lambda queues: queues.create(JOBS, settings, replicas=3))
        scene.until_available()
        yield scene


class Killer:
    """Kills who leads a queue at its ledger's so manieth append from now on."""

    def __init__(self, cluster: Scene, queue: str, moment: str, nth: int = 1) -> None:
        self.victim = cluster.leads(queue)
        self.has_struck = False
        self._cluster = cluster
        self._companion = ledger_of(cluster, queue).companion
        self._moment = moment
        self._left = nth
        self._end_offset = -1  # Of the fatal append.

    def appended(self, partition: Partition) -> None:
        if partition is self._companion and self._left:
            self._left -= 1
            if not self._left:
                self._end_offset = int(partition.log.end_offset)
                if self._moment == APPENDED:
                    self._strike()

    def advanced(self, partition: Partition, grown_bytes: int) -> None:
        """What is committed has grown; answers leave when their tasks have had a turn."""
        if 0 <= self._end_offset <= partition.high_watermark and not self.has_struck:
            self._strike()

    def _strike(self) -> None:
        self.has_struck = True
        self._cluster.kill(self.victim)

    @contextmanager
    def lies_in_wait(self) -> Iterator[None]:
        """Beside `Node.appended`; leaves when it has struck and another node leads."""
        appended = Node.appended

        def watched(node: Node, partition: Partition) -> None:
            appended(node, partition)
            self.appended(partition)

        if self._moment == COMMITTED:
            self._companion.watchers[self] = None
        with replaced([(Node, "appended", watched)]):
            yield
            self._cluster.until(lambda: self.has_struck)
        self._cluster.until(lambda: all(self._cluster.leader(queue) not in (None, self.victim) for queue in (JOBS, DEAD)))


def lent_to(cluster: Scene, node: int, *, attempt_id: str = "", wait_s: float = 2.0) -> list[Lent]:
    return at(cluster, node, lambda queues: queues.take(JOBS, 10, lease_ms=LONG_MS, wait_s=wait_s, attempt_id=attempt_id))


def bodies(cluster: Scene, node: int, queue: str = DEAD) -> list[bytes]:
    return sorted(each.body or b"" for each in at(cluster, node, lambda queues: queues.peek(queue, count=100)))


def sent(cluster: Scene, node: int, *jobs: bytes) -> None:
    at(cluster, node, lambda queues: queues.send(JOBS, [Draft(body) for body in jobs]))


def settled(cluster: Scene, node: int, verb: Verb, *lent: Lent) -> list[Outcome]:
    orders = [Order(each.handle, verb, 0, "broken") for each in lent]
    return [each.outcome for each in at(cluster, node, lambda queues: queues.settle(JOBS, orders))]


@both
def test_a_lease_that_nobody_was_told_of_is_had_again_or_was_never_given(cluster: Scene, moment: str) -> None:
    sent(cluster, 1, b"1", b"2")
    killer = Killer(cluster, JOBS, moment)
    node = living(cluster, killer.victim)
    with killer.lies_in_wait():
        asked = begun(cluster, node, lambda queues: queues.take(JOBS, 10, lease_ms=LONG_MS, wait_s=5.0, attempt_id="mine"))
    cluster.until(asked.done)
    heard = [] if asked.exception() is not None else asked.result()
    assert isinstance(asked.exception(), QueueRefusal) or heard == [], "nobody knows"
    again = lent_to(cluster, node, attempt_id="mine")
    assert [(each.body, each.attempt) for each in again] == [(b"1", 1), (b"2", 1)], "one delivery, whoever was told of it"
    assert lent_to(cluster, living(cluster, killer.victim, node)) == [], "and nobody else has them"
    assert settled(cluster, node, Verb.DONE, *again) == [Outcome.OK] * 2


@both
def test_a_lease_that_nobody_was_told_of_lapses(cluster: Scene, moment: str) -> None:
    sent(cluster, 1, b"1")
    killer = Killer(cluster, JOBS, moment)
    node = living(cluster, killer.victim)
    with killer.lies_in_wait():
        asked = begun(cluster, node, lambda queues: queues.take(JOBS, 10, lease_ms=8_000))
    cluster.until(asked.done)
    (again,) = lent_to(cluster, node, wait_s=20.0)
    assert again.attempt == (1 if moment == APPENDED else 2)


@pytest.mark.invariant("queues.undo-only-undelivered")
def test_a_worker_whose_node_dies_has_its_messages_alone_when_it_asks_elsewhere() -> None:
    """The leader calls off what the dead node asked for as soon as that is durable. By then the worker has asked for the same again, and
    its second answer has the same leases: messages that were given back under its hands went to others as the same attempt."""
    with Scene(session_timeout_ms=1_000, heartbeat_interval_ms=150) as cluster:
        at(cluster, 1, lambda queues: queues.create(JOBS, {"queue.backoff.min.ms": "0", "min.insync.replicas": "2"}, replicas=3))
        cluster.until_available()
        leader = cluster.leads(JOBS)
        dies = living(cluster, leader)
        lives = living(cluster, leader, dies)
        sent(cluster, leader, b"1", b"2")
        companion, end = ledger_of(cluster, JOBS).companion, ledger_of(cluster, JOBS).companion.log.end_offset
        appended = Node.appended

        def watched(node: Node, partition: Partition) -> None:
            appended(node, partition)
            if partition is companion:
                cluster.kill(dies)

        with replaced([(Node, "appended", watched)]):
            begun(cluster, dies, lambda queues: queues.take(JOBS, 10, lease_ms=LONG_MS, attempt_id="mine"))
            cluster.until(lambda: companion.log.end_offset > end)
        again = begun(cluster, lives, lambda queues: queues.take(JOBS, 10, lease_ms=LONG_MS, wait_s=5.0, attempt_id="mine"))
        cluster.until(again.done)
        assert [(each.body, each.attempt) for each in again.result()] == [(b"1", 1), (b"2", 1)]
        assert lent_to(cluster, lives) == [], "nobody else has them"
        assert settled(cluster, lives, Verb.RELEASE, *again.result()) == [Outcome.OK] * 2
        assert [each.attempt for each in lent_to(cluster, lives)] == [2, 2]


@both
@pytest.mark.parametrize("verb", [Verb.DONE, Verb.RELEASE, Verb.EXTEND])
def test_a_settlement_that_nobody_was_told_of_is_carried_out_once(cluster: Scene, verb: Verb, moment: str) -> None:
    sent(cluster, 1, b"1")
    killer = Killer(cluster, JOBS, moment)
    node = living(cluster, killer.victim)
    (lent,) = lent_to(cluster, node)
    orders = [Order(lent.handle, verb, 20_000 if verb is Verb.EXTEND else 0, "broken")]
    with killer.lies_in_wait():
        asked = begun(cluster, node, lambda queues: queues.settle(JOBS, orders))  # It is asked again by the node itself.
    cluster.until(asked.done)
    (verdict,) = asked.result()
    if moment == APPENDED or verb is Verb.EXTEND:
        assert verdict.outcome is Outcome.OK
    else:
        assert verdict.outcome is (Outcome.GONE if verb is Verb.DONE else Outcome.LOST)
    if verb is Verb.RELEASE:
        (again,) = lent_to(cluster, node)
        assert again.attempt == 2
        (peeked,) = at(cluster, node, lambda queues: queues.peek(JOBS))
        assert [each.reason for each in peeked.history] == ["broken"], "it has failed once"
    else:
        assert lent_to(cluster, node, wait_s=1.0) == []
        assert at(cluster, node, lambda queues: queues.counts(JOBS)).leased == (verb is Verb.EXTEND)


@both
@pytest.mark.parametrize("nth", [1, 2, 3])
def test_a_dead_letter_is_there_once_whichever_of_its_steps_was_the_last(cluster: Scene, nth: int, moment: str) -> None:
    """Its end is recorded, then where it goes, then that it is there."""
    sent(cluster, 1, b"1", b"2")
    killer = Killer(cluster, JOBS, moment, nth)
    node = living(cluster, killer.victim)
    lent = lent_to(cluster, node)
    orders = [Order(each.handle, Verb.REJECT, reason="never") for each in lent]
    killer = Killer(cluster, JOBS, moment, nth)
    with killer.lies_in_wait():
        begun(cluster, node, lambda queues: queues.settle(JOBS, orders))
    until(cluster, lambda: owes_nothing(cluster, JOBS) and len(bodies(cluster, node)) >= 2)
    cluster.start(killer.victim)
    cluster.until_available()
    cluster.run_for(1.0)
    assert bodies(cluster, node) == [b"1", b"2"]
    assert lent_to(cluster, node, wait_s=0.0) == []
    assert at(cluster, node, lambda queues: queues.counts(JOBS)).finished == 2


@both
@pytest.mark.parametrize("nth", [1, 2, 3, 4, 5])
def test_a_letter_is_sent_back_once_whichever_step_of_the_redrive_was_the_last(cluster: Scene, nth: int, moment: str) -> None:
    rejected(cluster, 1, 3)
    cluster.until(lambda: owes_nothing(cluster, JOBS))
    killer = Killer(cluster, DEAD, moment, nth)
    node = living(cluster, killer.victim)
    with killer.lies_in_wait():
        asked = begun(cluster, node, lambda queues: queues.redrive(DEAD, Redrive()))
    until(cluster, lambda: asked.done() and is_over(cluster, node))
    assert asked.exception() is None or isinstance(asked.exception(), QueueRefusal), "nobody knows whether it has begun"
    if not at(cluster, node, lambda queues: queues.tasks(DEAD)):  # Nothing of it has outlived its leader.
        at(cluster, node, lambda queues: queues.redrive(DEAD, Redrive()))
        until(cluster, lambda: is_over(cluster, node))
    cluster.start(killer.victim)
    cluster.until_available()
    cluster.run_for(1.0)
    assert Counter(bodies(cluster, node, JOBS)) == Counter([b"0", b"1", b"2"])
    assert bodies(cluster, node) == []


def until(cluster: Scene, claim: Callable[[], bool]) -> None:
    """Of what has to be asked of nodes."""
    for _ in range(100):
        if claim():
            return
        cluster.run_for(0.2)
    raise AssertionError("waited in vain")


def is_over(cluster: Scene, node: int) -> bool:
    try:
        tasks: list[Any] = at(cluster, node, lambda queues: queues.tasks(DEAD))
    except QueueRefusal:
        return False
    return all(each.status in (TaskStatus.COMPLETED, TaskStatus.FAILED) for each in tasks)
