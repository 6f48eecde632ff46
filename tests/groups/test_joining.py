"""Who is let in, with which id, under which protocol."""

import pytest
from groups.scene import DELAY_MS, RANGE, SESSION_MS, Scene, settled

from penstock.errors import ErrorCode
from penstock.groups.bounds import PENDING_MEMBERS_MAX, PROTOCOLS_MAX, SUBSCRIPTION_BYTES_MAX
from penstock.groups.commands import Leaving
from penstock.groups.records import GroupSaved
from penstock.groups.states import GroupState


def test_a_newcomer_is_given_an_id_and_comes_back_with_it() -> None:
    scene = Scene()
    first = scene.joined(scene.join())
    assert (first.error, first.generation) == (ErrorCode.MEMBER_ID_REQUIRED, -1)
    second = scene.joined(scene.join(first.member_id))
    assert (second.error, second.member_id, second.generation) == (ErrorCode.NONE, first.member_id, 1)


def test_below_version_4_a_newcomer_is_let_in_at_once() -> None:
    scene = Scene()
    reply = scene.joined(scene.join(version=3))
    assert (reply.error, reply.generation, reply.leader) == (ErrorCode.NONE, 1, reply.member_id)


def test_only_the_leader_hears_who_the_members_are() -> None:
    scene = Scene()
    leader, _ = scene.come(protocols=(("range", b"from a"),))
    follower, token = scene.come(protocols=(("range", b"from b"),))
    led = scene.joined(scene.join(leader, protocols=(("range", b"from a"),)))
    assert [(member.member_id, member.metadata) for member in led.members] == [(leader, b"from a"), (follower, b"from b")]
    followed = scene.joined(token)
    assert (followed.members, followed.leader, followed.protocol_type, followed.protocol_name) == ((), leader, "consumer", "range")


def test_the_first_to_join_leads_and_the_next_takes_over_when_it_goes() -> None:
    scene = Scene()
    leader, follower, third = settled(scene, 3)
    scene.leave(Leaving(leader))
    tokens = [scene.join(follower), scene.join(third)]
    assert {scene.joined(token).leader for token in tokens} == {follower}


@pytest.mark.parametrize(("session_ms", "error"), [(5_999, 26), (6_000, 0), (1_800_000, 0), (1_800_001, 26)])
def test_a_session_timeout_outside_the_bounds_is_refused(session_ms: int, error: int) -> None:
    scene = Scene()
    assert scene.joined(scene.join(session_ms=session_ms, version=3)).error == error


def test_a_group_needs_a_name() -> None:
    scene = Scene()
    assert scene.joined(scene.join(group="")).error is ErrorCode.INVALID_GROUP_ID
    assert scene.synced(scene.sync("m", 1, group="")).error is ErrorCode.INVALID_GROUP_ID
    assert scene.beat("m", 1, group="") == ErrorCode.INVALID_GROUP_ID
    assert scene.leave(Leaving("m"), group="").error is ErrorCode.INVALID_GROUP_ID


def test_a_subscription_larger_than_a_record_is_refused() -> None:
    scene = Scene()
    assert scene.joined(scene.join(protocols=(("range", bytes(SUBSCRIPTION_BYTES_MAX)),))).error is ErrorCode.INVALID_REQUEST
    assert scene.coordinator.groups() == []


@pytest.mark.parametrize("details", [{"protocols": ()}, {"protocol_type": ""}])
def test_a_first_member_must_say_what_it_speaks(details: dict[str, object]) -> None:
    scene = Scene()
    assert scene.joined(scene.join(**details)).error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert scene.coordinator.groups() == []


@pytest.mark.parametrize("details", [{"protocols": (("sticky", b""),)}, {"protocol_type": "connect"}, {"protocols": ()}])
def test_a_member_that_shares_no_protocol_with_all_others_is_refused(details: dict[str, object]) -> None:
    scene = Scene()
    settled(scene)
    assert scene.joined(scene.join(**details)).error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert scene.state is GroupState.STABLE


def test_the_protocol_is_the_one_that_most_prefer_among_those_that_all_offer() -> None:
    scene = Scene(delay_ms=DELAY_MS)
    offers = ["abx", "bax", "bcx", "xab"]  # All offer b and x; b is first of these for three of them.
    tokens = [scene.come(protocols=tuple((name, name.encode()) for name in offer))[1] for offer in offers]
    scene.wait(60)
    replies = [scene.joined(token) for token in tokens]
    assert {reply.protocol_name for reply in replies} == {"b"}
    assert {member.metadata for member in replies[0].members} == {b"b"}


def test_a_member_offers_no_more_protocols_than_can_be_looked_at() -> None:
    scene = Scene()
    offers = tuple((f"p{n}", b"") for n in range(PROTOCOLS_MAX + 1))
    assert scene.joined(scene.join(protocols=offers)).error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert scene.coordinator.groups() == [], "nothing is kept of it"
    _, token = scene.come(protocols=offers[1:])
    assert scene.joined(token).protocol_name == "p1"


def test_of_equally_wanted_protocols_the_first_members_order_decides() -> None:
    scene = Scene()
    names = [f"p{n}" for n in range(20)]
    first, _ = scene.come(protocols=tuple((name, b"") for name in names))
    _, token = scene.come(protocols=tuple((name, b"") for name in reversed(names[:5])))
    scene.join(first, protocols=tuple((name, b"") for name in names))
    assert scene.joined(token).protocol_name == "p0"


def test_a_rolling_change_of_protocol_ends_in_the_new_one() -> None:
    """First each offers both, then each only the new one: at no time is anybody refused."""
    scene = Scene()
    names = settled(scene)
    chosen = []
    for offer in ((*RANGE, ("sticky", b"s")), (("sticky", b"s"),)):
        for changed in names:
            tokens = [scene.join(changed, protocols=offer)]
            tokens += [scene.join(name, protocols=_offer_of(scene, name)) for name in names if name != changed]
            assert {scene.joined(token).error for token in tokens} == {ErrorCode.NONE}
            chosen.append(scene.joined(tokens[0]).protocol_name)
            for name in reversed(names):
                scene.sync(name, scene.generation)
    assert chosen == ["range", "range", "sticky", "sticky"]


def _offer_of(scene: Scene, name: str) -> tuple[tuple[str, bytes], ...]:
    saved = next(record for record in scene.coordinator.snapshot() if isinstance(record, GroupSaved))
    return next(member.protocols for member in saved.members if member.member_id == name)


def test_a_full_group_refuses_newcomers_and_keeps_its_members() -> None:
    scene = Scene(group_max_size=2)
    leader, follower = settled(scene, 2)
    assert scene.joined(scene.join()).error is ErrorCode.GROUP_MAX_SIZE_REACHED
    assert scene.state is GroupState.STABLE
    tokens = [scene.join(leader), scene.join(follower)]
    assert all(scene.joined(token).error is ErrorCode.NONE for token in tokens)


def test_a_group_above_a_lowered_bound_sheds_those_that_join_last() -> None:
    scene = Scene(group_max_size=3)
    leader, follower, last = settled(scene, 3)
    scene.coordinator.settings = Scene(group_max_size=2).settings
    scene.join(leader)
    token = scene.join(follower)
    assert scene.joined(scene.join(last)).error is ErrorCode.GROUP_MAX_SIZE_REACHED
    assert scene.joined(token).error is ErrorCode.NONE, "the others need not wait for the one that was shown out"
    assert scene.members() == [leader, follower]


def test_member_ids_that_nobody_uses_are_bounded() -> None:
    scene = Scene()
    ids = [scene.joined(scene.join()).member_id for _ in range(PENDING_MEMBERS_MAX + 1)]
    assert scene.joined(scene.join(ids[0])).error is ErrorCode.UNKNOWN_MEMBER_ID
    assert scene.joined(scene.join(ids[1])).error is ErrorCode.NONE


def test_a_given_id_belongs_to_a_dynamic_member() -> None:
    scene = Scene()
    member_id = scene.joined(scene.join()).member_id
    assert scene.joined(scene.join(member_id, instance="i")).error is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_pending_member_is_waited_for() -> None:
    scene = Scene()
    leader, follower = settled(scene)
    pending = scene.joined(scene.join()).member_id
    tokens = [scene.join(leader), scene.join(follower)]
    assert scene.is_parked(tokens[0]) and scene.is_parked(tokens[1])
    scene.join(pending)
    assert len(scene.joined(tokens[0]).members) == 3


def test_a_pending_member_that_leaves_is_not_waited_for() -> None:
    scene = Scene()
    leader, follower = settled(scene)
    pending = scene.joined(scene.join()).member_id
    tokens = [scene.join(leader), scene.join(follower)]
    assert scene.leave(Leaving(pending)).members[0].error is ErrorCode.NONE
    assert len(scene.joined(tokens[0]).members) == 2


@pytest.mark.parametrize("ending", ["lapses", "leaves"])
@pytest.mark.parametrize("is_completing", [False, True])
def test_a_member_id_that_nobody_used_disturbs_no_running_generation(ending: str, is_completing: bool) -> None:
    scene = Scene()
    leader, follower = settled(scene, session_ms=60_000)
    if is_completing:
        scene.join(leader, session_ms=60_000)
        scene.join(follower, session_ms=60_000)
    state, generation = scene.state, scene.generation
    pending = scene.joined(scene.join()).member_id
    if ending == "leaves":
        scene.leave(Leaving(pending))
    else:
        scene.wait(SESSION_MS / 1000 + 1)
    assert scene.joined(scene.join(pending)).error is ErrorCode.UNKNOWN_MEMBER_ID, "it is forgotten"
    assert (scene.state, scene.generation) == (state, generation)
    assert scene.beat(follower, generation) is ErrorCode.NONE


def test_a_member_id_that_a_full_group_takes_back_disturbs_no_running_generation() -> None:
    scene = Scene(group_max_size=3)
    settled(scene)
    pending = scene.joined(scene.join()).member_id
    scene.coordinator.settings = Scene(group_max_size=2).settings
    assert scene.joined(scene.join(pending)).error is ErrorCode.GROUP_MAX_SIZE_REACHED
    assert scene.state is GroupState.STABLE


def test_a_second_join_of_a_member_takes_the_place_of_the_first() -> None:
    scene = Scene()
    leader, follower = settled(scene)
    first = scene.join(leader)
    second = scene.join(leader)
    assert scene.joined(first).error is ErrorCode.NOT_COORDINATOR
    scene.join(follower)
    assert scene.joined(second).error is ErrorCode.NONE


def test_version_0_has_one_timeout_for_both() -> None:
    scene = Scene()
    leader, follower = settled(scene, 2, rebalance_ms=-1)
    scene.join(leader, rebalance_ms=-1)
    for _ in range(4):
        scene.wait(2)
        scene.beat(follower, scene.generation)
    assert scene.state is GroupState.PREPARING
    scene.wait(3)
    assert scene.members() == [leader], "the join phase ends after the session time-out"
