"""Nothing grows without end, and nothing takes long in one go."""

from groups.scene import SESSION_MS, Scene

from penstock.errors import ErrorCode
from penstock.groups import coordinator
from penstock.groups.bounds import GROUPS_PER_LAPSE
from penstock.groups.commands import Leaving, NewOffset
from penstock.groups.states import GroupState
from penstock.simulator.knobs import replaced


def test_groups_that_come_and_go_leave_nothing_behind() -> None:
    scene = Scene()
    for n in range(5_000):
        member_id = scene.joined(scene.join(group=f"g{n}")).member_id
        scene.leave(Leaving(member_id), group=f"g{n}")
    sessions = scene.coordinator._sessions
    assert (sessions.groups, sessions.parked) == ({}, {})
    assert len(sessions.alarms._heap) < 2_000


def test_a_member_that_comes_and_goes_all_day_keeps_one_alarm() -> None:
    scene = Scene()
    for _ in range(3_000):
        member, _ = scene.come()
        scene.leave(Leaving(member))
        scene.wait(0.001)
    assert len(scene.coordinator._sessions.alarms._heap) < 2_000


def test_past_the_bound_a_group_that_is_not_there_yet_must_wait() -> None:
    scene = Scene()
    with replaced([(coordinator, "GROUPS_MAX", 2)]):
        members = [scene.joined(scene.join(group=name)).member_id for name in ("g", "h")]
        assert scene.joined(scene.join(group="i")).error is ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert scene.joined(scene.join(members[0])).error is ErrorCode.NONE, "those that are there go on"
        scene.leave(Leaving(members[1]), group="h")
        assert scene.joined(scene.join(group="i")).error is ErrorCode.MEMBER_ID_REQUIRED


def test_many_groups_that_lapse_at_once_are_taken_in_pieces() -> None:
    scene = Scene()
    names = [f"g{n}" for n in range(GROUPS_PER_LAPSE + 10)]
    for name in names:
        member, _ = scene.come(group=name)
        scene.sync(member, 1, group=name)
    scene.restart()
    scene.sizes.clear()
    scene.wait(SESSION_MS / 1000)
    assert {scene.coordinator.describe(name).state for name in names} == {GroupState.EMPTY}
    assert [size for size in scene.sizes if size] == [GROUPS_PER_LAPSE, 10]


def test_groups_that_only_commit_need_no_session() -> None:
    scene = Scene()
    for n in range(50):
        scene.commit(NewOffset("t", 0, n), group=f"g{n}")
    assert scene.coordinator._sessions.groups == {}
