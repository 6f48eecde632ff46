"""Nodes register, are fenced, come back, stop and leave; and what that makes of the partitions they hold."""

from dataclasses import replace

import pytest
from cluster.scene import Scene, code_of

from penstock.cluster import records
from penstock.cluster.commands import FenceNode, RegisterNode, StopNode, UnfenceNode, UnregisterNode
from penstock.cluster.image import ClusterImage
from penstock.cluster.records import BROKER, CONTROLLER
from penstock.cluster.replies import RegistrationOutdated
from penstock.errors import ErrorCode, Refusal
from penstock.vocabulary import NO_NODE, NodeId

pytestmark = pytest.mark.invariant("controller.decisions-have-no-side-effect")


def test_a_node_registers_fenced_and_is_let_in_when_it_says_that_it_has_caught_up() -> None:
    scene = Scene(0)
    reply = scene.ask(scene.register(1, rack="r1"))
    assert isinstance(reply, records.NodeRegistered) and reply.node_epoch == 1
    assert scene.image.cluster_id == "cluster"
    assert scene.image.live_brokers() == []
    scene.unfence(1)
    assert scene.image.live_brokers() == [1]
    node = scene.image.nodes[NodeId(1)]
    assert (node.host, node.port, node.peer_host, node.peer_port, node.rack) == ("host-1", 9092, "peer-1", 9093, "r1")
    assert node.roles == (BROKER, CONTROLLER)


def test_each_life_has_a_higher_epoch_also_after_the_node_was_taken_off_the_list() -> None:
    scene = Scene(2)
    scene.come_up(2)
    assert scene.epoch(2) == 2
    scene.fence(2)
    scene.ask(UnregisterNode(NodeId(2)))
    assert NodeId(2) not in scene.image.nodes
    scene.come_up(2)
    assert scene.epoch(2) == 3


@pytest.mark.invariant("controller.stale-requests-ignored", "controller.weak-acks-remembered")
def test_a_registration_that_comes_twice_or_late_from_an_earlier_life_is_no_unclean_restart() -> None:
    """On a topic that acknowledges before the flush an unclean restart costs the node its place."""
    scene = Scene(3)
    scene.create("t", 1, 2, 3, flush="os")
    registered = replace(scene.register(1, was_stopped_cleanly=False), previous_epoch=1)
    assert isinstance(scene.ask(registered), records.NodeRegistered)
    scene.unfence(1)
    scene.set_in_sync(2, 3, 1)
    version, in_sync = scene.image.version, scene.partition().in_sync
    assert 1 in in_sync
    for previous_epoch in (0, 1):
        assert scene.ask(replace(registered, previous_epoch=previous_epoch)) == RegistrationOutdated(2)
    assert (scene.image.version, scene.partition().in_sync, scene.image.nodes[NodeId(1)].is_fenced) == (version, in_sync, False)
    assert isinstance(scene.ask(replace(registered, previous_epoch=2)), records.NodeRegistered)
    assert 1 not in scene.partition().in_sync


def test_a_registration_that_is_late_does_not_put_a_node_back_that_was_taken_off_the_list() -> None:
    scene = Scene(2)
    scene.fence(2)
    scene.ask(UnregisterNode(NodeId(2)))
    assert scene.ask(replace(scene.register(2), previous_epoch=0)) == RegistrationOutdated(1)
    assert NodeId(2) not in scene.image.nodes


@pytest.mark.parametrize(
    ("command", "code"),
    [
        (RegisterNode(NodeId(4), "other", "d", "h", 1, was_stopped_cleanly=True), ErrorCode.INCONSISTENT_CLUSTER_ID),
        (RegisterNode(NodeId(4), "cluster", "d", "h", 1, was_stopped_cleanly=True, roles=()), ErrorCode.INVALID_REQUEST),
        (RegisterNode(NodeId(4), "cluster", "d", "h", 1, was_stopped_cleanly=True, roles=("king",)), ErrorCode.INVALID_REQUEST),
        (RegisterNode(NodeId(1), "cluster", "another", "h", 1, was_stopped_cleanly=True), ErrorCode.DUPLICATE_BROKER_REGISTRATION),
        (FenceNode(NodeId(4), 1), ErrorCode.BROKER_ID_NOT_REGISTERED),
        (FenceNode(NodeId(1), 2), ErrorCode.STALE_BROKER_EPOCH),
        (UnfenceNode(NodeId(4), 1), ErrorCode.BROKER_ID_NOT_REGISTERED),
        (UnfenceNode(NodeId(1), 0), ErrorCode.STALE_BROKER_EPOCH),
        (StopNode(NodeId(4), 1), ErrorCode.BROKER_ID_NOT_REGISTERED),
        (StopNode(NodeId(1), 7), ErrorCode.STALE_BROKER_EPOCH),
        (UnregisterNode(NodeId(4)), ErrorCode.BROKER_ID_NOT_REGISTERED),
        (UnregisterNode(NodeId(1)), ErrorCode.INVALID_REQUEST),
        (UnregisterNode(NodeId(3)), ErrorCode.INVALID_REQUEST),
    ],
)
def test_what_cannot_be_is_refused_with_its_code_and_nothing_is_stored(command: RegisterNode, code: ErrorCode) -> None:
    scene = Scene(3)
    scene.create("t", 1, 2, 3)
    scene.fence(3)
    assert scene.refuses(command).code is code


def test_a_node_that_holds_partitions_is_not_forgotten() -> None:
    scene = Scene(3)
    scene.create("t", 1, 2, 3)
    scene.fence(3)
    assert "replica of 1 partitions" in scene.refuses(UnregisterNode(NodeId(3))).reason


def test_the_leader_is_fenced_and_another_in_sync_leads_in_a_new_epoch() -> None:
    scene = Scene(3)
    scene.create("t", 1, 2, 3)
    scene.fence(1)
    state = scene.partition()
    assert (state.leader, state.in_sync, state.leader_epoch, state.partition_epoch) == (2, (2, 3), 1, 1)
    assert state.eligible == (), "two are enough for min.insync.replicas 1: records are committed without node 1"


def test_a_follower_is_fenced_and_the_leader_keeps_its_epoch() -> None:
    scene = Scene(3)
    scene.create("t", 1, 2, 3)
    scene.fence(3)
    assert scene.shape() == (1, (1, 2), ())
    assert (scene.partition().leader_epoch, scene.partition().partition_epoch) == (0, 1)


@pytest.mark.invariant("controller.eligible-has-everything")
def test_who_leaves_a_set_below_its_least_size_stays_eligible_and_may_lead_alone() -> None:
    """min.insync 2: nothing is committed by node 1 alone, so node 2 has all there is and may lead without waiting for node 1 (KIP-966)."""
    scene = Scene(3)
    scene.create("t", 1, 2, 3, min_insync_replicas="2")
    scene.fence(3, 2)
    assert scene.shape() == (1, (1,), (2,))
    scene.fence(1)
    assert scene.shape() == (NO_NODE, (), (2, 1))
    assert scene.partition().last_leader == 1
    scene.come_up(3)
    assert scene.shape() == (NO_NODE, (), (2, 1)), "records were committed without node 3"
    scene.come_up(2)
    assert scene.shape() == (2, (2,), (1,))
    assert scene.partition().last_leader == NO_NODE


@pytest.mark.invariant("controller.eligible-has-everything")
def test_the_last_one_standing_is_waited_for() -> None:
    """min.insync 1: node 1 alone has committed records; nobody else may lead before it is back."""
    scene = Scene(3)
    scene.create("t", 1, 2, 3)
    scene.fence(2, 3, 1)
    assert scene.shape() == (NO_NODE, (), (1,))
    scene.come_up(2)
    scene.come_up(3)
    assert scene.shape() == (NO_NODE, (), (1,))
    epoch = scene.partition().leader_epoch
    scene.come_up(1, was_stopped_cleanly=False)
    assert scene.shape() == (1, (1,), ())
    assert scene.partition().leader_epoch == epoch + 1


def test_being_fenced_or_let_in_twice_changes_nothing() -> None:
    scene = Scene(3)
    scene.create("t", 1, 2, 3)
    scene.fence(1)
    version = scene.image.version
    scene.fence(1)
    scene.unfence(2)
    assert scene.image.version == version


def test_a_node_that_comes_back_before_it_was_missed_hands_over_what_it_led() -> None:
    scene = Scene(3)
    scene.create("t", 1, 2, 3)
    scene.ask(scene.register(1, was_stopped_cleanly=False))
    assert scene.shape() == (2, (2, 3), ())
    assert scene.image.nodes[NodeId(1)].is_fenced


def test_after_a_power_cut_of_all_the_first_to_register_keeps_its_place_while_nothing_is_heard_of_the_others() -> None:
    scene = Scene(3)
    scene.create("t", 1, 2, 3)
    heard: set[int] = set()
    scene.controller.doubts = lambda n: n not in heard
    for n in (2, 3):
        heard.add(n)
        scene.come_up(n, was_stopped_cleanly=False)
    assert scene.shape() == (1, (1, 2), ()), "node 3 left, because node 2 is there"
    assert scene.partition().partition_epoch == 2, "a leader that is there after all hears of the new lives"
    scene.fence(1)
    assert scene.shape() == (2, (2,), ())


def test_who_may_have_lost_something_leaves_though_nothing_is_heard_of_the_others() -> None:
    scene = Scene(2)
    scene.create("t", 1, 2, flush="os")
    scene.controller.doubts = lambda _: True
    scene.come_up(2, was_stopped_cleanly=False)
    assert scene.shape() == (1, (1,), ())


def test_a_node_that_kept_its_place_while_others_were_in_doubt_leads_when_it_is_let_in_after_them() -> None:
    scene = Scene(2)
    scene.create("t", 1, 2)
    scene.controller.doubts = lambda _: True
    scene.ask(scene.register(2, was_stopped_cleanly=False))
    scene.fence(1)
    assert scene.shape() == (NO_NODE, (2,), (1,)), "nobody leads, so nothing is committed without node 1"
    scene.unfence(2)
    assert scene.shape() == (2, (2,), ())


def test_of_two_that_came_back_in_doubt_the_first_that_is_let_in_leads() -> None:
    scene = Scene(2)
    scene.create("t", 1, 2)
    scene.controller.doubts = lambda _: True
    scene.ask(scene.register(2))
    scene.ask(scene.register(1))
    assert scene.shape() == (NO_NODE, (1, 2), ())
    scene.unfence(1)
    assert scene.shape() == (1, (1, 2), ())


def test_a_node_alone_goes_on_leading_in_a_new_epoch_only_after_an_unclean_stop() -> None:
    scene = Scene(1)
    scene.create("t", 1)
    scene.ask(scene.register(1, was_stopped_cleanly=True))
    assert (scene.shape(), scene.partition().leader_epoch, scene.partition().partition_epoch) == ((1, (1,), ()), 0, 0)
    scene.ask(scene.register(1, was_stopped_cleanly=False))
    assert (scene.shape(), scene.partition().leader_epoch, scene.partition().partition_epoch) == ((1, (1,), ()), 1, 1)
    scene.unfence(1)
    assert scene.partition().leader_epoch == 1


@pytest.mark.invariant("controller.unclean-stop-and-new-disk")
@pytest.mark.parametrize(
    ("flush", "was_stopped_cleanly", "eligible"),
    [("ack", False, (2, 1)), ("ack", True, (2, 1)), ("os", True, (2, 1)), ("os", False, (2,)), ("interval", False, (2,))],
)
def test_an_unclean_stop_costs_a_place_among_the_eligible_only_where_the_flush_is_not_waited_for(
    flush: str, was_stopped_cleanly: bool, eligible: tuple[int, ...]
) -> None:
    scene = Scene(2)
    scene.create("t", 1, 2, min_insync_replicas="2", flush=flush)
    scene.fence(2, 1)
    assert scene.partition().eligible == (2, 1)
    scene.ask(scene.register(1, was_stopped_cleanly=was_stopped_cleanly))
    assert scene.partition().eligible == eligible


def test_the_last_one_that_may_have_everything_stays_though_it_may_have_lost_some() -> None:
    scene = Scene(2)
    scene.create("t", 1, 2, flush="os")
    scene.fence(2)
    scene.come_up(1, was_stopped_cleanly=False)
    assert scene.shape() == (1, (1,), ())
    assert scene.partition().leader_epoch == 1


def test_a_lossy_leader_makes_way_for_one_that_has_everything() -> None:
    scene = Scene(2)
    scene.create("t", 1, 2, min_insync_replicas="2", flush="os")
    scene.set_in_sync(1)
    assert scene.shape() == (1, (1,), (2,))
    scene.ask(scene.register(1, was_stopped_cleanly=False))
    assert scene.shape() == (2, (2,), ())


@pytest.mark.invariant("controller.unclean-stop-and-new-disk")
def test_a_wiped_disk_has_nothing_and_leads_nothing() -> None:
    scene = Scene(2)
    scene.create("t", 1, 2, min_insync_replicas="2")
    scene.fence(2, 1)
    scene.come_up(1, directory="new")
    assert scene.shape() == (NO_NODE, (), (2,))
    assert scene.partition().last_leader == NO_NODE, "whose disk was taken out does not count as the last leader"
    assert scene.image.nodes[NodeId(1)].has_new_disk
    scene.come_up(1, directory="new")
    assert scene.image.nodes[NodeId(1)].has_new_disk
    scene.come_up(2)
    assert scene.shape() == (2, (2,), ())


def test_even_the_only_copy_is_not_expected_on_another_disk() -> None:
    scene = Scene(1)
    scene.create("t", 1)
    scene.fence(1)
    scene.come_up(1, directory="new")
    assert scene.shape() == (NO_NODE, (), ())


def test_a_node_that_stops_hands_over_first_and_joins_nothing_any_more() -> None:
    scene = Scene(3)
    scene.create("t", 1, 2, 3)
    scene.create("alone", 1)
    assert code_of(scene.stop(1)) is ErrorCode.NONE
    assert scene.shape() == (2, (2, 3), ())
    assert scene.shape("alone") == (1, (1,), ()), "what only it can lead stays until it is gone"
    assert scene.image.led_by(NodeId(1)) == 1
    assert scene.refuses(scene.in_sync_wish(1, 2, 3)).code is ErrorCode.INELIGIBLE_REPLICA
    version = scene.image.version
    scene.stop(1)
    assert scene.image.version == version
    scene.fence(1)
    assert scene.shape("alone") == (NO_NODE, (), (1,))
    refusal = scene.unfence(1)
    assert isinstance(refusal, Refusal) and refusal.code is ErrorCode.INVALID_REQUEST
    scene.come_up(1)
    assert scene.shape("alone") == (1, (1,), ())


def test_a_stopping_leader_that_nobody_could_follow_hands_over_as_soon_as_somebody_can() -> None:
    scene = Scene(2)
    scene.create("t", 1, 2)
    scene.set_in_sync(1)
    scene.stop(1)
    assert scene.shape() == (1, (1,), ())
    scene.set_in_sync(1, 2)
    assert scene.shape() == (2, (1, 2), ())


def test_a_stopping_node_leads_only_where_no_other_is_left() -> None:
    scene = Scene(3)
    scene.create("t", 1, 2, 3)
    scene.stop(2)
    scene.fence(1)
    assert scene.shape() == (3, (3,), ())


def test_a_controller_without_the_brokers_role_is_never_a_live_broker() -> None:
    scene = Scene(1)
    scene.come_up(2, roles=(CONTROLLER,))
    assert scene.image.live_brokers() == [1]


@pytest.mark.invariant("controller.snapshot-replays")
def test_logs_of_the_time_before_clusters_replay() -> None:
    image = ClusterImage()
    partition = b'{"replicas":[1],"in_sync":[1],"leader":1,"leader_epoch":0}'
    for kind, body in [
        (1, b'{"cluster_id":"c"}'),
        (2, b'{"node_id":1,"node_epoch":1,"directory_id":"d","host":"h","port":9092,"rack":null}'),
        (3, b'{"name":"t","topic_id":"%032d","partitions":[%b],"overrides":{}}' % (7, partition)),
        (7, b'{"node_id":1}'),
        (9, b'{"topic_id":"%032d","partitions":[%b]}' % (7, partition)),
        (3, b'{"name":"deleted 08","topic_id":"%032d","partitions":[],"overrides":{}}' % 8),
        (5, b'{"topic_id":"%032d"}' % 8),
        (3, b'{"name":"u","topic_id":"%032d","partitions":[%b],"overrides":{}}' % (9, partition)),
        (5, b'{"topic_id":"%032d"}' % 9),
        (6, b'{"topic_id":"%032d","node_id":1}' % 9),
    ]:
        image.replay(records.decode(kind.to_bytes(2, "big") + b"\0\1" + body))
    node = image.nodes[NodeId(1)]
    assert (node.is_fenced, node.is_stopping, node.roles, node.peer_host) == (False, False, (BROKER, CONTROLLER), "")
    assert [(state.leader, state.leader_epoch, state.eligible) for state in image.topics["t"].partitions] == [(1, 1, ()), (1, 0, ())]
    assert image.graveyard == {bytes.fromhex(f"{8:032d}"): (1,)}
    assert image.live_brokers() == [1]
