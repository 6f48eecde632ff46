"""Members with an instance id: a quick restart disturbs nobody, and of two holders of one id the older is fenced (KIP-345, KIP-814)."""

from groups.scene import REBALANCE_MS, SESSION_MS, Scene

from penstock.errors import ErrorCode
from penstock.groups.commands import Leaving, NewOffset
from penstock.groups.states import GroupState


def static_pair(scene: Scene) -> tuple[str, str]:
    """A Stable group of two static members, "a" who leads and "b"."""
    a = scene.joined(scene.join(instance="a")).member_id
    token = scene.join(instance="b")
    scene.join(a, instance="a")
    b = scene.joined(token).member_id
    scene.sync(b, scene.generation, instance="b")
    scene.sync(a, scene.generation, {a: b"A", b: b"B"}, instance="a")
    assert scene.state is GroupState.STABLE
    return a, b


def test_a_static_member_is_let_in_at_once() -> None:
    scene = Scene()
    reply = scene.joined(scene.join(instance="a"))
    assert (reply.error, reply.generation) == (ErrorCode.NONE, 1)
    assert reply.members[0].instance_id == "a"


def test_a_quick_restart_of_a_follower_disturbs_nobody() -> None:
    scene = Scene()
    a, b = static_pair(scene)
    generation = scene.generation
    reply = scene.joined(scene.join(instance="b"))
    assert (reply.error, reply.generation, reply.leader, reply.skip_assignment) == (ErrorCode.NONE, generation, a, False)
    assert reply.member_id != b
    assert scene.synced(scene.sync(reply.member_id, generation, instance="b")).assignment == b"B"
    assert (scene.state, scene.generation) == (GroupState.STABLE, generation)
    assert scene.beat(a, generation, instance="a") == ErrorCode.NONE


def test_a_second_holder_of_an_instance_id_fences_the_first_in_everything() -> None:
    scene = Scene()
    _, b = static_pair(scene)
    scene.join(instance="b")
    generation = scene.generation
    assert scene.beat(b, generation, instance="b") == ErrorCode.FENCED_INSTANCE_ID
    assert scene.joined(scene.join(b, instance="b")).error is ErrorCode.FENCED_INSTANCE_ID
    assert scene.synced(scene.sync(b, generation, instance="b")).error is ErrorCode.FENCED_INSTANCE_ID
    assert scene.commit(NewOffset("t", 0, 1), member_id=b, generation=generation, instance="b") == [ErrorCode.FENCED_INSTANCE_ID]
    assert scene.leave(Leaving(b, "b")).members[0].error is ErrorCode.FENCED_INSTANCE_ID
    assert scene.beat(b, generation) == ErrorCode.UNKNOWN_MEMBER_ID


def test_the_new_member_id_is_recorded_before_it_is_told() -> None:
    scene = Scene()
    _, b = static_pair(scene)
    fresh = scene.joined(scene.join(instance="b")).member_id
    scene.restart()
    assert scene.beat(fresh, scene.generation, instance="b") == ErrorCode.NONE
    assert scene.beat(b, scene.generation, instance="b") == ErrorCode.FENCED_INSTANCE_ID


def test_a_returning_leader_is_told_to_skip_the_assignment() -> None:
    scene = Scene()
    a, b = static_pair(scene)
    reply = scene.joined(scene.join(instance="a", protocols=(("range", b"again"),)))
    assert (reply.leader, reply.skip_assignment, reply.generation) == (reply.member_id, True, scene.generation)
    assert [(member.member_id, member.metadata) for member in reply.members] == [(reply.member_id, b"again"), (b, b"v1")]
    assert reply.member_id != a
    assert scene.synced(scene.sync(reply.member_id, scene.generation, instance="a")).assignment == b"A"
    assert scene.is_parked(scene.join(reply.member_id, instance="a")), "it still leads, so a join of it begins a rebalance"


def test_below_version_9_a_returning_leader_takes_itself_for_a_follower() -> None:
    scene = Scene()
    a, _ = static_pair(scene)
    reply = scene.joined(scene.join(instance="a", version=8))
    assert (reply.leader, reply.skip_assignment, reply.members) == (a, False, ())
    assert scene.synced(scene.sync(reply.member_id, scene.generation, instance="a")).assignment == b"A"


def test_a_restart_that_changes_the_choice_of_protocol_makes_everybody_join() -> None:
    scene = Scene()
    both = (("range", b""), ("sticky", b""))
    a = scene.joined(scene.join(instance="a", protocols=both)).member_id
    scene.sync(a, 1, {a: b"A"})
    token = scene.join(instance="a", protocols=(("sticky", b""),))
    assert (scene.joined(token).generation, scene.joined(token).protocol_name) == (2, "sticky")
    assert scene.state is GroupState.COMPLETING


def test_a_restart_while_preparing_fences_the_parked_join() -> None:
    scene = Scene()
    a, b = static_pair(scene)
    old = scene.join(a, instance="a")
    new = scene.join(instance="a")
    assert scene.joined(old).error is ErrorCode.FENCED_INSTANCE_ID
    scene.join(b, instance="b")
    reply = scene.joined(new)
    assert (reply.error, reply.leader) == (ErrorCode.NONE, reply.member_id)


def test_a_restart_while_completing_begins_again_because_the_leader_knows_only_the_old_id() -> None:
    scene = Scene()
    a, b = static_pair(scene)
    scene.join(a, instance="a")
    scene.join(b, instance="b")
    waiting = scene.sync(b, scene.generation, instance="b")
    assert scene.is_parked(scene.join(instance="b"))
    assert scene.synced(waiting).error is ErrorCode.FENCED_INSTANCE_ID
    assert scene.state is GroupState.PREPARING
    assert scene.synced(scene.sync(a, scene.generation, {b: b"B"}, instance="a")).error is ErrorCode.REBALANCE_IN_PROGRESS


def test_a_static_member_that_does_not_join_in_time_stays_until_its_session_lapses() -> None:
    scene = Scene()
    a, _ = scene.joined(scene.join(instance="a", session_ms=30_000, rebalance_ms=20_000)).member_id, None
    token = scene.join(instance="b", session_ms=1_800_000, rebalance_ms=20_000)
    scene.join(a, instance="a", session_ms=30_000, rebalance_ms=20_000)
    b = scene.joined(token).member_id
    scene.sync(b, scene.generation, instance="b")
    scene.sync(a, scene.generation, {a: b"A", b: b"B"}, instance="a")
    led = scene.join(a, instance="a", session_ms=30_000, rebalance_ms=20_000)
    scene.wait(20)
    assert {member.member_id for member in scene.joined(led).members} == {a, b}
    assert scene.beat(b, scene.generation, instance="b") == ErrorCode.NONE


def test_a_join_phase_in_which_only_absent_static_members_are_left_goes_on() -> None:
    scene = Scene()
    a = scene.joined(scene.join(instance="a", session_ms=100_000)).member_id
    scene.sync(a, 1, {a: b"A"}, instance="a")
    token = scene.join(a, instance="a", session_ms=100_000, protocols=(("range", b"v2"),))
    scene.sync(a, scene.joined(token).generation, {a: b"A"}, instance="a")
    _, newcomer = scene.come()
    scene.hang_up(newcomer)
    generation = scene.generation
    scene.wait(REBALANCE_MS / 1000 + 1)
    assert (scene.state, scene.generation, scene.members()) == (GroupState.PREPARING, generation, [a])
    back = scene.join(a, instance="a", session_ms=100_000)
    assert scene.joined(back).generation == generation + 1


def test_a_static_member_that_stays_away_lapses_like_any_other() -> None:
    scene = Scene()
    a, b = static_pair(scene)
    scene.wait(SESSION_MS / 1000 - 1)
    scene.beat(a, scene.generation, instance="a")
    scene.wait(1)
    assert scene.members() == [a]
    assert scene.beat(b, scene.generation, instance="b") == ErrorCode.UNKNOWN_MEMBER_ID
    assert scene.joined(scene.join(b, instance="b")).error is ErrorCode.UNKNOWN_MEMBER_ID


def test_an_admin_removes_a_static_member_by_its_instance_id() -> None:
    scene = Scene()
    a, _ = static_pair(scene)
    reply = scene.leave(Leaving("", "b"), Leaving("", "nobody"))
    assert [(left.member_id, left.instance_id, left.error) for left in reply.members] == [
        ("", "b", ErrorCode.NONE),
        ("", "nobody", ErrorCode.UNKNOWN_MEMBER_ID),
    ]
    assert (scene.state, scene.members()) == (GroupState.PREPARING, [a])


def test_a_static_member_returns_to_a_full_group() -> None:
    scene = Scene(group_max_size=2)
    static_pair(scene)
    assert scene.joined(scene.join(instance="c")).error is ErrorCode.GROUP_MAX_SIZE_REACHED
    assert scene.joined(scene.join(instance="b")).error is ErrorCode.NONE


def test_a_static_member_that_returns_before_it_fetched_its_assignment_must_still_do_so() -> None:
    scene = Scene()
    a, b = static_pair(scene)
    scene.join(a, instance="a")
    scene.join(b, instance="b")
    scene.sync(a, scene.generation, {a: b"A", b: b"B2"}, instance="a")
    fresh = scene.joined(scene.join(instance="b")).member_id
    for _ in range(REBALANCE_MS // 5_000):
        assert scene.state is GroupState.STABLE
        scene.beat(a, scene.generation, instance="a")
        scene.beat(fresh, scene.generation, instance="b")
        scene.wait(5)
    assert scene.members() == [a]
