"""A follower's log that is cut: what its node knows of producers fits what is left, however the cutting is interrupted."""

import asyncio
from typing import Any

import pytest
from clusters.scene import TOPIC, Scene

from penstock.broker.replica_fetching import ReplicaFetching
from penstock.cluster.commands import ElectionKind, ElectLeaders, Reassignment, ReassignPartitions
from penstock.log.log import Log
from penstock.partition.partition import Partition
from penstock.vocabulary import NodeId, Offset

PRODUCER = 7


def held(cluster: Scene, node: int) -> Partition:
    partition = cluster.node(node).partitions.find(TOPIC, 0)
    assert partition is not None
    return partition


def test_a_stop_in_order_while_the_cut_is_flushed_leaves_no_phantom_of_what_was_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise the next start, which believes the checkpoint, would call a batch that is gone a duplicate."""
    with Scene(seed=3) as cluster:
        cut_later = ReplicaFetching.cut_later

        def slow_first(self: ReplicaFetching, partition: Partition, cut: Any) -> None:
            if partition.topic == TOPIC:
                cluster.slow_disk(1, 15.0)
            cut_later(self, partition, cut)

        monkeypatch.setattr(ReplicaFetching, "cut_later", slow_first)
        cluster.create(min_insync_replicas=2)
        cluster.lead(1)
        cluster.produce(b"a", producer=(PRODUCER, 0))
        cluster.cut(1)
        partition = held(cluster, 1)
        cluster.begin_at(1, b"never").add_done_callback(lambda task: task.exception())
        cluster.until(lambda: cluster.leader() not in (None, 1) and partition.log.end_offset == 2)
        cluster.produce(b"b")
        cluster.heal()
        cluster.until(lambda: partition.log.end_offset == 1, within=60)
        assert partition.log.owner_is_void
        cluster.slow_disk(1, 0)
        cluster.stop(1, within=60)
        monkeypatch.undo()
        cluster.start(1)
        cluster.until_available()
        assert held(cluster, 1).producers.snapshot()[:8] == held(cluster, 2).producers.snapshot()[:8]
        cluster.lead(1)
        cluster.produce(b"a", producer=(PRODUCER, 0))
        assert list(cluster.read().values()).count(b"a") == 1
        cluster.check()


@pytest.mark.parametrize("ending", ["stop", "checkpoint and kill"])
def test_producers_that_are_being_remembered_count_only_when_all_of_them_are(monkeypatch: pytest.MonkeyPatch, ending: str) -> None:
    is_slow, is_begun = [False], [False]
    read_later = Log.read_later

    async def read_slowly(self: Log, *arguments: Any, **options: Any) -> Any:
        if is_slow[0] and self.owner_is_void:
            is_begun[0] = True
            await asyncio.sleep(8)
        return await read_later(self, *arguments, **options)

    monkeypatch.setattr(Log, "read_later", read_slowly)
    with Scene(seed=3) as cluster:
        cluster.create(min_insync_replicas=2)
        cluster.lead(1)
        cluster.produce(b"a", producer=(PRODUCER, 0))
        cluster.cut(1)
        cluster.begin_at(1, b"never").add_done_callback(lambda task: task.exception())
        cluster.until(lambda: cluster.leader() not in (None, 1))
        is_slow[0] = True
        cluster.run_for(0.5)
        cluster.produce(b"b")
        cluster.heal()
        cluster.until(lambda: is_begun[0])
        if ending == "stop":
            cluster.stop(1)
        else:
            node, process = cluster.node(1), cluster.world.hosts[cluster.host(1)].process
            assert process is not None
            cluster.world.loop.call_soon(
                lambda: node.spawn(node._housekeeper.checkpoint(held(cluster, 1))), context=process.context.copy()
            )
            cluster.run_for(3)
            cluster.kill(1)
        is_slow[0] = False
        cluster.run_for(1)
        cluster.start(1)
        cluster.until_available()
        cluster.lead(1)
        cluster.produce(b"a", producer=(PRODUCER, 0))
        assert list(cluster.read().values()).count(b"a") == 1, "a batch that was sent twice is there once"
        cluster.check()


def test_a_follower_of_an_idle_partition_comes_back_though_leadership_went_away_and_back_at_once() -> None:
    with Scene() as cluster:
        cluster.create(min_insync_replicas=2)
        cluster.create("other", partitions=6)  # So that everybody has a session with everybody.
        cluster.produce(b"a")
        cluster.run_for(3)
        controller = cluster.controller()
        node, process = cluster.node(controller), cluster.world.hosts[cluster.host(controller)].process
        state = cluster.cluster.state(TOPIC, 0)
        assert state is not None and process is not None
        there, back = (state.replicas[1], state.replicas[0], state.replicas[2]), state.replicas
        done: list[object] = []

        async def give_orders() -> None:
            for replicas in (there, back):
                done.append(await node.submit(ReassignPartitions((Reassignment(TOPIC, 0, tuple(map(NodeId, replicas))),))))
                done.append(await node.submit(ElectLeaders(ElectionKind.PREFERRED, ((TOPIC, 0),))))

        cluster.world.loop.call_soon(lambda: node.spawn(give_orders()), context=process.context.copy())
        cluster.until(lambda: len(done) == 4)
        cluster.until(lambda: cluster.in_sync() == {1, 2, 3} and cluster.end_offset(within=5.0) == 1, within=20)
        cluster.check()


def test_a_follower_that_lost_what_was_committed_shows_nothing_in_its_place_before_that_is_committed() -> None:
    """Where records are acknowledged before they are flushed, a power cut may take them; the watermark of old does not count any more."""
    with Scene(seed=2) as cluster:
        cluster.create(min_insync_replicas=1, flush="os")
        for number in range(5):
            cluster.produce(b"%d" % number)
        cluster.run_for(2)
        follower = held(cluster, cluster.followers()[0])
        assert follower.high_watermark == 5
        follower.log.end_offset = Offset(3)  # As after a cut below the watermark.
        follower.log_was_cut()
        assert follower.high_watermark == 3
        follower.log.end_offset = Offset(5)
        cluster.promised.clear()
