"""What groups take in memory is counted and bounded; whoever takes no more than before is never refused."""

import pytest
from groups.scene import Scene, settled

from penstock.broker.connection import OTHER_FRAME_BYTES_MAX
from penstock.errors import ErrorCode
from penstock.groups.bounds import GROUP_BYTES_MAX, MEMBERS_BYTES_MAX
from penstock.groups.commands import Leaving, NewOffset
from penstock.groups.replies import SyncReply
from penstock.groups.states import GroupState

KIB = 1024


def says(size: int) -> tuple[tuple[str, bytes], ...]:
    return (("range", bytes(size)),)


def test_a_newcomer_that_does_not_fit_comes_again_and_members_go_on() -> None:
    scene = Scene(bytes_max=200 * KIB)
    (member,) = settled(scene, 1, protocols=says(90 * KIB))
    assert scene.joined(scene.join(group="h", protocols=says(150 * KIB))).error is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert [listed.group for listed in scene.coordinator.groups()] == ["g"], "nothing is kept of it"
    assert scene.joined(scene.join(member, protocols=says(90 * KIB))).error is ErrorCode.NONE, "the same again"
    scene.bytes_max = 0
    assert scene.joined(scene.join(member, protocols=says(80 * KIB))).error is ErrorCode.NONE, "less"
    assert scene.joined(scene.join(member, protocols=says(90 * KIB))).error is ErrorCode.COORDINATOR_NOT_AVAILABLE, "more"
    assert scene.synced(scene.sync(member, scene.generation, {member: b"a"})).error is ErrorCode.NONE


def test_a_static_member_comes_back_to_a_full_node() -> None:
    scene = Scene()
    scene.sync(scene.joined(scene.join(instance="i")).member_id, 1)
    scene.bytes_max = 0
    assert scene.joined(scene.join(instance="i")).error is ErrorCode.NONE
    assert scene.joined(scene.join(instance="j")).error is ErrorCode.COORDINATOR_NOT_AVAILABLE


def test_assignments_that_do_not_fit_are_refused_and_the_others_wait_for_the_leader_to_come_again() -> None:
    scene = Scene(bytes_max=100 * KIB)
    leader, follower = settled(scene)
    for name in (leader, follower):
        scene.join(name)
    waiting = scene.sync(follower, scene.generation)
    assignments = {leader: b"L", follower: bytes(100 * KIB)}
    assert scene.synced(scene.sync(leader, scene.generation, assignments)).error is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert scene.is_parked(waiting)
    assert scene.state is GroupState.COMPLETING
    scene.bytes_max = 200 * KIB
    assert scene.synced(scene.sync(leader, scene.generation, assignments)) == SyncReply(
        protocol_type="consumer", protocol_name="range", assignment=b"L"
    )
    assert scene.synced(waiting).assignment == bytes(100 * KIB)


def test_a_group_that_assigns_as_much_as_before_is_not_refused() -> None:
    scene = Scene()
    leader, follower = settled(scene)
    assignments = {leader: bytes(KIB), follower: bytes(KIB)}
    for bytes_max in (1 << 20, 0):
        scene.bytes_max = bytes_max
        for name in (leader, follower):
            scene.join(name)
        assert scene.synced(scene.sync(leader, scene.generation, assignments)).error is ErrorCode.NONE


def test_a_commit_that_does_not_fit_comes_again_and_what_is_there_can_be_committed() -> None:
    scene = Scene()
    scene.commit(NewOffset("t", 0, 1, metadata="note"))
    scene.bytes_max = scene.coordinator.held_bytes + 1_000
    codes = scene.commit(NewOffset("t", 0, 2, metadata="Note"), NewOffset("t", 1, 1, metadata=700 * "x"), NewOffset("t", 2, 1))
    assert codes == [ErrorCode.NONE, ErrorCode.NONE, ErrorCode.COORDINATOR_NOT_AVAILABLE]
    assert scene.commit(NewOffset("t", 0, 3, metadata=1_000 * "x")) == [ErrorCode.COORDINATOR_NOT_AVAILABLE]
    assert scene.offsets() == {("t", 0): 2, ("t", 1): 1}


def test_what_is_counted_holds_after_a_restart_and_what_is_gone_takes_nothing() -> None:
    scene = Scene()
    leader, follower = settled(scene, protocols=says(KIB))
    scene.commit(NewOffset("t", 0, 1, metadata="ünïcode"), NewOffset("u", 0, 1), member_id=leader, generation=scene.generation)
    scene.commit(NewOffset("t", 0, 2), member_id=leader, generation=scene.generation)
    held_bytes = scene.coordinator.held_bytes
    assert held_bytes > 2 * KIB
    scene.restart()
    assert scene.coordinator.held_bytes == held_bytes
    given = scene.joined(scene.join(protocols=says(KIB))).member_id
    assert scene.coordinator.held_bytes > held_bytes, "an id that was given away counts"
    scene.join(leader, protocols=says(3 * KIB))
    assert scene.coordinator.held_bytes > held_bytes + 3 * KIB, "a rebalance under way counts"
    scene.leave(Leaving(given), Leaving(leader), Leaving(follower))
    scene.delete_group()
    assert scene.coordinator.held_bytes == 0


def test_what_one_request_can_bring_fits_beside_what_the_members_say() -> None:
    assert MEMBERS_BYTES_MAX + OTHER_FRAME_BYTES_MAX <= GROUP_BYTES_MAX


@pytest.mark.parametrize("is_known", [False, True])
def test_a_group_whose_members_say_too_much_takes_no_more(is_known: bool) -> None:
    scene = Scene()
    mebibyte = says((1 << 20) - KIB)
    members = settled(scene, 5, protocols=says(KIB))
    for name in members[:4]:
        scene.join(name, protocols=mebibyte)
    scene.join(members[4], protocols=says(KIB))
    assert scene.state is GroupState.COMPLETING
    one_more = scene.join(members[4] if is_known else "", protocols=mebibyte)
    assert scene.joined(one_more).error is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert scene.state is GroupState.COMPLETING
