"""What commands make of a cluster that they look at: where partitions will be, and what is worth knowing."""

from dataclasses import replace

from penstock.cli.cluster_picture import Picture
from penstock.cli.reassignment_plans import spread, without
from penstock.peers.cluster import DescribedCluster, Moving, PartitionDescription, TopicDescription
from penstock.vocabulary import TopicId, TopicPartition

STATE = PartitionDescription(0, 1, 0, (4, 1, 2), (1, 2), (), (), ())
TOPIC = TopicDescription("orders", TopicId(bytes(16)), False, (STATE,))
MOVING = {TopicPartition("orders", 0): Moving((4, 1, 2), (4,), (1,))}
PICTURE = Picture(DescribedCluster("id", 1, ()), None, (TOPIC,), {}, MOVING)
RACKS = dict.fromkeys((1, 2, 3, 4))


def test_a_plan_over_a_move_under_way_keeps_the_number_of_replicas() -> None:
    (topic,) = PICTURE.targets()
    assert [state.replicas for state in topic.partitions] == [(4, 2)]
    assert spread(topic, [2, 3], RACKS) == {TopicPartition("orders", 0): (2, 3)}
    assert without(2, PICTURE.targets(), [1, 2, 3, 4], RACKS) == {TopicPartition("orders", 0): (4, 1)}


def test_what_a_move_takes_away_already_is_planned_for_nobody() -> None:
    assert without(1, PICTURE.targets(), [1, 2, 3, 4], RACKS) == {}


def test_a_throttle_is_named() -> None:
    slow = replace(PICTURE, throttle="1000")
    assert slow.notes() == ["moves take 1000 bytes a second on each node at most (replication.throttled.rate)"]
    (note,) = replace(slow, moving={}).notes()
    assert "replication.throttled.rate is 1000 though nothing is moving" in note
    assert PICTURE.notes() == []
