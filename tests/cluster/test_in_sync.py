"""Leaders ask for in-sync sets: what is taken, what is refused, and who stays eligible."""

from typing import Any

import pytest
from cluster.scene import Scene, code_of, topic_id

from penstock.cluster import records
from penstock.cluster.commands import ChangeInSync, InSyncWish
from penstock.cluster.configuring import Change, ConfigureNode, ConfigureTopic
from penstock.errors import ErrorCode
from penstock.vocabulary import LeaderEpoch, NodeId
from penstock.wire.configs import Operation

pytestmark = pytest.mark.invariant("controller.stale-requests-ignored", "controller.decisions-have-no-side-effect")


def scene_of_three(**overrides: str) -> Scene:
    scene = Scene(3)
    scene.create("t", 1, 2, 3, **overrides)
    return scene


def test_a_follower_leaves_and_joins_again_and_each_change_has_its_epoch() -> None:
    scene = scene_of_three()
    scene.set_in_sync(1, 3)
    assert (scene.shape(), scene.partition().partition_epoch) == ((1, (1, 3), ()), 1)
    scene.set_in_sync(1, 3, 2)
    assert (scene.shape(), scene.partition().partition_epoch, scene.partition().leader_epoch) == ((1, (1, 3, 2), ()), 2, 0)


def test_the_reply_is_the_new_state_and_what_is_already_so_is_a_version_of_its_own() -> None:
    """A leader that asks for what holds wants to know that nothing it asked for before can still come."""
    scene = scene_of_three()
    reply = scene.ask(scene.in_sync_wish(1, 2))
    assert isinstance(reply, records.PartitionChange) and (reply.in_sync, reply.partition_epoch) == ((1, 2), 1)
    late = scene.in_sync_wish(1, 2, 3)
    assert scene.ask(scene.in_sync_wish(1, 2)) == reply._replace(partition_epoch=2)
    assert scene.refuses(late).code is ErrorCode.INVALID_UPDATE_VERSION


def test_a_leader_whose_log_has_failed_leaves_itself_out_and_another_leads() -> None:
    scene = scene_of_three(min_insync_replicas="3")
    scene.ask(scene.in_sync_wish(2, 3))
    assert (scene.shape(), scene.partition().leader_epoch) == ((2, (2, 3), ()), 1), "its copy is not one to go back to"


def test_a_leader_is_not_left_out_where_nobody_could_take_its_place() -> None:
    scene = scene_of_three()
    scene.set_in_sync(1, 2)
    assert scene.refuses(scene.in_sync_wish(3)).code is ErrorCode.INELIGIBLE_REPLICA


@pytest.mark.parametrize(
    ("members", "instead", "code"),
    [
        ((1, 2), {"leader_epoch": -1}, ErrorCode.FENCED_LEADER_EPOCH),
        ((1, 2), {"leader_epoch": 1}, ErrorCode.NOT_CONTROLLER),
        ((1, 2), {"partition_epoch": -1}, ErrorCode.INVALID_UPDATE_VERSION),
        ((1, 2), {"partition_epoch": 1}, ErrorCode.NOT_CONTROLLER),
        ((1, 2), {"epoch_of_2": 0}, ErrorCode.INELIGIBLE_REPLICA),
        ((1, 2), {"epoch_of_1": 0}, ErrorCode.INELIGIBLE_REPLICA),
        ((), {}, ErrorCode.INVALID_REQUEST),
        ((1, 1), {}, ErrorCode.INVALID_REQUEST),
        ((1, 4), {}, ErrorCode.INVALID_REQUEST),
        ((2, 3), {"asker": 2}, ErrorCode.INVALID_REQUEST),
        ((1, 2), {"asker_epoch": 9}, ErrorCode.STALE_BROKER_EPOCH),
        ((1, 2), {"asker_epoch": 0}, ErrorCode.STALE_BROKER_EPOCH),
        ((1, 2), {"index": 1}, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ((1, 2), {"index": -1}, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ],
)
def test_a_wish_that_cannot_be_is_refused_with_its_code(members: tuple[int, ...], instead: dict[str, Any], code: ErrorCode) -> None:
    scene = scene_of_three()
    assert scene.refuses(scene.in_sync_wish(*members, **instead)).code is code


def test_a_topic_that_is_gone_is_told_by_its_id() -> None:
    scene = scene_of_three()
    wish = InSyncWish(topic_id(77), 0, LeaderEpoch(0), 0, ((NodeId(1), 1),))
    assert scene.refuses(ChangeInSync(NodeId(1), 1, (wish,))).code is ErrorCode.UNKNOWN_TOPIC_ID


@pytest.mark.parametrize("how", ["fenced", "stopping", "restarted"])
def test_who_is_not_there_now_does_not_join_though_it_was_when_the_leader_last_heard(how: str) -> None:
    scene = scene_of_three()
    scene.set_in_sync(1, 2)
    known_epoch = scene.epoch(3)
    if how == "fenced":
        scene.fence(3)
    elif how == "stopping":
        scene.stop(3)
    else:
        scene.come_up(3, was_stopped_cleanly=False)
    assert scene.refuses(scene.in_sync_wish(1, 2, 3, epoch_of_3=known_epoch)).code is ErrorCode.INELIGIBLE_REPLICA


def test_a_leader_that_is_not_let_in_yet_changes_nothing() -> None:
    scene = scene_of_three()
    scene.set_in_sync(1)
    scene.ask(scene.register(1))
    assert scene.shape() == (1, (1,), ())
    assert scene.refuses(scene.in_sync_wish(1, 2)).code is ErrorCode.INELIGIBLE_REPLICA
    scene.unfence(1)
    scene.set_in_sync(1, 2)


def test_wishes_stand_or_fall_each_by_itself_and_the_second_for_a_partition_sees_the_first() -> None:
    scene = scene_of_three()
    scene.create("u", 1, 2, 3)
    wishes = (scene.wish(1, 2), scene.wish(1, 3), scene.wish(1, 2, name="u", leader_epoch=-1), scene.wish(1, name="u"))
    replies = scene.submit(ChangeInSync(NodeId(1), 1, wishes))
    assert [code_of(reply) for reply in replies] == [
        ErrorCode.NONE, ErrorCode.INVALID_UPDATE_VERSION, ErrorCode.FENCED_LEADER_EPOCH, ErrorCode.NONE,
    ]  # fmt: skip
    assert (scene.partition().in_sync, scene.partition("u").in_sync) == ((1, 2), (1,))


def test_the_eligible_are_cleared_when_enough_are_in_sync_again() -> None:
    scene = scene_of_three(min_insync_replicas="2")
    scene.set_in_sync(1)
    assert scene.shape() == (1, (1,), (2, 3))
    scene.set_in_sync(1, 3)
    assert scene.shape() == (1, (1, 3), ())


def test_below_the_least_size_those_who_left_one_after_the_other_all_stay_eligible() -> None:
    scene = Scene(4)
    scene.create("t", 1, 2, 3, 4, min_insync_replicas="3")
    scene.set_in_sync(1, 2, 3)
    scene.set_in_sync(1, 2)
    scene.set_in_sync(1)
    assert scene.shape() == (1, (1,), (3, 2)), "node 4 left while records were still committed"
    scene.set_in_sync(1, 4)
    assert scene.shape() == (1, (1, 4), (3, 2))


def test_the_least_size_is_never_more_than_there_are_replicas() -> None:
    scene = Scene(2)
    scene.create("t", 1, min_insync_replicas="2")
    assert scene.shape() == (1, (1,), ())
    scene.fence(1)
    assert scene.shape() == (-1, (), (1,))


@pytest.mark.invariant("controller.no-eligible-behind-commit")
def test_nobody_stays_eligible_when_the_least_size_is_lowered_to_what_is_there() -> None:
    """From then on node 1 commits alone, and node 2 no longer has everything: one decision says both."""
    scene = scene_of_three(min_insync_replicas="2")
    scene.set_in_sync(1)
    scene.submit(ConfigureTopic("t", (Change("min.insync.replicas", Operation.SET, "1"),)))
    assert scene.shape() == (1, (1,), ())


def test_the_eligible_are_kept_when_something_else_is_configured() -> None:
    scene = scene_of_three(min_insync_replicas="2")
    scene.set_in_sync(1)
    scene.submit(ConfigureTopic("t", (Change("retention.ms", Operation.SET, "5"),)))
    scene.submit(ConfigureTopic("t", (Change("min.insync.replicas", Operation.SET, "3"),)))
    assert scene.shape() == (1, (1,), (2, 3))


@pytest.mark.invariant("controller.no-eligible-behind-commit")
def test_nobody_stays_eligible_when_what_topics_start_from_changes() -> None:
    scene = Scene(3)
    scene.submit(ConfigureNode(records.EVERY_NODE, (Change("topic.min.insync.replicas", Operation.SET, "2"),)))
    scene.create("t", 1, 2, 3)
    scene.create("own", 1, 2, 3, min_insync_replicas="2")
    for name in ("t", "own"):
        scene.set_in_sync(1, name=name)
        assert scene.shape(name) == (1, (1,), (2, 3))
    scene.submit(ConfigureNode(records.EVERY_NODE, (Change("topic.min.insync.replicas", Operation.DELETE),)))
    assert scene.shape("t") == (1, (1,), ())
    assert scene.shape("own") == (1, (1,), (2, 3))


def test_one_node_alone_is_not_told_another_least_size() -> None:
    scene = scene_of_three()
    command = ConfigureNode(NodeId(1), (Change("topic.min.insync.replicas", Operation.SET, "2"),))
    assert scene.refuses(command).code is ErrorCode.INVALID_CONFIG
