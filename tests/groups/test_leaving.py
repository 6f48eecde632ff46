"""Good-byes, one or many."""

import pytest
from groups.scene import Scene, settled

from penstock.errors import ErrorCode
from penstock.groups.commands import Leaving
from penstock.groups.states import GroupState


def test_each_of_many_hears_whether_it_was_there_and_the_rest_rebalance_once() -> None:
    scene = Scene()
    leader, follower, third = settled(scene, 3)
    generation = scene.generation
    reply = scene.leave(Leaving(follower), Leaving("nobody"), Leaving(third), Leaving(third))
    assert reply.error is ErrorCode.NONE
    assert [left.member_id for left in reply.members] == [follower, "nobody", third, third]
    assert [left.error for left in reply.members] == [0, 25, 0, 25]
    assert scene.joined(scene.join(leader)).generation == generation + 1


def test_the_last_good_bye_empties_the_group_at_once() -> None:
    scene = Scene()
    names = settled(scene, 2)
    generation = scene.generation
    scene.leave(*(Leaving(name) for name in names))
    assert (scene.state, scene.generation) == (GroupState.EMPTY, generation + 1)
    assert scene.coordinator.describe("g").protocol_type == "consumer"


def test_a_member_that_leaves_while_its_join_is_parked_is_told_so() -> None:
    scene = Scene()
    leader, _ = settled(scene)
    token = scene.join(leader)
    scene.leave(Leaving(leader))
    assert (scene.joined(token).error, scene.joined(token).member_id) == (ErrorCode.UNKNOWN_MEMBER_ID, "")


@pytest.mark.invariant("groups.parked-requests-answered-once")
def test_a_member_that_leaves_while_its_sync_is_parked_is_told_so() -> None:
    scene = Scene()
    leader, follower = settled(scene)
    scene.join(leader)
    scene.join(follower)
    token = scene.sync(follower, scene.generation)
    scene.leave(Leaving(follower))
    assert scene.synced(token).error is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_good_bye_of_nobody_disturbs_nobody() -> None:
    scene = Scene()
    settled(scene)
    scene.leave(Leaving("nobody"), Leaving(""))
    assert scene.state is GroupState.STABLE
