"""A node whose disk is full: others lead what it led, new topics avoid it, it can be drained, and takes part again when there is room."""

import pytest
from clusters.scene import TOPIC, Scene, refused
from clusters.test_damaged_copies import disk_of, says
from clusters.test_leftovers import decide
from clusters.test_moves import reassign

from penstock.broker.disk_room import RESERVE_PATH, SHORT_SECONDS
from penstock.cluster.commands import Reassignment, ReassignPartitions
from penstock.errors import ErrorCode
from penstock.vocabulary import NodeId

pytestmark = pytest.mark.invariant("replication.full-disk-hands-over")

MIB = 1 << 20
QUICK = {"replica_lag_ms": 1_000, "leader_imbalance_seconds": 1, "disk_free_bytes_min": 256 * MIB, "disk_reserve_bytes": 64 * MIB}


def leave_room(scene: Scene, node: int, free_bytes: int) -> None:
    disk = disk_of(scene, node)
    disk.capacity_bytes -= disk.free_bytes() - free_bytes


def make_space(scene: Scene, *nodes: int) -> None:
    for node in nodes:
        disk_of(scene, node).pacify()


def is_known_to_be_full(scene: Scene, node: int) -> bool:
    """To every node."""
    return all(scene.node(each).image.nodes[node].is_disk_full for each in scene.cluster.plans)  # type: ignore[index]


def test_another_replica_leads_before_a_disk_is_so_full_that_it_refuses() -> None:
    with Scene(**QUICK) as scene:
        scene.create(min_insync_replicas=2)
        full = scene.leads()
        leave_room(scene, full, 300 * MIB)
        scene.until(lambda: scene.leader() != full)
        assert not scene.node(full).disk_is_low
        assert scene.in_sync() == {1, 2, 3}, "it copies what others lead"
        scene.produce(b"a")
        make_space(scene, full)
        scene.check()


@pytest.mark.parametrize("free_bytes", [0, 100, 100 * MIB])
def test_produces_go_on_when_the_leaders_disk_is_full(free_bytes: int) -> None:
    with Scene(**QUICK) as scene:
        scene.create(min_insync_replicas=2)
        full = scene.leads()
        scene.produce(b"a")
        leave_room(scene, full, free_bytes)
        scene.produce(b"b", within=60.0)
        scene.until(lambda: scene.leader() != full)
        scene.produce(b"c", within=60.0)
        assert is_known_to_be_full(scene, full)
        make_space(scene, full)
        scene.check()


def test_leadership_does_not_go_back_and_forth_and_returns_when_there_is_room() -> None:
    with Scene(**QUICK) as scene:
        scene.create()
        full = scene.leads()
        leave_room(scene, full, 300 * MIB)
        scene.until(lambda: scene.leader() != full)
        leave_room(scene, full, 500 * MIB)  # More than where it began.
        scene.run_for(2 * SHORT_SECONDS)
        assert scene.leader() != full
        leave_room(scene, full, 600 * MIB)
        scene.until(lambda: scene.leader() == full)
        leave_room(scene, full, 300 * MIB)
        scene.until(lambda: scene.leader() != full)
        make_space(scene, full)
        scene.run_for(SHORT_SECONDS / 2)
        assert scene.leader() != full
        scene.until(lambda: scene.leader() == full)


def test_new_topics_avoid_a_full_disk_as_long_as_others_are_enough() -> None:
    with Scene(**QUICK) as scene:
        leave_room(scene, 2, 0)
        scene.until(lambda: is_known_to_be_full(scene, 2))
        scene.create("pairs", partitions=6, replicas=2)
        assert all(set(scene.cluster.state("pairs", index).replicas) == {1, 3} for index in range(6))  # type: ignore[union-attr]
        scene.create("triples", partitions=3, replicas=3)
        assert all(scene.leads("triples", index) != 2 for index in range(3))
        make_space(scene, 2)
        scene.check()


def test_a_full_node_makes_topics_for_others() -> None:
    """A client may ask any node."""
    with Scene(**QUICK) as scene:
        leave_room(scene, 2, 0)
        scene.until(lambda: is_known_to_be_full(scene, 2))
        scene.cut_clients(1)
        scene.cut_clients(3)
        scene.do(lambda client: client.create_topic(TOPIC, partitions=1, replication_factor=2))
        scene.heal()
        scene.until(lambda: scene.in_sync() == {1, 3})


@pytest.mark.invariant("node.reserve-for-moves")
def test_a_node_with_a_completely_full_disk_can_be_drained() -> None:
    with Scene(**QUICK) as scene:
        topics = [f"topic-{number}" for number in range(6)]
        for topic in topics:
            scene.create(topic, replicas=2, min_insync_replicas=1)
            scene.produce(b"a", topic=topic)
        full = scene.leads(topics[0])
        others = [node for node in (1, 2, 3) if node != full]
        leave_room(scene, full, 0)
        scene.until(lambda: is_known_to_be_full(scene, full))
        for topic in topics:
            reassign(scene, others, topic=topic)
        scene.until(lambda: all(scene.in_sync(topic) == set(others) for topic in topics), within=60.0)
        end = scene.node(others[0]).quorum.applied_end
        scene.until(lambda: scene.node(full).quorum.applied_end >= end)
        make_space(scene, full)
        scene.check()


def test_the_only_replica_on_a_full_disk_is_read_from_and_can_be_moved() -> None:
    with Scene(**QUICK) as scene:
        scene.create(replicas=1)
        scene.produce(b"a")
        full = scene.leads()
        other = next(node for node in (1, 2, 3) if node != full)
        leave_room(scene, full, 0)
        scene.until(lambda: is_known_to_be_full(scene, full))
        assert scene.leads() == full
        assert scene.produce_at(full, b"b") == ErrorCode.KAFKA_STORAGE_ERROR
        assert scene.read() == {0: b"a"}
        reassign(scene, [other])
        scene.until(lambda: scene.in_sync() == {other})
        scene.produce(b"c")
        make_space(scene, full)
        scene.check()


def test_a_new_replica_is_refused_on_a_full_disk_while_another_node_has_room() -> None:
    with Scene(**QUICK) as scene:
        scene.create(replicas=1)
        leader = scene.leads()
        full, other = [node for node in (1, 2, 3) if node != leader]
        leave_room(scene, full, 0)
        scene.until(lambda: is_known_to_be_full(scene, full))
        (reply,) = decide(scene, ReassignPartitions((Reassignment(TOPIC, 0, (NodeId(full),)),)))
        assert f"node {other} for one" in str(reply)
        leave_room(scene, other, 0)
        leave_room(scene, leader, 0)
        scene.until(lambda: is_known_to_be_full(scene, other) and is_known_to_be_full(scene, leader))
        (reply,) = decide(scene, ReassignPartitions((Reassignment(TOPIC, 0, (NodeId(leader), NodeId(full))),)))
        assert reply.adding == (full,), "no node is better"  # type: ignore[union-attr]


def test_where_all_disks_are_full_producers_are_refused_and_readers_served() -> None:
    with Scene(**QUICK) as scene:
        scene.create(min_insync_replicas=2)
        scene.produce(b"a")
        for node in (1, 2, 3):
            leave_room(scene, node, 0)
        scene.until(lambda: all(is_known_to_be_full(scene, node) for node in (1, 2, 3)))
        leader = scene.leads()
        scene.run_for(3 * SHORT_SECONDS)
        assert scene.leads() == leader, "it goes nowhere where there is no room anywhere"
        assert scene.produce_at(leader, b"b") == ErrorCode.KAFKA_STORAGE_ERROR
        assert "disk" in refused(lambda: scene.do(lambda client: client.create_topic("more", partitions=1, replication_factor=1)))
        assert scene.read() == {0: b"a"}
        roomy, other = [node for node in (1, 2, 3) if node != leader]
        make_space(scene, roomy)
        scene.until(lambda: scene.leader() == roomy)
        make_space(scene, other)
        scene.produce(b"c", within=60.0)
        make_space(scene, 1, 2, 3)
        scene.until(lambda: scene.in_sync() == {1, 2, 3})
        scene.check()


def test_a_node_that_restarts_with_a_full_disk_leads_nothing_meanwhile() -> None:
    with Scene(**QUICK) as scene:
        scene.create()
        full = scene.leads()
        leave_room(scene, full, 300 * MIB)
        scene.until(lambda: scene.leader() != full)
        scene.stop(full)
        scene.start(full)
        scene.until(lambda: full in scene.in_sync())
        assert scene.node(scene.controller()).image.nodes[full].is_disk_full  # type: ignore[index]
        scene.run_for(2 * SHORT_SECONDS)
        assert scene.leader() != full
        make_space(scene, full)
        scene.until(lambda: scene.leader() == full)


@pytest.mark.invariant("node.reserve-for-moves")
def test_copies_of_clients_records_leave_the_reserve_alone() -> None:
    """The disk of a follower fills up while it copies. It drops out, and its metadata log goes on."""
    with Scene(**QUICK) as scene:
        scene.create(min_insync_replicas=2)
        full = scene.followers()[0]
        leave_room(scene, full, 5 * MIB)
        for _ in range(12):
            scene.produce(bytes(MIB // 2))
        scene.until(lambda: full not in scene.in_sync())
        assert not disk_of(scene, full).exists(RESERVE_PATH)
        assert disk_of(scene, full).free_bytes() > 63 * MIB
        scene.do(lambda client: client.create_topic("more", partitions=1, replication_factor=2))
        end = scene.node(scene.controller()).quorum.applied_end
        scene.until(lambda: scene.node(full).quorum.applied_end >= end)
        make_space(scene, full)
        scene.until(lambda: scene.in_sync() == {1, 2, 3})
        assert disk_of(scene, full).exists(RESERVE_PATH)
        assert says(scene, "the disk has room again")
        scene.check()
