"""What happens when nobody speaks: sessions, joins, syncs and delays end."""

import pytest
from groups.scene import DELAY_MS, REBALANCE_MS, SESSION_MS, Scene, settled

from penstock.errors import ErrorCode
from penstock.groups.bounds import NEW_MEMBER_JOIN_MS
from penstock.groups.commands import Leaving, NewOffset
from penstock.groups.states import GroupState

pytestmark = pytest.mark.invariant("groups.parked-requests-answered-once")

SESSION, REBALANCE, DELAY = SESSION_MS / 1000, REBALANCE_MS / 1000, DELAY_MS / 1000


@pytest.mark.invariant("groups.silent-member-removed")
def test_a_silent_member_lapses_after_its_session_and_the_others_rebalance() -> None:
    scene = Scene()
    leader, follower = settled(scene)
    scene.wait(SESSION - 1)
    assert scene.beat(follower, scene.generation) == ErrorCode.NONE
    scene.wait(2)
    assert (scene.state, scene.members()) == (GroupState.PREPARING, [follower])
    assert scene.beat(leader, scene.generation) == ErrorCode.UNKNOWN_MEMBER_ID
    assert scene.beat(follower, scene.generation) == ErrorCode.REBALANCE_IN_PROGRESS
    assert scene.joined(scene.join(follower)).leader == follower


@pytest.mark.invariant("groups.silent-member-removed")
def test_a_group_whose_members_all_lapse_is_empty_and_says_so_in_the_log() -> None:
    scene = Scene()
    settled(scene)
    generation = scene.generation
    scene.wait(SESSION)
    assert (scene.state, scene.generation) == (GroupState.EMPTY, generation + 1)
    scene.restart()
    assert (scene.state, scene.generation) == (GroupState.EMPTY, generation + 1)


def test_every_kind_of_request_starts_the_session_again() -> None:
    scene = Scene()
    leader, follower = settled(scene)
    requests = [
        lambda: scene.beat(follower, scene.generation),
        lambda: scene.sync(follower, scene.generation),
        lambda: scene.join(follower),
        lambda: scene.commit(NewOffset("t", 0, 1), member_id=follower, generation=scene.generation),
    ]
    for request in requests:
        scene.wait(SESSION - 1)
        request()
        scene.beat(leader, scene.generation)
    assert scene.members() == [leader, follower]


def test_a_member_with_a_parked_join_does_not_lapse() -> None:
    """The frequent bug: its connection is busy with the join, so it cannot send heartbeats."""
    scene = Scene()
    leader, follower, third = settled(scene, 3)
    token = scene.join(leader)
    for _ in range(5):
        scene.wait(SESSION - 1)
        scene.beat(follower, scene.generation)
        scene.beat(third, scene.generation)
    assert scene.is_parked(token)
    assert leader in scene.members()
    scene.join(follower)
    scene.join(third)
    assert len(scene.joined(token).members) == 3


def test_a_member_with_a_parked_sync_does_not_lapse() -> None:
    scene = Scene()
    leader, follower = settled(scene)
    scene.join(leader)
    scene.join(follower)
    token = scene.sync(follower, scene.generation)
    for _ in range(3):
        scene.wait(SESSION - 1)
        scene.beat(leader, scene.generation)
    assert scene.is_parked(token)
    scene.sync(leader, scene.generation, {follower: b"F"})
    assert scene.synced(token).assignment == b"F"
    scene.wait(SESSION - 1)
    assert follower in scene.members(), "its session begins again with the answer"


def test_a_lapse_while_preparing_may_be_all_that_was_waited_for() -> None:
    """The hang to avoid: everybody else has joined, and nobody looks again when the last one lapses."""
    scene = Scene()
    leader, follower = settled(scene)
    token = scene.join(leader)
    scene.wait(SESSION)
    assert scene.joined(token).error is ErrorCode.NONE
    assert (scene.state, scene.members()) == (GroupState.COMPLETING, [leader])
    assert scene.beat(follower, scene.generation) == ErrorCode.UNKNOWN_MEMBER_ID


def test_dynamic_members_that_do_not_join_in_time_are_left_behind() -> None:
    scene = Scene()
    leader, follower = settled(scene, rebalance_ms=20_000)
    token = scene.join(leader, rebalance_ms=20_000)
    for _ in range(4):
        scene.wait(4.9)
        scene.beat(follower, scene.generation)
    assert scene.is_parked(token)
    scene.wait(0.5)
    assert [member.member_id for member in scene.joined(token).members] == [leader]
    assert scene.beat(follower, scene.generation) == ErrorCode.UNKNOWN_MEMBER_ID


def test_the_join_phase_lasts_as_long_as_the_slowest_member_may_take() -> None:
    scene = Scene()
    leader, _ = scene.come(rebalance_ms=20_000)
    follower, _ = scene.come(rebalance_ms=40_000)
    scene.join(leader, rebalance_ms=20_000)
    for name in (follower, leader):
        scene.sync(name, scene.generation)
    token = scene.join(leader, rebalance_ms=20_000)
    for _ in range(7):
        scene.wait(5)
        scene.beat(follower, scene.generation)
    assert scene.is_parked(token), "35 s have gone, the other may take 40"
    scene.wait(5)
    assert scene.joined(token).error is ErrorCode.NONE


def test_members_that_never_ask_for_their_assignment_are_dropped() -> None:
    scene = Scene()
    leader, follower = settled(scene, rebalance_ms=20_000)
    scene.join(leader, rebalance_ms=20_000)
    scene.join(follower, rebalance_ms=20_000)
    token = scene.sync(leader, scene.generation, {leader: b"L"})
    assert scene.synced(token).error is ErrorCode.NONE
    for _ in range(4):
        scene.wait(4.9)
        scene.beat(leader, scene.generation)
        scene.beat(follower, scene.generation)
    assert scene.state is GroupState.STABLE
    scene.wait(0.5)
    assert (scene.state, scene.members()) == (GroupState.PREPARING, [leader])


def test_a_leader_that_never_assigns_is_dropped_and_those_who_waited_join_again() -> None:
    scene = Scene()
    leader, follower = settled(scene, rebalance_ms=20_000)
    scene.join(leader, rebalance_ms=20_000)
    scene.join(follower, rebalance_ms=20_000)
    token = scene.sync(follower, scene.generation)
    for _ in range(4):
        scene.wait(4.9)
        scene.beat(leader, scene.generation)
    scene.wait(0.5)
    assert scene.synced(token).error is ErrorCode.REBALANCE_IN_PROGRESS
    assert (scene.state, scene.members()) == (GroupState.PREPARING, [follower])


def test_when_everybody_has_asked_for_its_assignment_no_time_runs() -> None:
    scene = Scene()
    leader, follower = settled(scene, rebalance_ms=20_000)
    for _ in range(6):
        scene.wait(5)
        scene.beat(leader, scene.generation)
        scene.beat(follower, scene.generation)
    assert (scene.state, scene.members()) == (GroupState.STABLE, [leader, follower])


def test_the_first_join_of_an_empty_group_waits_for_others() -> None:
    scene = Scene(delay_ms=DELAY_MS)
    _, first = scene.come()
    scene.wait(DELAY - 0.1)
    assert scene.is_parked(first)
    scene.wait(0.1)
    assert scene.joined(first).generation == 1


def test_newcomers_prolong_the_first_wait_up_to_the_rebalance_timeout() -> None:
    scene = Scene(delay_ms=DELAY_MS)
    tokens = [scene.come(rebalance_ms=10_000)[1]]
    for _ in range(4):
        scene.wait(2)
        tokens.append(scene.come(rebalance_ms=10_000)[1])
    scene.wait(1.9)
    assert all(scene.is_parked(token) for token in tokens), "9.9 s have gone"
    scene.wait(0.2)
    assert {scene.joined(token).generation for token in tokens} == {1}
    assert len(scene.joined(tokens[0]).members) == 5


def test_without_newcomers_the_first_wait_is_not_prolonged() -> None:
    scene = Scene(delay_ms=DELAY_MS)
    tokens = [scene.come()[1], scene.come()[1]]
    scene.wait(DELAY)
    assert scene.is_parked(tokens[0]), "the second one came during the first wait"
    scene.wait(DELAY)
    assert len(scene.joined(tokens[0]).members) == 2


def test_without_a_delay_the_first_join_is_answered_at_once() -> None:
    scene = Scene(delay_ms=0)
    assert scene.joined(scene.come()[1]).generation == 1


def test_an_empty_group_waits_again_for_its_next_first_member() -> None:
    scene = Scene(delay_ms=DELAY_MS)
    member, token = scene.come()
    scene.wait(DELAY)
    scene.leave(Leaving(member))
    assert scene.state is GroupState.EMPTY
    _, token = scene.come()
    assert scene.is_parked(token)
    scene.wait(DELAY)
    assert scene.joined(token).error is ErrorCode.NONE


def test_a_member_id_that_is_not_used_lapses() -> None:
    scene = Scene()
    pending = scene.joined(scene.join()).member_id
    scene.wait(SESSION - 0.1)
    other = scene.joined(scene.join()).member_id
    assert [listed.group for listed in scene.coordinator.groups()] == ["g"]
    scene.wait(0.2)
    assert scene.joined(scene.join(pending)).error is ErrorCode.UNKNOWN_MEMBER_ID
    scene.wait(SESSION)
    assert scene.joined(scene.join(other)).error is ErrorCode.UNKNOWN_MEMBER_ID
    assert scene.coordinator.groups() == []


def test_a_lapsed_member_id_is_not_waited_for() -> None:
    scene = Scene()
    leader, follower = settled(scene)
    scene.join()
    token = scene.join(leader)
    scene.join(follower)
    assert scene.is_parked(token)
    scene.wait(SESSION)
    assert len(scene.joined(token).members) == 2


def test_the_join_of_a_new_member_does_not_wait_for_ever() -> None:
    """Below version 4 it doesn't know its id, so nothing else would tell that it is gone."""
    long_ms = 4 * NEW_MEMBER_JOIN_MS
    scene = Scene()
    leader, _ = settled(scene, rebalance_ms=long_ms)
    token = scene.join(version=3, rebalance_ms=long_ms)
    for _ in range(NEW_MEMBER_JOIN_MS // 5_000):
        assert scene.is_parked(token)
        scene.wait(5)
        for name in scene.members()[:2]:
            scene.beat(name, scene.generation)
    reply = scene.joined(token)
    assert (reply.error, reply.member_id) == (ErrorCode.UNKNOWN_MEMBER_ID, "")
    assert leader in scene.members()


def test_whoever_hangs_up_is_not_answered_and_lapses_after_its_session() -> None:
    scene = Scene()
    leader, follower = settled(scene)
    token = scene.join(leader)
    scene.hang_up(token)
    other = scene.join(follower)
    assert scene.is_parked(other), "the one that hung up has not joined"
    scene.wait(SESSION - 1)
    assert leader in scene.members()
    scene.wait(1)
    assert scene.is_parked(token)
    assert scene.joined(other).leader == follower
    assert scene.members() == [follower]


def test_whoever_hangs_up_may_come_back_under_its_id() -> None:
    scene = Scene()
    leader, follower = settled(scene)
    scene.hang_up(scene.join(leader))
    scene.join(follower)
    back = scene.join(leader)
    assert len(scene.joined(back).members) == 2
    scene.hang_up(scene.sync(follower, scene.generation))
    assert scene.synced(scene.sync(leader, scene.generation, {follower: b"F"})).error is ErrorCode.NONE
    assert scene.synced(scene.sync(follower, scene.generation)).assignment == b"F"


def test_hanging_up_on_an_answer_that_has_come_changes_nothing() -> None:
    scene = Scene()
    member, token = scene.come()
    scene.hang_up(token)
    scene.hang_up(12345)
    assert scene.members() == [member]


def test_loaded_members_have_a_full_session() -> None:
    scene = Scene()
    leader, follower = settled(scene)
    scene.wait(SESSION - 1)
    scene.restart()
    scene.wait(SESSION - 1)
    assert scene.beat(leader, scene.generation) == ErrorCode.NONE
    scene.wait(1)
    assert (scene.state, scene.members()) == (GroupState.PREPARING, [leader])
    assert scene.beat(follower, scene.generation) == ErrorCode.UNKNOWN_MEMBER_ID


def test_a_rebalance_under_way_is_forgotten_by_a_restart() -> None:
    scene = Scene()
    leader, follower = settled(scene)
    generation = scene.generation
    scene.join(leader)
    scene.join(follower)
    assert scene.generation == generation + 1
    scene.restart()
    assert (scene.state, scene.generation) == (GroupState.STABLE, generation)
    assert scene.synced(scene.sync(leader, generation + 1)).error is ErrorCode.ILLEGAL_GENERATION
    assert scene.synced(scene.sync(leader, generation)).assignment == leader.encode()


def test_an_initial_wait_in_which_everybody_leaves_ends_in_an_empty_group() -> None:
    scene = Scene(delay_ms=DELAY_MS)
    member, token = scene.come()
    scene.leave(Leaving(member))
    assert scene.joined(token).error is ErrorCode.UNKNOWN_MEMBER_ID
    scene.wait(DELAY)
    assert scene.state is GroupState.EMPTY
    scene.wait(REBALANCE)
    assert scene.joined(scene.join(member)).error is ErrorCode.UNKNOWN_MEMBER_ID
