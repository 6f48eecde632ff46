"""Assignments: the leader's alone, recorded before anybody hears of them."""

from groups.scene import Scene, settled

from penstock.errors import ErrorCode
from penstock.groups.states import GroupState


def test_only_the_leaders_assignment_counts() -> None:
    scene = Scene()
    leader, follower = settled(scene)
    scene.join(leader)
    scene.join(follower)
    token = scene.sync(follower, scene.generation, {leader: b"mine", follower: b"all"})
    assert scene.synced(scene.sync(leader, scene.generation, {leader: b"half"})).assignment == b"half"
    assert scene.synced(token).assignment == b"", "a member that the leader forgot gets nothing"


def test_a_member_that_thinks_of_another_protocol_is_told_so() -> None:
    scene = Scene()
    leader, _ = settled(scene)
    error = ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert scene.synced(scene.sync(leader, scene.generation, protocol="sticky")).error is error
    assert scene.synced(scene.sync(leader, scene.generation, protocol_type="connect")).error is error
    assert scene.synced(scene.sync(leader, scene.generation, protocol_type="consumer", protocol="range")).error is ErrorCode.NONE


def test_a_second_sync_of_a_member_takes_the_place_of_the_first() -> None:
    scene = Scene()
    leader, follower = settled(scene)
    scene.join(leader)
    scene.join(follower)
    first = scene.sync(follower, scene.generation)
    second = scene.sync(follower, scene.generation)
    assert scene.synced(first).error is ErrorCode.NOT_COORDINATOR
    scene.sync(leader, scene.generation, {follower: b"F"})
    assert scene.synced(second).assignment == b"F"


def test_a_group_too_large_to_record_is_refused_and_asked_to_try_again() -> None:
    scene = Scene()
    leader, follower = settled(scene)
    scene.join(leader)
    scene.join(follower)
    waiting = scene.sync(follower, scene.generation)
    too_much = {leader: bytes(9 << 20), follower: bytes(9 << 20)}
    assert scene.synced(scene.sync(leader, scene.generation, too_much)).error is ErrorCode.UNKNOWN_SERVER_ERROR
    assert scene.synced(waiting).error is ErrorCode.UNKNOWN_SERVER_ERROR
    assert scene.state is GroupState.PREPARING
    assert scene.join(leader) and scene.join(follower)
    assert scene.state is GroupState.COMPLETING
