"""What `penstock cluster status` says of disks, damaged copies and numbers of replicas."""

from collections.abc import Sequence
from dataclasses import replace

import pytest

from penstock.cli.cluster_checks import Checks, DamagedCopy
from penstock.cli.cluster_disks import Disks
from penstock.cli.cluster_picture import Picture
from penstock.cluster.topic_names import companion_name
from penstock.peers.cluster import ClusterNode, DescribedCluster, Moving, PartitionDescription, TopicDescription
from penstock.peers.log_dirs import NodeDisk
from penstock.vocabulary import Address, TopicId, TopicPartition

MIB = 1 << 20
FREE_MIN = {"disk.free.bytes.min": 256 * MIB}
ID = TopicId(bytes(range(16)))


def topic(*replicas: Sequence[int], name: str = "orders", topic_id: TopicId = ID) -> TopicDescription:
    rows = [PartitionDescription(index, each[0], 0, tuple(each), tuple(each), (), (), ()) for index, each in enumerate(replicas)]
    return TopicDescription(name, topic_id, name.startswith("__"), tuple(rows))


def picture(*topics: TopicDescription, nodes: int = 3) -> Picture:
    brokers = tuple([ClusterNode(node, Address("h", 1), None, is_fenced=False) for node in range(1, nodes + 1)])
    return Picture(DescribedCluster("id", 1, brokers), None, topics, {}, {})


def disk(free: int, *failed: str) -> NodeDisk:
    return NodeDisk({}, free, 1 << 40, failed)


@pytest.mark.parametrize(
    ("free", "troubles", "notes"),
    [
        (100 * MIB, ["100.0 MiB free, less than disk.free.bytes.min (256.0 MiB): it refuses what producers send, and others "
            "lead in its place where they can; make space"], []),
        (300 * MIB, [], ["300.0 MiB free; below 384.0 MiB others lead in its place where they can, and below 256.0 MiB "
            "(disk.free.bytes.min) it refuses what producers send"]),
        (600 * MIB, [], []),
        (-1, [], []),
    ],
)  # fmt: skip
def test_a_disk_that_is_short_of_space_is_named(free: int, troubles: list[str], notes: list[str]) -> None:
    checks = Checks(picture(), Disks({1: disk(1 << 40), 2: disk(free)}, {}), {1: FREE_MIN, 2: FREE_MIN})
    assert checks.troubles() == [f"node 2 has {said}" for said in troubles]
    assert checks.notes() == [f"node 2 has {said}" for said in notes]


def test_nodes_that_should_get_no_more_replicas_are_told() -> None:
    disks = Disks({1: disk(600 * MIB), 2: disk(500 * MIB), 3: disk(-1)}, {})
    assert Checks(picture(), disks, {1: FREE_MIN, 2: FREE_MIN, 3: FREE_MIN}).full() == [2]


def test_a_node_that_could_not_be_asked_is_named_and_is_no_trouble() -> None:
    checks = Checks(picture(), Disks({}, {3: "it said nothing"}))
    assert (checks.troubles(), checks.notes()) == ([], ["node 3 could not be asked about its disk: it said nothing"])


def test_damaged_copies_are_named_with_their_nodes() -> None:
    paths = f"/data/topics/{ID.hex()}/1", "/data/topics/beef/0", "/elsewhere"
    checks = Checks(picture(topic((1,), (2,))), Disks({2: disk(1 << 40, *paths)}, {}))
    assert checks.damaged() == [DamagedCopy(2, paths[0], TopicPartition("orders", 1)), *(DamagedCopy(2, path, None) for path in paths[1:])]
    (trouble,) = checks.troubles()
    assert trouble.startswith("damaged copies: orders-1 on node 2, /data/topics/beef/0 on node 2, /elsewhere on node 2; ")


def test_partitions_with_another_number_of_replicas_than_most_of_their_topic_are_named() -> None:
    odd = topic((1, 2, 3), (1, 2, 3), (2, 3), (1,))
    ledger = topic((1,), (1, 2), name=companion_name(ID), topic_id=TopicId(bytes(16)))
    checks = Checks(picture(odd, ledger, topic((1,), name="single"), topic(name="empty")))
    assert [(each.where, each.replicas, each.usual) for each in checks.odd_partitions()] == [
        (TopicPartition("orders", 2), 2, 3), (TopicPartition("orders", 3), 1, 3),
    ]  # fmt: skip
    (note,) = checks.notes()
    assert note == (
        "topic orders has 3 replicas, but partition 2 has 2, 3 has 1: penstock cluster reassign --topic orders --replication-factor 3"
    )
    assert checks.troubles() == []


def test_where_as_many_have_more_the_higher_number_is_the_usual_one() -> None:
    assert [each.where.partition for each in Checks(picture(topic((1,), (1, 2)))).odd_partitions()] == [0]


def test_a_partition_that_is_being_moved_may_have_another_number_meanwhile() -> None:
    moving = {TopicPartition("orders", 1): Moving((3, 1, 2), (3,), (1,))}
    assert Checks(replace(picture(topic((1, 2), (3, 1, 2))), moving=moving)).odd_partitions() == []


@pytest.mark.parametrize(("nodes", "advice"), [(3, "penstock cluster reassign --topic "), (2, "there are 2 brokers, so add nodes first")])
def test_own_topics_with_fewer_replicas_than_are_asked_for_are_named(nodes: int, advice: str) -> None:
    own = topic((1,), (2,), name="__consumer_offsets"), topic((1, 2, 3), name="__transaction_state")
    asked = {"offsets.topic.replication.factor": 3, "transaction.state.log.replication.factor": 3}
    (note,) = Checks(picture(*own, nodes=nodes), settings={1: {}, 2: asked}).notes()
    assert note.startswith(f"__consumer_offsets has 1 replica, and offsets.topic.replication.factor asks for 3: {advice}")
    assert Checks(picture(*own, nodes=nodes)).notes() == [], "nobody told what is asked for"
