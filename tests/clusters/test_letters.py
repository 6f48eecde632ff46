"""Moves between queues in a cluster: once, however late and by whomever the last step is done; and redrives that outlive their runner."""

from collections.abc import Callable, Coroutine, Iterator
from typing import Any, TypeVar

import pytest
from clusters.scene import Scene

from penstock.broker.queues.calls import Draft, Order, Peeked, QueueRefusal, Redrive, RedriveTask, TaskStatus, Verb
from penstock.broker.queues.facade import Queues
from penstock.broker.queues.leading import QueuePartition
from penstock.cluster.commands import AddPartitions, MorePartitions
from penstock.queues.state import LedgerState

pytestmark = pytest.mark.invariant("queues.message-moved-once")

T = TypeVar("T")
JOBS, DEAD = "jobs", "jobs-dead"
DAYS_SECONDS = 3 * 24 * 3_600  # Longer than any dedup window.


@pytest.fixture
def cluster() -> Iterator[Scene]:
    with Scene() as scene:
        yield scene


def at(cluster: Scene, node: int, work: Callable[[Queues], Coroutine[Any, Any, T]], within: float = 60.0) -> T:
    return cluster.world.call(cluster.host(node), lambda env: work(cluster.node(node).queues), within)


def made(cluster: Scene, *, dead_partitions: int = 1) -> None:
    at(cluster, 1, lambda queues: queues.create(DEAD, {}, partitions=dead_partitions, replicas=3))
    at(cluster, 1, lambda queues: queues.create(JOBS, {"queue.dead.letter": DEAD}, replicas=3))
    cluster.until_available()


def rejected(cluster: Scene, node: int, count: int) -> None:
    """So many messages are sent, and can never succeed."""
    at(cluster, node, lambda queues: queues.send(JOBS, [Draft(b"%d" % number) for number in range(count)]))
    left = count
    while left:
        lent = at(cluster, node, lambda queues: queues.take(JOBS, 100, wait_s=5.0))
        settle(cluster, node, [Order(each.handle, Verb.REJECT, reason="never") for each in lent])
        left -= len(lent)


def settle(cluster: Scene, node: int, orders: list[Order]) -> None:
    at(cluster, node, lambda queues: queues.settle(JOBS, orders))


def ledger_of(cluster: Scene, queue: str) -> QueuePartition:
    node = cluster.node(cluster.leads(queue))
    ledger = node.ledgers.find(node.image.topics[queue].topic_id, 0)
    assert ledger is not None
    return ledger


def state_of(cluster: Scene, queue: str) -> LedgerState | None:
    """None: nobody leads it, or its ledger is being loaded."""
    leader = cluster.leader(queue)
    node = None if leader is None else cluster.cluster.node(cluster.host(leader))
    ledger = None if node is None else node.ledgers.find(node.image.topics[queue].topic_id, 0)
    return None if ledger is None else ledger.coordinator.state


def owes_nothing(cluster: Scene, queue: str) -> bool:
    state = state_of(cluster, queue)
    return state is not None and not [*state.owed()]


def known(cluster: Scene, queue: str) -> int:
    """How many messages its leader knows of."""
    state = state_of(cluster, queue)
    return 0 if state is None else state.learned_end


def letters(cluster: Scene, node: int, queue: str = DEAD) -> list[Peeked]:
    return at(cluster, node, lambda queues: queues.peek(queue, count=1_000))


def bodies(cluster: Scene, node: int, queue: str = DEAD) -> list[bytes]:
    return sorted(each.body or b"" for each in letters(cluster, node, queue))


def days_pass(cluster: Scene) -> None:
    for host in cluster.world.hosts.values():
        host.wall.jump(DAYS_SECONDS)


def cut_after_the_copy(cluster: Scene) -> None:
    """From the moment in which copies of letters are durable, their source's ledger answers nobody."""
    source, dead = ledger_of(cluster, JOBS), ledger_of(cluster, DEAD).data

    class Cut:
        def advanced(self, partition: object, grown_bytes: int) -> None:
            source.coordinator.log_failed("this node goes no further")

    dead.watchers[Cut()] = None


def living(cluster: Scene, *dead: int) -> int:
    return next(node for node in (1, 2, 3) if node not in dead)


def test_a_letter_is_there_once_when_the_last_step_comes_days_after_the_copy(cluster: Scene) -> None:
    made(cluster)
    cut_after_the_copy(cluster)
    rejected(cluster, living(cluster, cluster.leads(JOBS)), 3)
    cluster.until(lambda: ledger_of(cluster, DEAD).data.high_watermark == 3)
    leader = cluster.leads(JOBS)
    cluster.kill(leader)
    days_pass(cluster)
    cluster.until(lambda: cluster.leader(JOBS) not in (None, leader))
    node = living(cluster, leader)
    cluster.until(lambda: owes_nothing(cluster, JOBS))
    assert [each.body for each in letters(cluster, node)] == [b"0", b"1", b"2"]
    assert at(cluster, node, lambda queues: queues.counts(JOBS)).finished == 3


def test_a_move_that_was_tried_once_is_forgotten_where_it_ended_when_its_source_owes_it_no_more(cluster: Scene) -> None:
    made(cluster)
    rejected(cluster, 1, 2)
    cluster.until(lambda: known(cluster, DEAD) == 2 and owes_nothing(cluster, JOBS))
    cluster.until(lambda: not len(ledger_of(cluster, DEAD).state.moves), within=5.0)


def test_a_move_that_was_tried_twice_is_remembered_for_a_while(cluster: Scene) -> None:
    made(cluster)
    cut_after_the_copy(cluster)
    leader = cluster.leads(JOBS)
    rejected(cluster, living(cluster, leader), 2)
    cluster.until(lambda: ledger_of(cluster, DEAD).data.high_watermark == 2)
    cluster.kill(leader)
    cluster.until(lambda: cluster.leader(JOBS) not in (None, leader) and cluster.leader(DEAD) not in (None, leader))
    cluster.until(lambda: owes_nothing(cluster, JOBS))
    cluster.run_for(3.0)
    assert len(ledger_of(cluster, DEAD).state.moves) == 2, "calls of the first try may still be on their way"
    days_pass(cluster)
    cluster.until(lambda: not len(ledger_of(cluster, DEAD).state.moves))


def test_a_move_is_remembered_while_its_source_cannot_be_asked_and_forgotten_with_it(cluster: Scene) -> None:
    made(cluster)
    cut_after_the_copy(cluster)
    rejected(cluster, living(cluster, cluster.leads(JOBS)), 1)
    cluster.until(lambda: len(ledger_of(cluster, DEAD).state.moves) == 1)
    days_pass(cluster)
    cluster.run_for(20.0)
    assert len(ledger_of(cluster, DEAD).state.moves) == 1
    at(cluster, living(cluster, cluster.leads(JOBS)), lambda queues: queues.delete(JOBS))
    days_pass(cluster)
    cluster.until(lambda: not len(ledger_of(cluster, DEAD).state.moves))


def test_a_letter_stays_bound_to_its_queue_when_the_setting_changes_and_partitions_grow(cluster: Scene) -> None:
    made(cluster, dead_partitions=1)
    at(cluster, 1, lambda queues: queues.create("elsewhere", {}, replicas=3))
    cut_after_the_copy(cluster)
    leader = cluster.leads(JOBS)
    node = living(cluster, leader)
    rejected(cluster, node, 8)
    cluster.until(lambda: ledger_of(cluster, DEAD).data.high_watermark == 8)
    at(cluster, node, lambda queues: queues.configure(JOBS, {"queue.dead.letter": "elsewhere"}))
    at(cluster, node, lambda queues: cluster.node(node).submit(AddPartitions((MorePartitions(DEAD, 4),))))
    cluster.kill(leader)
    cluster.until(lambda: cluster.leader(JOBS) not in (None, leader))
    cluster.until(lambda: owes_nothing(cluster, JOBS))
    assert bodies(cluster, node) == [b"%d" % number for number in range(8)]
    assert letters(cluster, node, "elsewhere") == []


def test_a_partition_that_cannot_be_reached_keeps_no_letter_from_another(cluster: Scene) -> None:
    made(cluster, dead_partitions=2)
    node = cluster.node(cluster.leads(DEAD, 1))
    away = node.ledgers.find(node.image.topics[DEAD].topic_id, 1)
    assert away is not None
    away.coordinator.log_failed("it answers nobody")
    rejected(cluster, 1, 300)
    cluster.until(lambda: known(cluster, DEAD) > 0)
    cluster.run_for(60.0)
    state = state_of(cluster, JOBS)
    assert state is not None
    waiting = {letter.partition for letter in state.owed()}
    assert (waiting, known(cluster, DEAD) + len([*state.owed()])) == ({1}, 300)


# Redrives


def task_of(cluster: Scene, node: int) -> RedriveTask:
    (task,) = at(cluster, node, lambda queues: queues.tasks(DEAD))
    return task


def dead_letters(cluster: Scene, count: int) -> None:
    rejected(cluster, 1, count)
    cluster.until(lambda: owes_nothing(cluster, JOBS))
    cluster.run_for(0.1)


def test_a_redrive_outlives_its_runner_and_every_node_tells_of_it(cluster: Scene) -> None:
    made(cluster)
    dead_letters(cluster, 60)
    runner = cluster.leads(DEAD)
    asked = living(cluster, runner)
    begun = at(cluster, asked, lambda queues: queues.redrive(DEAD, Redrive(per_second_max=20)))
    with pytest.raises(QueueRefusal, match="being moved already"):
        at(cluster, living(cluster, asked), lambda queues: queues.redrive(DEAD, Redrive()))
    cluster.until(lambda: known(cluster, JOBS) >= 70)
    cluster.kill(runner)
    cluster.until(lambda: cluster.leader(DEAD) not in (None, runner) and cluster.leader(JOBS) not in (None, runner))
    node = living(cluster, runner)
    assert (task_of(cluster, node).handle, task_of(cluster, node).status) == (begun.handle, TaskStatus.RUNNING)
    cluster.until(lambda: known(cluster, JOBS) >= 120, within=60.0)
    cluster.run_for(2.0)
    ended = task_of(cluster, living(cluster, runner, node))
    assert (ended.status, ended.moved <= 60, ended.by_target == {JOBS: ended.moved}) == (TaskStatus.COMPLETED, True, True)
    assert bodies(cluster, node, JOBS) == sorted(b"%d" % number for number in range(60)), "none is lost, and none is there twice"
    assert letters(cluster, node) == []


def test_any_node_cancels_a_redrive(cluster: Scene) -> None:
    made(cluster)
    dead_letters(cluster, 30)
    node = living(cluster, cluster.leads(DEAD))
    begun = at(cluster, node, lambda queues: queues.redrive(DEAD, Redrive(per_second_max=10)))
    cluster.run_for(1.0)
    assert at(cluster, node, lambda queues: queues.cancel_task(begun.handle)).status is TaskStatus.CANCELLING
    cluster.run_for(2.0)
    ended = task_of(cluster, node)
    assert ended.status is TaskStatus.CANCELLED
    assert 0 < ended.moved < 30
    assert (len(letters(cluster, node, JOBS)), len(letters(cluster, node))) == (ended.moved, 30 - ended.moved)


def test_letters_that_were_sent_off_to_a_queue_that_is_deleted_are_ready_again(cluster: Scene) -> None:
    made(cluster)
    at(cluster, 1, lambda queues: queues.create("elsewhere", {}, replicas=3))
    cluster.until_available()
    dead_letters(cluster, 2)
    source, elsewhere = ledger_of(cluster, DEAD), ledger_of(cluster, "elsewhere").data

    class Cut:
        def advanced(self, partition: object, grown_bytes: int) -> None:
            source.coordinator.log_failed("this node goes no further")

    elsewhere.watchers[Cut()] = None
    leader = cluster.leads(DEAD)
    node = living(cluster, leader)
    at(cluster, node, lambda queues: queues.redrive(DEAD, Redrive(target="elsewhere")))
    cluster.until(lambda: elsewhere.high_watermark == 2)
    at(cluster, node, lambda queues: queues.delete("elsewhere"))
    cluster.kill(leader)
    cluster.until(lambda: cluster.leader(DEAD) not in (None, leader))
    cluster.until(lambda: owes_nothing(cluster, DEAD))
    assert [each.state for each in letters(cluster, node)] == ["ready", "ready"]
