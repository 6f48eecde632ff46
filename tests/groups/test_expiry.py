"""Offsets are forgotten when nobody has needed them for long (KIP-211)."""

import pytest
from groups.scene import SESSION_MS, Scene
from groups.test_offsets import subscription

from penstock.groups import group
from penstock.groups.bounds import OFFSETS_PER_SLICE
from penstock.groups.commands import Leaving, NewOffset
from penstock.groups.states import GroupState
from penstock.simulator.knobs import replaced
from penstock.wire.consumer_protocol import read_subscription

pytestmark = pytest.mark.invariant("groups.committed-offset-changes")

DAY = 24 * 3_600
CHECK = 600
RETENTION = 7 * DAY


def member_of(scene: Scene, *topics: str, protocol_type: str = "consumer") -> str:
    member, _ = scene.come(protocols=subscription(*topics), session_ms=1_800_000, protocol_type=protocol_type)
    scene.sync(member, scene.generation)
    return member


def keep_alive(scene: Scene, member: str, seconds: float) -> None:
    end = scene.now + seconds
    while scene.now < end:
        scene.wait(min(1_000, end - scene.now))
        assert scene.beat(member, scene.generation) == 0


def test_the_offsets_of_an_empty_group_go_seven_days_after_its_last_member() -> None:
    scene = Scene()
    member = member_of(scene, "t")
    scene.commit(NewOffset("t", 0, 1), member_id=member, generation=scene.generation)
    keep_alive(scene, member, 8 * DAY)
    assert scene.offsets() == {("t", 0): 1}, "a group with members keeps them"
    scene.leave(Leaving(member))
    scene.wait(RETENTION - CHECK)
    assert scene.offsets() == {("t", 0): 1}
    scene.wait(3 * CHECK)
    assert scene.offsets() == {}
    assert scene.state is GroupState.DEAD, "an empty group goes with its last offset"
    scene.restart()
    assert scene.coordinator.groups() == []


def test_the_offsets_of_a_consumer_without_a_group_go_by_their_last_commit() -> None:
    scene = Scene()
    scene.commit(NewOffset("t", 0, 1), NewOffset("t", 1, 1))
    scene.wait(3 * DAY)
    scene.commit(NewOffset("t", 1, 2))
    scene.wait(4 * DAY + 2 * CHECK)
    assert scene.offsets() == {("t", 1): 2}
    scene.wait(3 * DAY)
    assert scene.coordinator.groups() == []


def test_a_stable_group_forgets_topics_that_it_reads_no_more() -> None:
    scene = Scene()
    member = member_of(scene, "read")
    scene.commit(NewOffset("read", 0, 1), NewOffset("dropped", 0, 2), member_id=member, generation=scene.generation)
    keep_alive(scene, member, RETENTION + 2 * CHECK)
    assert scene.offsets() == {("read", 0): 1}


def test_a_group_of_another_kind_keeps_everything_while_it_has_members() -> None:
    scene = Scene()
    member = member_of(scene, "read", protocol_type="connect")
    scene.commit(NewOffset("other", 0, 2), member_id=member, generation=scene.generation)
    keep_alive(scene, member, RETENTION + 2 * CHECK)
    assert scene.offsets() == {("other", 0): 2}


def test_a_commit_may_bring_its_own_retention() -> None:
    scene = Scene()
    scene.commit(NewOffset("t", 0, 1), retention_ms=DAY * 1000)
    scene.commit(NewOffset("t", 1, 1), retention_ms=30 * DAY * 1000)
    scene.commit(NewOffset("t", 2, 1), retention_ms=2**63 - 1)
    scene.restart()
    scene.wait(DAY + CHECK)
    assert scene.offsets() == {("t", 1): 1, ("t", 2): 1}
    scene.wait(20 * DAY)
    assert scene.offsets() == {("t", 1): 1, ("t", 2): 1}


def test_a_group_that_comes_back_in_time_keeps_its_offsets() -> None:
    scene = Scene()
    member = member_of(scene, "t")
    scene.commit(NewOffset("t", 0, 1), member_id=member, generation=scene.generation)
    scene.leave(Leaving(member))
    scene.wait(6 * DAY)
    scene.leave(Leaving(member_of(scene, "t")))
    scene.wait(6 * DAY)
    assert scene.offsets() == {("t", 0): 1}


def test_what_an_admin_commits_for_an_empty_group_is_kept_as_long() -> None:
    scene = Scene()
    member = member_of(scene, "t")
    scene.commit(NewOffset("t", 0, 1), NewOffset("t", 1, 1), member_id=member, generation=scene.generation)
    scene.leave(Leaving(member))
    scene.wait(6 * DAY)
    scene.commit(NewOffset("t", 0, 5))
    scene.wait(2 * DAY)
    assert scene.offsets() == {("t", 0): 5}


def test_an_empty_group_that_never_committed_goes_at_the_next_look() -> None:
    scene = Scene()
    scene.leave(Leaving(member_of(scene, "t")))
    assert scene.state is GroupState.EMPTY
    scene.wait(CHECK + 1)
    assert scene.state is GroupState.DEAD


def test_a_group_is_not_forgotten_under_a_member_to_be() -> None:
    scene = Scene()
    scene.leave(Leaving(member_of(scene, "t")))
    scene.wait(CHECK - SESSION_MS / 2000)
    pending = scene.joined(scene.join()).member_id
    generation = scene.generation
    scene.wait(SESSION_MS / 2000 + 1)
    assert scene.joined(scene.join(pending)).generation == generation + 1


def test_a_long_sweep_is_taken_in_slices() -> None:
    scene = Scene(offsets_retention_check_interval_ms=DAY * 1000)
    for number in range(3):
        scene.commit(*(NewOffset(f"t{n}", p, 1) for n in range(10) for p in range(OFFSETS_PER_SLICE // 10)), group=f"g{number}")
    scene.sizes.clear()
    scene.wait(RETENTION + DAY)
    assert scene.coordinator.groups() == []
    assert sum(scene.sizes) == 3 * OFFSETS_PER_SLICE
    assert max(scene.sizes) < 2 * OFFSETS_PER_SLICE


@pytest.mark.parametrize("is_restarted", [False, True])
def test_what_the_members_read_is_taken_apart_once_however_many_topics_there_are(is_restarted: bool) -> None:
    scene = Scene()
    member = member_of(scene, *(f"read{n}" for n in range(50)))
    scene.commit(*(NewOffset(f"t{n}", 0, 1) for n in range(1_000)), member_id=member, generation=scene.generation)
    if is_restarted:
        scene.restart()
    looks: list[bytes] = []

    def counted(content: bytes) -> list[str] | None:
        looks.append(content)
        return read_subscription(content)

    with replaced([(group, "read_subscription", counted)]):
        scene.wait(CHECK)
        assert len(looks) == 1
        scene.delete_offsets(*((f"t{n}", 0) for n in range(1_000)))
        assert len(looks) == 1
        assert scene.offsets() == {}


def test_names_that_the_members_read_count_in_a_slice() -> None:
    scene = Scene(offsets_retention_check_interval_ms=8 * DAY * 1000)
    member = member_of(scene, *(f"read{n}" for n in range(OFFSETS_PER_SLICE)))
    scene.commit(*(NewOffset(f"t{n}", 0, 1) for n in range(10)), member_id=member, generation=scene.generation)
    scene.sizes.clear()
    keep_alive(scene, member, 8 * DAY + 1)
    assert [size for size in scene.sizes if size] == [1, 9]


def test_a_sweep_during_which_offsets_are_committed_keeps_them() -> None:
    scene = Scene(offsets_retention_check_interval_ms=DAY * 1000)
    names = [NewOffset(f"t{n}", p, 1) for n in range(10) for p in range(OFFSETS_PER_SLICE // 5)]
    scene.commit(*names)
    scene.wait(RETENTION - 1)
    while len(scene.offsets()) == len(names):
        scene.wait_for_one()
    assert scene.offsets(), "the sweep goes on"
    scene.commit(NewOffset("t9", 0, 2))
    scene.wait(1)
    assert scene.offsets() == {("t9", 0): 2}
