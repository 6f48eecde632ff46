"""A decision whose records could not be stored is as if it had never been taken: nothing is lost but time."""

import pytest
from groups.scene import SESSION_MS, Scene, settled

from penstock.errors import ErrorCode
from penstock.groups.bounds import EMPTY_AGAIN_MS
from penstock.groups.commands import CommitOffsets, LeaveGroup, Leaving, NewOffset
from penstock.groups.states import GroupState

pytestmark = pytest.mark.invariant("groups.unstored-decision-void")


def test_an_assignment_that_could_not_be_stored_can_be_sent_again() -> None:
    scene = Scene()
    leader, follower = settled(scene)
    scene.join(leader)
    scene.join(follower)
    generation = scene.generation
    scene.sync(follower, generation)
    scene.is_disk_full = True
    scene.sync(leader, generation, {leader: b"1", follower: b"2"})
    assert scene.state is GroupState.COMPLETING
    scene.is_disk_full = False
    waiting = scene.sync(follower, generation)
    assert scene.synced(scene.sync(leader, generation, {leader: b"3", follower: b"4"})).assignment == b"3"
    assert scene.synced(waiting).assignment == b"4"


def test_a_static_member_whose_new_id_could_not_be_stored_keeps_the_old_one() -> None:
    scene = Scene()
    a = scene.joined(scene.join(instance="a")).member_id
    scene.sync(a, 1, {a: b"A"}, instance="a")
    scene.is_disk_full = True
    scene.join(instance="a")
    assert scene.beat(a, 1, instance="a") == ErrorCode.NONE
    scene.is_disk_full = False
    fresh = scene.joined(scene.join(instance="a")).member_id
    assert scene.beat(fresh, 1, instance="a") == ErrorCode.NONE


def test_an_empty_group_that_could_not_be_stored_says_so_again() -> None:
    scene = Scene()
    settled(scene)
    scene.is_disk_full = True
    scene.wait(SESSION_MS / 1000)
    assert scene.state is GroupState.PREPARING
    scene.is_disk_full = False
    scene.wait(EMPTY_AGAIN_MS / 1000)
    assert scene.state is GroupState.EMPTY
    scene.restart()
    assert scene.state is GroupState.EMPTY


def test_a_group_that_could_not_become_empty_takes_new_members() -> None:
    scene = Scene()
    leader, follower = settled(scene)
    scene.is_disk_full = True
    scene.ask(LeaveGroup(token="bye", group="g", members=(Leaving(leader), Leaving(follower))))
    scene.is_disk_full = False
    newcomer, token = scene.come(protocol_type="connect")
    assert (scene.joined(token).leader, scene.joined(token).protocol_type) == (newcomer, "connect")


def test_a_commit_that_could_not_be_stored_has_not_happened() -> None:
    scene = Scene()
    scene.commit(NewOffset("t", 0, 1))
    scene.is_disk_full = True
    scene.ask(CommitOffsets(token="c", group="g", offsets=(NewOffset("t", 0, 2),)))
    assert scene.offset("t", 0).offset == 1
