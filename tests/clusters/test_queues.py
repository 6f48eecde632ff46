"""Queues in a cluster of three: any node answers, leases and ids outlive their leader, and long polls cross nodes."""

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import replace
from typing import Any, TypeVar

import pytest
from clusters.scene import Scene

from penstock.broker.queues.calls import Draft, Lent, Order, Outcome, QueueRefusal, Sent, Verb
from penstock.broker.queues.facade import Queues
from penstock.wire.murmur2 import partition_of_key

T = TypeVar("T")
QUEUE = "jobs"
LONG_MS = 600_000


def at(cluster: Scene, node: int, work: Callable[[Queues], Coroutine[Any, Any, T]], within: float = 30.0) -> T:
    """Asks the queues of a node."""
    return cluster.world.call(cluster.host(node), lambda env: work(cluster.node(node).queues), within)


def begun(cluster: Scene, node: int, work: Callable[[Queues], Coroutine[Any, Any, T]]) -> "asyncio.Task[T]":
    process = cluster.world.host(cluster.host(node)).process
    assert process is not None
    return cluster.world.loop.create_task(work(cluster.node(node).queues), context=process.context.copy())


def made(cluster: Scene, name: str = QUEUE, *, partitions: int = 1, replicas: int = 3, **settings: str) -> None:
    wanted = {key.replace("_", "."): value for key, value in settings.items()}
    at(cluster, 1, lambda queues: queues.create(name, wanted, partitions=partitions, replicas=replicas))
    cluster.until_available()


def sent(cluster: Scene, node: int, *drafts: Draft) -> list[Sent]:
    results = at(cluster, node, lambda queues: queues.send(QUEUE, drafts))
    assert not [each for each in results if isinstance(each, QueueRefusal)]
    return [each for each in results if isinstance(each, Sent)]


def sent_to(cluster: Scene, leader: int) -> None:
    """One message, to a partition that this node leads."""
    partition = next(index for index in range(3) if cluster.leads(QUEUE, index) == leader)
    key = next(b"%d" % number for number in range(100) if partition_of_key(b"%d" % number, 3) == partition)
    sent(cluster, leader, Draft(b"job", key=key))


def taken(cluster: Scene, node: int, count: int = 10, *, wait_s: float = 5.0, lease_ms: int = LONG_MS) -> list[Lent]:
    return at(cluster, node, lambda queues: queues.take(QUEUE, count, wait_s=wait_s, lease_ms=lease_ms))


def done(cluster: Scene, node: int, *lent: Lent) -> list[Outcome]:
    verdicts = at(cluster, node, lambda queues: queues.settle(QUEUE, [Order(each.handle, Verb.DONE) for each in lent]))
    assert [each.refusal for each in verdicts] == [None] * len(lent)
    return [each.outcome for each in verdicts]


def lead_elsewhere(cluster: Scene) -> int:
    """Kills the leader, waits for another; returns who died."""
    leader = cluster.leads(QUEUE)
    cluster.kill(leader)
    cluster.until(lambda: cluster.leader(QUEUE) not in (None, leader))
    return leader


def others(cluster: Scene) -> list[int]:
    return [node for node in (1, 2, 3) if node != cluster.leads(QUEUE)]


@pytest.mark.invariant("queues.state-survives-failover")
def test_any_node_sends_lends_and_settles() -> None:
    with Scene() as cluster:
        made(cluster)
        leader, (one, other) = cluster.leads(QUEUE), others(cluster)
        (first,) = sent(cluster, one, Draft(b"1", key=b"k", headers=(("h", None),), priority=7))
        sent(cluster, leader, Draft(b"2"))
        lent = taken(cluster, other)
        assert (lent[0].body, lent[0].id) == (b"1", first.id)
        assert (lent[0].key, dict(lent[0].headers)["h"]) == (b"k", None)
        assert at(cluster, one, lambda queues: queues.counts(QUEUE)).leased == 2
        assert done(cluster, one, lent[0]) == [Outcome.OK]
        found = at(cluster, other, lambda queues: queues.find(QUEUE, first.id))
        assert found is not None and found.state == "finished"
        (peeked,) = at(cluster, one, lambda queues: queues.peek(QUEUE))
        assert (peeked.body, peeked.state) == (b"2", "leased")
        assert [each.outcome for each in at(cluster, one, lambda queues: queues.cancel(QUEUE, [first.id]))] == [Outcome.GONE]


@pytest.mark.invariant("queues.state-survives-failover")
def test_a_failover_keeps_leases_ids_and_what_is_done() -> None:
    with Scene() as cluster:
        made(cluster)
        sent(cluster, 1, *(Draft(b"%d" % number, dedup=f"id-{number}") for number in range(6)))
        lent = taken(cluster, 2, 4)
        assert done(cluster, 3, *lent[:2]) == [Outcome.OK] * 2
        died = lead_elsewhere(cluster)
        node = others(cluster)[0] if others(cluster)[0] != died else others(cluster)[1]
        (again,) = sent(cluster, node, Draft(b"0", dedup="id-0"))
        assert again.is_duplicate
        assert [each.body for each in taken(cluster, node)] == [b"4", b"5"]  # Nothing that is lent, nothing that is done.
        assert done(cluster, node, *lent) == [Outcome.GONE, Outcome.GONE, Outcome.OK, Outcome.OK]
        cluster.start(died)
        cluster.until_available()
        assert at(cluster, died, lambda queues: queues.counts(QUEUE)).finished == 4


@pytest.mark.invariant("queues.no-lease-after-hangup")
def test_a_long_poll_at_another_node_is_served_and_one_that_is_called_off_takes_nothing() -> None:
    with Scene() as cluster:
        made(cluster)
        node, queue = others(cluster)[0], cluster.node(cluster.leads(QUEUE))
        ledger = queue.ledgers.find(queue.queues.describe(QUEUE).topic_id, 0)
        assert ledger is not None

        async def poll(queues: Queues) -> list[bytes]:
            return [each.body for each in await queues.take(QUEUE, 1, wait_s=30.0)]

        def begin() -> Any:
            host = cluster.world.hosts[cluster.host(node)]
            assert host.process is not None
            return cluster.world.loop.create_task(poll(cluster.node(node).queues), context=host.process.context.copy())

        polling = begin()
        cluster.until(lambda: ledger.waiting("$queue") == 1)
        polling.cancel()
        cluster.until(lambda: ledger.waiting("$queue") == 0)
        polling = begin()
        cluster.until(lambda: ledger.waiting("$queue") == 1)
        sent(cluster, node, Draft(b"1"))
        cluster.until(polling.done, 5.0)
        assert polling.result() == [b"1"]


def test_a_queue_over_several_leaders_is_polled_as_one() -> None:
    with Scene() as cluster:
        made(cluster, partitions=3)
        assert len({cluster.leads(QUEUE, partition) for partition in range(3)}) > 1
        sent(cluster, 1, *(Draft(b"%d" % number, key=b"%d" % number) for number in range(12)))
        found: list[bytes] = []
        while len(found) < 12:
            found += [each.body for each in taken(cluster, 1, 5)]
        assert sorted(found) == sorted(b"%d" % number for number in range(12))
        assert at(cluster, 2, lambda queues: queues.take(QUEUE, 5, wait_s=1.0)) == []


def test_who_asks_again_gets_the_same_from_whichever_partition_and_node() -> None:
    with Scene() as cluster:
        made(cluster, partitions=3)
        leaders = {cluster.leads(QUEUE, index) for index in range(3)}
        for node in sorted(leaders):
            sent_to(cluster, node)

        def attempt(node: int, *, is_again: bool = True) -> list[str]:
            options = {"lease_ms": LONG_MS, "attempt_id": "the same", "is_again": is_again}
            return [each.id for each in at(cluster, node, lambda queues: queues.take(QUEUE, 1, **options))]

        first = attempt(1, is_again=False)
        assert len(first) == 1
        assert [attempt(node) for node in (1, 2, 3, 3, 2, 1)] == [first] * 6
        (dead,) = {cluster.leads(QUEUE, index) for index in range(3) if first[0] in _ids(cluster, index)}
        cluster.kill(dead)
        other = next(node for node in (1, 2, 3) if node != dead)
        assert attempt(other) == first, "the partition has a leader again, and is waited for"
        assert at(cluster, other, lambda queues: queues.counts(QUEUE)).leased == 1


def _ids(cluster: Scene, index: int) -> list[str]:
    """Of all messages in a partition."""
    peeked = at(cluster, 1, lambda queues: queues.peek(QUEUE, count=100))
    return [each.id for each in peeked if each.partition == index]


@pytest.mark.invariant("queues.dead-letter-once")
def test_dead_letters_reach_a_queue_that_another_node_leads_once_across_a_failover() -> None:
    with Scene() as cluster:
        made(cluster, "dead")
        made(cluster, queue_dead_letter="dead", queue_deliveries_max="1", queue_backoff_min_ms="0")
        sent(cluster, 1, *(Draft(b"%d" % number) for number in range(5)))
        lent = taken(cluster, 1)
        orders = [Order(each.handle, Verb.RELEASE, 0, "broken") for each in lent]
        at(cluster, cluster.leads(QUEUE), lambda queues: queues.settle(QUEUE, orders))
        died = lead_elsewhere(cluster)  # While they are on their way.
        node = others(cluster)[0] if others(cluster)[0] != died else others(cluster)[1]

        async def all_there(queues: Queues) -> list[bytes]:
            while (await queues.counts(QUEUE)).burying:
                pass
            return [each.body or b"" for each in await queues.peek("dead", count=100)]

        assert sorted(at(cluster, node, all_there)) == [b"%d" % number for number in range(5)]


def test_what_another_node_lends_to_somebody_who_was_just_served_goes_back() -> None:
    """A long poll waits at all leaders. One answers while what another lends is on its way: that one's message is lent to nobody."""
    with Scene() as cluster:
        made(cluster, partitions=3, replicas=1, queue_deliveries_max="1")
        waiting = begun(cluster, 1, lambda queues: queues.take(QUEUE, 1, wait_s=5.0, lease_ms=LONG_MS))
        cluster.world.run_for(0.5)
        link = cluster.world.network.link(cluster.host(3), cluster.host(1))
        link.quality = replace(link.quality, delay_seconds=0.3)
        sent_to(cluster, 3)
        sent_to(cluster, 1)
        cluster.world.run_for(2.0)
        assert len(waiting.result()) == 1
        counts = at(cluster, 2, lambda queues: queues.counts(QUEUE))
        assert (counts.leased, counts.ready) == (1, 1)


def test_any_node_rewinds_a_queue_to_a_message() -> None:
    with Scene() as cluster:
        made(cluster, queue_retention="keep")
        one, other = others(cluster)
        first, second = sent(cluster, one, Draft(b"1"), Draft(b"2"))
        done(cluster, one, *taken(cluster, one))
        assert at(cluster, other, lambda queues: queues.rewind_to_id(QUEUE, second.id)) == 1
        assert [each.id for each in taken(cluster, one)] == [second.id]
        assert at(cluster, other, lambda queues: queues.rewind_to(QUEUE, 0, first.offset)) == 2
