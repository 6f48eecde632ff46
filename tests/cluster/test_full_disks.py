"""What the controller makes of nodes whose disks are full: who leads, who gets new replicas, and what is remembered."""

import pytest
from cluster.scene import Scene, code_of, topic_id

from penstock.cluster.commands import CreateTopics, ElectionKind, ElectLeaders, MakeCompanion, NewTopic, ReportDisk, UnfenceNode
from penstock.cluster.image import ClusterImage
from penstock.errors import ErrorCode
from penstock.vocabulary import NodeId

pytestmark = pytest.mark.invariant("replication.full-disk-hands-over")


def test_another_leads_in_a_new_epoch_and_the_full_one_stays_in_sync() -> None:
    scene = Scene()
    scene.create("t", 1, 2, 3)
    scene.create("u", 2, 1, 3)
    scene.report_disk(1)
    state = scene.partition()
    assert (state.leader, state.leader_epoch, state.in_sync) == (2, 1, (1, 2, 3))
    assert scene.partition("u").partition_epoch == 0, "where another leads nothing changes"


def test_leadership_goes_to_a_full_disk_only_where_no_other_is_up() -> None:
    scene = Scene()
    scene.create("t", 1, 2, 3)
    scene.report_disk(2)
    scene.fence(1)
    assert scene.partition().leader == 3
    scene.fence(3)
    assert scene.partition().leader == 2


def test_a_full_disk_is_better_than_a_node_that_is_stopping() -> None:
    scene = Scene()
    scene.create("t", 1, 2)
    scene.report_disk(2)
    scene.stop(1)
    assert scene.partition().leader == 2


def test_where_all_disks_are_full_nothing_moves_until_one_has_room() -> None:
    scene = Scene()
    scene.create("t", 1, 2, 3)
    for node in (2, 3, 1):
        scene.report_disk(node)
    assert scene.partition().leader == 1 and scene.partition().leader_epoch == 0
    scene.report_disk(3, is_full=False)
    assert scene.partition().leader == 3


def test_a_full_leader_that_is_alone_hands_over_to_the_first_that_joins() -> None:
    scene = Scene()
    scene.create("t", 1, 2, min_insync_replicas="1")
    scene.fence(2)
    scene.report_disk(1)
    assert scene.partition().leader == 1
    scene.unfence(2)
    scene.set_in_sync(1, 2)
    assert scene.partition().leader == 2


def test_a_full_disk_gets_no_leadership_back_before_it_has_room() -> None:
    scene = Scene()
    scene.create("t", 1, 2, 3)
    scene.report_disk(1)
    order = ElectLeaders(ElectionKind.PREFERRED, (("t", 0),))
    assert code_of(scene.ask(order)) is ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE
    scene.report_disk(1, is_full=False)
    assert scene.partition().leader == 2, "not by itself: see leader.imbalance.check.interval.seconds"
    assert code_of(scene.ask(order)) is ErrorCode.NONE
    assert scene.partition().leader == 1


def test_new_partitions_go_to_full_disks_last_and_are_led_by_others() -> None:
    scene = Scene(4)
    scene.report_disk(1)
    for name, factor in (("a", 3), ("b", 4)):
        scene.ask(CreateTopics((NewTopic(name, topic_id(len(name) + factor), 3, factor),)))
    assert all(1 not in state.replicas for state in scene.image.topics["a"].partitions)
    assert all(1 in state.replicas and state.leader != 1 for state in scene.image.topics["b"].partitions)
    scene.create("c", 1, 2)
    assert scene.partition("c").leader == 2, "also where a client names the replicas"


def test_what_is_said_twice_or_by_an_earlier_life_changes_nothing() -> None:
    scene = Scene()
    scene.create("t", 1, 2, 3)
    scene.report_disk(1)
    version = scene.image.version
    scene.report_disk(1)
    assert scene.image.version == version
    stale = ReportDisk(NodeId(1), scene.epoch(1), False)
    scene.come_up(1)
    assert scene.refuses(stale).code is ErrorCode.STALE_BROKER_EPOCH
    assert scene.refuses(ReportDisk(NodeId(9), 1, True)).code is ErrorCode.BROKER_ID_NOT_REGISTERED


@pytest.mark.parametrize(("directory", "is_full"), [("directory-1", True), ("another disk", False)])
def test_what_is_known_of_a_disk_holds_when_the_node_comes_up_again(directory: str, *, is_full: bool) -> None:
    scene = Scene()
    scene.report_disk(1)
    scene.fence(1)
    scene.ask(scene.register(1, directory=directory))
    scene.ask(UnfenceNode(NodeId(1), scene.epoch(1)))
    assert scene.image.nodes[NodeId(1)].is_disk_full is is_full
    again = ClusterImage()
    for record in scene.image.snapshot():
        again.replay(record)
    assert again == scene.image


def test_a_queue_and_its_ledger_are_handed_over_together() -> None:
    scene = Scene()
    scene.create("q", 1, 2, 3)
    scene.ask(MakeCompanion(topic_id(1)))
    ledger = scene.image.companion_of(topic_id(1))
    assert ledger is not None
    scene.report_disk(1)
    assert scene.partition("q").leader == ledger.partitions[0].leader == 2
