"""`penstock cluster rebalance` in virtual time: what it does, what it leaves alone, and that it can be interrupted."""

import asyncio
from collections import Counter
from dataclasses import replace
from typing import Any

import pytest
from clusters.scene import TOPIC, Scene

from penstock.cli.cluster_picture import Picture, take_picture
from penstock.cli.cluster_rebalance import even_out, taking_part
from penstock.cli.faults import Fault
from penstock.cluster.image import ClusterImage
from penstock.cluster.topic_names import companion_name
from penstock.peers.cluster import ClusterNode, DescribedCluster, Moving, PartitionDescription, TopicDescription
from penstock.vocabulary import Address, NodeId, TopicId, TopicPartition

FOUR = ("broker,controller", "broker,controller", "broker,controller", "broker")


def rebalance(scene: Scene, nodes: list[int] | None = None, **options: Any) -> None:
    chosen = {"is_internal_fixed": False, "throttle": None, "execute": True} | options
    scene.do(lambda client: even_out(client, nodes, **chosen), within=300.0)


def picture_of(scene: Scene) -> Picture:
    return scene.do(take_picture)


def replicas_by_node(scene: Scene) -> Counter[int]:
    return Counter(node for each in picture_of(scene).partitions() for node in each.state.replicas)


def image(scene: Scene) -> ClusterImage:
    return scene.node(scene.controller()).image


def leaders(scene: Scene) -> Counter[int]:
    return Counter(int(state.leader) for _, _, state in image(scene).each_partition())


def until_away(scene: Scene, node: int) -> None:
    scene.until(lambda: not image(scene).nodes[NodeId(node)].is_live)


def crowded(scene: Scene) -> None:
    """Everything is on nodes 1 and 2, where node 1 leads; one topic is a queue."""
    for name in (TOPIC, "queue"):
        scene.do(lambda client, name=name: client.create_topic(name, assignments=[(1, 2)] * 4))
    scene.do(lambda client: client.create_topic("jobs", assignments=[(1, 2)] * 2, config={"queue.enabled": "true"}))
    for partition in range(4):
        scene.produce(bytes(1_000), partition=partition)


def test_a_plan_that_gives_more_to_a_full_disk_is_refused_and_names_the_others() -> None:
    with Scene(FOUR, leader_imbalance_seconds=3_600) as scene:
        crowded(scene)
        disk = scene.world.hosts[scene.host(3)].disk
        disk.capacity_bytes -= disk.free_bytes() - (300 << 20)
        with pytest.raises(Fault, match="the disk of node 3 is nearly full") as refused:
            rebalance(scene)
        assert "--nodes 1,2,4" in refused.value.next_step
        assert replicas_by_node(scene) == {1: 12, 2: 12}
        rebalance(scene, [1, 2, 4])
        assert replicas_by_node(scene) == {1: 8, 2: 8, 4: 8}


def test_replicas_and_leaders_are_spread_over_all_brokers_and_ledgers_go_along(capsys: pytest.CaptureFixture[str]) -> None:
    with Scene(FOUR, leader_imbalance_seconds=3_600) as scene:
        crowded(scene)
        rebalance(scene, execute=False)
        said = capsys.readouterr().out
        assert "nothing was changed; add --execute to do it" in said
        assert "12 -> 6" in said and "0 -> 6" in said and "12 -> 3" in said
        assert replicas_by_node(scene) == {1: 12, 2: 12}
        rebalance(scene)
        assert replicas_by_node(scene) == {1: 6, 2: 6, 3: 6, 4: 6}
        scene.until(lambda: leaders(scene) == {1: 3, 2: 3, 3: 3, 4: 3})
        jobs = scene.cluster.state("jobs", 0)
        topics = {topic.name: topic for topic in picture_of(scene).topics}
        assert jobs is not None
        assert topics[companion_name(topics["jobs"].topic_id)].partitions[0].replicas == tuple(map(int, jobs.replicas))
        capsys.readouterr()
        rebalance(scene)
        assert capsys.readouterr().out == "replicas and preferred leaders are as even as they can be\n"
        scene.check()


def test_one_that_is_interrupted_is_begun_again_where_it_was(capsys: pytest.CaptureFixture[str]) -> None:
    with Scene(FOUR, replica_fetch_bytes=100) as scene:
        crowded(scene)
        for partition in (0, 1, 2, 3) * 5:
            scene.produce(bytes(1_000), partition=partition)
        first = scene.begin(lambda client: even_out(client, None, is_internal_fixed=False, throttle=500, execute=True))
        scene.until(lambda: any(state.is_reassigning for _, _, state in image(scene).each_partition()))
        planned = picture_of(scene).targets()
        first.cancel()
        scene.until(first.done)
        with pytest.raises(asyncio.CancelledError):
            first.result()
        capsys.readouterr()
        rebalance(scene, execute=False)
        moving, last = capsys.readouterr().out.splitlines()
        assert moving.endswith("partitions are on their way already and count as moved")
        assert last == "nothing was changed; add --execute to wait for them"
        rebalance(scene)
        assert picture_of(scene).moving == {} and picture_of(scene).throttle is None
        replicas = {topic.name: [state.replicas for state in topic.partitions] for topic in planned}
        assert {topic.name: [state.replicas for state in topic.partitions] for topic in picture_of(scene).topics} == replicas
        scene.check()


def test_a_node_that_is_away_gets_nothing_and_keeps_what_it_has() -> None:
    with Scene(FOUR) as scene:
        crowded(scene)
        scene.kill(3)
        until_away(scene, 3)
        rebalance(scene)
        assert replicas_by_node(scene) == {1: 8, 2: 8, 4: 8}
        scene.kill(4)
        scene.start(3)
        scene.until(lambda: image(scene).nodes[NodeId(3)].is_live)
        until_away(scene, 4)
        rebalance(scene)
        assert replicas_by_node(scene)[4] == 8


def test_only_the_nodes_that_are_named_give_and_take() -> None:
    with Scene(FOUR) as scene:
        crowded(scene)
        rebalance(scene, [1, 3])
        held = replicas_by_node(scene)
        assert (held[1], held[2], held[3], held[4]) == (6, 12, 6, 0)


# Which nodes take part


ADDRESS = Address("h", 1)
PICTURE = Picture(
    DescribedCluster("id", 1, tuple(ClusterNode(node, ADDRESS, None, is_fenced=node == 5) for node in (1, 2, 3, 4, 5))),
    None,
    tuple([TopicDescription("t", TopicId(bytes(16)), False, (PartitionDescription(0, 1, 0, (2, 1, 3), (1, 3), (), (), ()),))]),
    {},
    {TopicPartition("t", 0): Moving((2, 1, 3), (2,), (3,))},
)


def test_a_node_that_moves_leave_with_nothing_is_being_drained() -> None:
    assert taking_part(PICTURE, None) == [1, 2, 4]
    with pytest.raises(Fault, match="node 3 is being drained"):
        taking_part(PICTURE, [1, 3])


def test_a_node_from_which_something_moves_is_not_drained_while_it_keeps_something() -> None:
    kept = TopicDescription("u", TopicId(bytes(16)), False, (PartitionDescription(0, 3, 0, (3,), (3,), (), (), ()),))
    assert taking_part(replace(PICTURE, topics=(*PICTURE.topics, kept)), None) == [1, 2, 3, 4]


def test_a_node_that_is_away_cannot_be_named() -> None:
    with pytest.raises(Fault, match="node 5 is not up"):
        taking_part(PICTURE, [1, 5])
