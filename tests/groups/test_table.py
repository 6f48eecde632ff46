"""Every request in every state of a group: one claim for each field of the table."""

import pytest
from groups.scene import Scene, settled

from penstock.errors import ErrorCode
from penstock.groups.commands import Leaving, NewOffset
from penstock.groups.states import MOVES, GroupState

OFFSET = NewOffset("t", 0, 7)


def empty() -> tuple[Scene, str, str]:
    scene = Scene()
    leader, follower = settled(scene)
    scene.leave(Leaving(leader), Leaving(follower))
    return scene, leader, follower


def preparing() -> tuple[Scene, str, str]:
    """A newcomer has joined; the leader and the follower have not joined again."""
    scene = Scene()
    leader, follower = settled(scene)
    scene.come()
    return scene, leader, follower


def completing() -> tuple[Scene, str, str]:
    """Everybody has joined again; the leader hasn't assigned."""
    scene = Scene()
    leader, follower = settled(scene)
    scene.join(leader)
    scene.join(follower)
    return scene, leader, follower


def stable() -> tuple[Scene, str, str]:
    scene = Scene()
    leader, follower = settled(scene)
    return scene, leader, follower


STATES = {
    GroupState.EMPTY: empty, GroupState.PREPARING: preparing, GroupState.COMPLETING: completing, GroupState.STABLE: stable,
}  # fmt: skip


@pytest.mark.parametrize("state", STATES)
def test_the_scenes_of_this_page_are_what_they_say(state: GroupState) -> None:
    scene, _, _ = STATES[state]()
    assert scene.state is state


def test_a_newcomer_to_an_empty_group_begins_a_generation() -> None:
    scene, _, _ = empty()
    before = scene.generation
    newcomer, token = scene.come()
    reply = scene.joined(token)
    assert (reply.error, reply.generation, reply.leader) == (ErrorCode.NONE, before + 1, newcomer)


@pytest.mark.parametrize("group", ["g", "never seen"])
def test_an_old_member_of_an_empty_or_absent_group_is_unknown(group: str) -> None:
    scene, leader, _ = empty()
    assert scene.joined(scene.join(leader, group=group)).error is ErrorCode.UNKNOWN_MEMBER_ID
    assert scene.synced(scene.sync(leader, 3, group=group)).error is ErrorCode.UNKNOWN_MEMBER_ID
    assert scene.beat(leader, 3, group=group) == ErrorCode.UNKNOWN_MEMBER_ID
    assert [left.error for left in scene.leave(Leaving(leader), group=group).members] == [ErrorCode.UNKNOWN_MEMBER_ID]


def test_a_join_while_preparing_waits_for_the_others() -> None:
    scene, leader, follower = preparing()
    token = scene.join(leader)
    assert scene.is_parked(token)
    last = scene.join(follower)
    assert scene.joined(token).generation == scene.joined(last).generation == scene.generation
    assert scene.state is GroupState.COMPLETING


def test_a_join_with_the_same_subscription_while_completing_gets_the_current_generation() -> None:
    scene, leader, follower = completing()
    again = scene.joined(scene.join(follower))
    assert (again.error, again.generation, again.leader, again.members) == (ErrorCode.NONE, scene.generation, leader, ())
    assert len(scene.joined(scene.join(leader)).members) == 2
    assert scene.state is GroupState.COMPLETING


def test_a_join_with_another_subscription_while_completing_begins_again() -> None:
    scene, _, follower = completing()
    token = scene.join(follower, protocols=(("range", b"v2"),))
    assert scene.is_parked(token)
    assert scene.state is GroupState.PREPARING


def test_a_follower_of_a_stable_group_that_joins_unchanged_disturbs_nobody() -> None:
    scene, leader, follower = stable()
    reply = scene.joined(scene.join(follower))
    assert (reply.error, reply.generation, reply.leader, reply.members) == (ErrorCode.NONE, scene.generation, leader, ())
    assert scene.state is GroupState.STABLE


def test_the_leader_of_a_stable_group_joins_to_make_everybody_join() -> None:
    scene, leader, _ = stable()
    assert scene.is_parked(scene.join(leader))
    assert scene.state is GroupState.PREPARING


def test_a_follower_of_a_stable_group_with_another_subscription_makes_everybody_join() -> None:
    scene, _, follower = stable()
    assert scene.is_parked(scene.join(follower, protocols=(("range", b"v2"),)))
    assert scene.state is GroupState.PREPARING


def test_a_newcomer_to_a_stable_group_makes_everybody_join() -> None:
    scene, _, _ = stable()
    _, token = scene.come()
    assert scene.is_parked(token)
    assert scene.state is GroupState.PREPARING


@pytest.mark.parametrize(
    ("state", "error"),
    [
        (GroupState.PREPARING, ErrorCode.REBALANCE_IN_PROGRESS),
        (GroupState.COMPLETING, ErrorCode.NONE),
        (GroupState.STABLE, ErrorCode.NONE),
    ],
)
def test_a_heartbeat_hears_of_a_rebalance_only_while_it_prepares(state: GroupState, error: ErrorCode) -> None:
    scene, leader, _ = STATES[state]()
    assert scene.beat(leader, scene.generation) == error


@pytest.mark.parametrize("state", [GroupState.PREPARING, GroupState.COMPLETING, GroupState.STABLE])
def test_a_heartbeat_keeps_a_member_alive_in_every_state(state: GroupState) -> None:
    scene, leader, _ = STATES[state]()
    for _ in range(4):
        scene.wait(6)
        scene.beat(leader, scene.generation)
    assert leader in scene.members()


def test_a_sync_while_preparing_is_told_to_join() -> None:
    scene, leader, _ = preparing()
    assert scene.synced(scene.sync(leader, scene.generation)).error is ErrorCode.REBALANCE_IN_PROGRESS


def test_followers_wait_for_the_leader_while_completing() -> None:
    scene, leader, follower = completing()
    token = scene.sync(follower, scene.generation)
    assert scene.is_parked(token)
    own = scene.sync(leader, scene.generation, {leader: b"L", follower: b"F"})
    assert (scene.synced(token).assignment, scene.synced(own).assignment) == (b"F", b"L")
    assert scene.state is GroupState.STABLE


def test_a_sync_in_a_stable_group_returns_the_assignment() -> None:
    scene, _, follower = stable()
    reply = scene.synced(scene.sync(follower, scene.generation))
    assert (reply.error, reply.assignment, reply.protocol_name) == (ErrorCode.NONE, follower.encode(), "range")


@pytest.mark.parametrize(
    ("state", "error"),
    [
        (GroupState.PREPARING, ErrorCode.NONE),
        (GroupState.COMPLETING, ErrorCode.REBALANCE_IN_PROGRESS),
        (GroupState.STABLE, ErrorCode.NONE),
    ],
)
def test_a_member_commits_except_between_its_old_and_its_new_assignment(state: GroupState, error: ErrorCode) -> None:
    scene, leader, _ = STATES[state]()
    assert scene.commit(OFFSET, member_id=leader, generation=scene.generation) == [error]
    assert scene.offsets() == ({("t", 0): 7} if error is ErrorCode.NONE else {})


@pytest.mark.parametrize(
    ("state", "error"),
    [
        (GroupState.EMPTY, ErrorCode.NONE),
        (GroupState.PREPARING, ErrorCode.UNKNOWN_MEMBER_ID),
        (GroupState.COMPLETING, ErrorCode.UNKNOWN_MEMBER_ID),
        (GroupState.STABLE, ErrorCode.UNKNOWN_MEMBER_ID),
    ],
)
def test_a_commit_by_nobody_in_particular_is_for_empty_groups(state: GroupState, error: ErrorCode) -> None:
    scene, _, _ = STATES[state]()
    assert scene.commit(OFFSET) == [error]


@pytest.mark.invariant("groups.committed-offset-changes")
@pytest.mark.parametrize("state", [GroupState.PREPARING, GroupState.COMPLETING, GroupState.STABLE])
def test_another_generation_is_illegal(state: GroupState) -> None:
    scene, leader, _ = STATES[state]()
    for generation in (scene.generation - 1, scene.generation + 1):
        assert scene.beat(leader, generation) == ErrorCode.ILLEGAL_GENERATION
        assert scene.synced(scene.sync(leader, generation)).error is ErrorCode.ILLEGAL_GENERATION
        assert scene.commit(OFFSET, member_id=leader, generation=generation) == [ErrorCode.ILLEGAL_GENERATION]
    assert scene.offsets() == {}


@pytest.mark.parametrize("state", STATES)
def test_a_member_of_another_group_is_unknown(state: GroupState) -> None:
    scene, _, _ = STATES[state]()
    assert scene.beat("stranger", scene.generation) == ErrorCode.UNKNOWN_MEMBER_ID
    assert scene.commit(OFFSET, member_id="stranger", generation=scene.generation) == [ErrorCode.UNKNOWN_MEMBER_ID]
    assert scene.joined(scene.join("stranger")).error is ErrorCode.UNKNOWN_MEMBER_ID


@pytest.mark.parametrize("state", [GroupState.COMPLETING, GroupState.STABLE])
def test_a_good_bye_makes_the_others_join(state: GroupState) -> None:
    scene, leader, follower = STATES[state]()
    assert scene.leave(Leaving(follower)).members[0].error is ErrorCode.NONE
    assert scene.state is GroupState.PREPARING
    assert scene.members() == [leader]


def test_a_good_bye_while_preparing_may_be_all_that_was_waited_for() -> None:
    scene, leader, follower = preparing()
    token = scene.join(leader)
    scene.leave(Leaving(follower))
    assert len(scene.joined(token).members) == 2
    assert scene.state is GroupState.COMPLETING


@pytest.mark.parametrize("state", [*STATES, GroupState.DEAD])
def test_offsets_can_always_be_fetched(state: GroupState) -> None:
    scene = Scene() if state is GroupState.DEAD else STATES[state]()[0]
    assert scene.offset("t", 0)[:6] == ("t", 0, -1, -1, "", -1)


def test_a_group_that_is_not_there_is_dead() -> None:
    assert Scene().state is GroupState.DEAD


def test_the_table_of_moves_names_every_state_and_leads_back_from_every_living_one() -> None:
    reached = {GroupState.EMPTY}
    for _ in MOVES:
        reached |= {target for source, target in MOVES if source in reached}
    assert reached == set(GroupState) - {GroupState.ASSIGNING, GroupState.RECONCILING}, "those are of groups of the new protocol"
    assert not [target for source, target in MOVES if source is GroupState.DEAD]
