"""Partitions move to other nodes: begun, followed, finished, given up, replaced."""

import pytest
from cluster.scene import Scene, code_of

from penstock.cluster import records
from penstock.cluster.commands import Reassignment, ReassignPartitions
from penstock.errors import ErrorCode
from penstock.vocabulary import NO_NODE

pytestmark = pytest.mark.invariant("controller.reassignment-keeps-copies", "controller.decisions-have-no-side-effect")


def scene_of_five(**overrides: str) -> Scene:
    scene = Scene(5)
    scene.create("t", 1, 2, **overrides)
    return scene


def replicas(scene: Scene) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
    """(replicas, adding, removing)"""
    state = scene.partition()
    return state.replicas, state.adding, state.removing


def test_the_old_replicas_leave_when_all_new_ones_are_in_sync_and_a_new_one_leads() -> None:
    scene = scene_of_five()
    reply = scene.reassign(3, 4)
    assert isinstance(reply, records.PartitionChange) and reply.adding == (3, 4)
    assert replicas(scene) == ((3, 4, 1, 2), (3, 4), (1, 2))
    assert scene.shape() == (1, (1, 2), ())
    scene.set_in_sync(1, 2, 4)
    assert replicas(scene) == ((3, 4, 1, 2), (3, 4), (1, 2))
    scene.set_in_sync(1, 2, 4, 3)
    assert replicas(scene) == ((3, 4), (), ())
    state = scene.partition()
    assert (state.leader, state.in_sync, state.leader_epoch) == (3, (4, 3), 1)


def test_an_epoch_begins_when_a_replica_leaves_though_the_leader_stays() -> None:
    """What the one that left has reported does not count for the copy that it makes when it comes back."""
    scene = scene_of_five()
    scene.reassign(1, 3)
    scene.set_in_sync(1, 2, 3)
    assert replicas(scene) == ((1, 3), (), ())
    assert scene.shape() == (1, (1, 3), ())
    assert scene.partition().leader_epoch == 1
    scene.reassign(1, 2, 3)
    assert scene.partition().leader_epoch == 1, "nobody left"
    scene.reassign()
    assert replicas(scene) == ((1, 3), (), ())
    assert scene.partition().leader_epoch == 2


def test_another_order_holds_at_once() -> None:
    scene = scene_of_five()
    scene.reassign(2, 1)
    assert replicas(scene) == ((2, 1), (), ())
    assert scene.partition().leader == 1, "leadership moves by election"


def test_asking_for_what_is_so_stores_nothing() -> None:
    scene = scene_of_five()
    version = scene.image.version
    scene.reassign(1, 2)
    assert scene.image.version == version
    scene.reassign(3, 2)
    version = scene.image.version
    scene.reassign(3, 2)
    assert scene.image.version == version


def test_fewer_replicas_hold_at_once_where_enough_of_them_are_in_sync() -> None:
    scene = Scene(3)
    scene.create("t", 1, 2, 3, min_insync_replicas="2")
    scene.set_in_sync(1, 2)
    scene.reassign(2, 3)
    assert replicas(scene) == ((2, 3, 1), (), (1,)), "of the two that stay, only one is in sync"
    scene.set_in_sync(1, 2, 3)
    assert replicas(scene) == ((2, 3), (), ())
    assert scene.shape() == (2, (2, 3), ())


def test_giving_up_takes_the_new_ones_away_whether_they_lead_or_not() -> None:
    scene = scene_of_five()
    scene.reassign(3, 4)
    scene.set_in_sync(1, 2, 3)
    scene.fence(1, 2)
    assert scene.shape() == (3, (3,), ())
    assert code_of(scene.reassign()) is ErrorCode.INVALID_REPLICA_ASSIGNMENT, "only the new one has everything"
    scene.come_up(1)
    scene.set_in_sync(3, 1)
    scene.reassign()
    assert replicas(scene) == ((1, 2), (), ())
    assert scene.shape() == (1, (1,), ())


def test_a_wish_replaces_the_one_under_way() -> None:
    scene = scene_of_five()
    scene.reassign(3, 4)
    scene.set_in_sync(1, 2, 3)
    scene.reassign(3, 5)
    assert replicas(scene) == ((3, 5, 1, 2), (3, 5), (1, 2))
    scene.reassign()
    assert replicas(scene) == ((1, 2), (), ())


def test_a_wish_that_replaces_another_keeps_whoever_alone_has_everything() -> None:
    scene = scene_of_five()
    scene.reassign(3, 4)
    scene.set_in_sync(1, 2, 3)
    scene.fence(1, 2)
    scene.reassign(4, 5)
    assert replicas(scene) == ((4, 5, 3, 1, 2), (4, 5), (3, 1, 2))
    assert scene.shape() == (3, (3,), ())


def test_the_dead_are_moved_away_from_too() -> None:
    scene = scene_of_five(min_insync_replicas="2")
    scene.fence(1)
    assert scene.shape() == (2, (2,), (1,))
    scene.reassign(2, 3)
    scene.set_in_sync(2, 3)
    assert replicas(scene) == ((2, 3), (), ())
    assert scene.shape() == (2, (2, 3), ())


def test_nothing_is_finished_while_nobody_leads() -> None:
    scene = scene_of_five()
    scene.set_in_sync(1)
    scene.fence(1)
    scene.reassign(2)
    assert scene.shape() == (NO_NODE, (), (1,))
    assert replicas(scene) == ((2, 1), (), (1,)), "the only one that has everything is kept"


@pytest.mark.parametrize(
    ("wish", "code"),
    [
        (Reassignment("none", 0, (1,)), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (Reassignment("t", 1, (1,)), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (Reassignment("t", 0, None), ErrorCode.NO_REASSIGNMENT_IN_PROGRESS),
        (Reassignment("t", 0, ()), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (Reassignment("t", 0, (3, 3)), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (Reassignment("t", 0, (3, 9)), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (Reassignment("t", 0, (1, 5)), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (Reassignment("t", 0, (1, 6)), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
    ],
)
def test_a_wish_that_cannot_be_is_refused_with_its_code(wish: Reassignment, code: ErrorCode) -> None:
    scene = scene_of_five()
    scene.fence(5)
    scene.come_up(6, roles=("controller",))
    assert scene.refuses(ReassignPartitions((wish,))).code is code


def test_wishes_stand_or_fall_each_by_itself() -> None:
    scene = scene_of_five()
    replies = scene.submit(ReassignPartitions((Reassignment("none", 0, (1,)), Reassignment("t", 0, (2, 1)))))  # type: ignore[arg-type]
    assert [code_of(reply) for reply in replies] == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.NONE]
    assert scene.partition().replicas == (2, 1)
