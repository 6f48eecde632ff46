"""Consumer groups at a node: joining, assigning, staying and leaving."""

import pytest
from members import QUICK, Member, commit, member, offsets_of, opened, stable
from serving import Serving
from waiting import until_async

from penstock.broker.coordinators import partition_of
from penstock.broker.groups import CONSUMER_OFFSETS
from penstock.wire.api_keys import ApiKey

ALL_LOOPS = True


# Finding the coordinator


@pytest.mark.parametrize("version", range(7))
async def test_whoever_asks_first_has_the_topic_made(serving: Serving, version: int) -> None:
    await serving.open(**QUICK)
    line = await serving.line()
    answer = await line.ask(ApiKey.FIND_COORDINATOR, version, key="g", key_type=0, coordinator_keys=["g", "h"])
    rows = answer.coordinators if version >= 4 else [answer]
    for row in rows:
        assert (row.error_code, row.node_id, row.host, row.port) == (0, 1, *serving.address)
    if version >= 4:
        assert [row.key for row in rows] == ["g", "h"]
    (topic,) = [topic for topic in (await line.ask(ApiKey.METADATA, topics=None)).topics if topic.name == CONSUMER_OFFSETS]
    assert topic.is_internal
    assert len(topic.partitions) == 4


async def test_two_who_ask_at_once_get_one_topic(serving: Serving) -> None:
    await serving.open(**QUICK)
    lines = [await serving.line() for _ in range(5)]
    for line in lines:
        line.send(ApiKey.FIND_COORDINATOR, key_type=0, coordinator_keys=["g"])
    for line in lines:
        assert (await line.receive()).coordinators[0].error_code == 0


@pytest.mark.parametrize("key_type", [2, 9])
async def test_only_groups_and_transactions_are_coordinated(serving: Serving, key_type: int) -> None:
    line = await opened(serving)
    answer = await line.ask(ApiKey.FIND_COORDINATOR, key_type=key_type, coordinator_keys=["x"])
    assert answer.coordinators[0].error_code == 42


async def test_a_topic_that_cannot_be_made_leaves_no_coordinator(serving: Serving) -> None:
    await serving.open(**QUICK | {"partitions_max": 3})
    line = await serving.line()
    answer = await line.ask(ApiKey.FIND_COORDINATOR, key_type=0, coordinator_keys=["g"])
    assert answer.coordinators[0].error_code == 15
    one = Member(line, "g")
    assert (await one.join()).error_code == 16
    assert await commit(line, "g", "nothing", {0: 1}) == {0: 3}


@pytest.mark.parametrize(
    ("name", "java_hash"), [("", 0), ("Aa", 2112), ("BB", 2112), ("hello", 99162322), ("polygenelubricants", -(2**31)), ("😀", 1772899)]
)
def test_groups_lie_where_java_would_look_for_them(name: str, java_hash: int) -> None:
    assert partition_of(name, 50) == (0 if java_hash == -(2**31) else abs(java_hash) % 50)


# One member


@pytest.mark.parametrize("version", range(10))
async def test_a_first_member_leads_its_group(serving: Serving, version: int) -> None:
    await opened(serving)
    one = await member(serving)
    answer = await one.join(version)
    assert answer.error_code == 0
    assert answer.generation_id == 1
    assert answer.leader == answer.member_id == one.member_id
    assert answer.protocol_name == "range"
    assert [(row.member_id, row.metadata) for row in answer.members] == [(one.member_id, b"subscription")]
    assert one.member_id.startswith("test-")
    if version >= 7:
        assert answer.protocol_type == "consumer"


@pytest.mark.parametrize("version", range(6))
async def test_the_leader_is_assigned_what_it_assigned(serving: Serving, version: int) -> None:
    await opened(serving)
    one = await member(serving)
    await one.join()
    answer = await one.sync(version, {one.member_id: b"everything"})
    assert (answer.error_code, answer.assignment) == (0, b"everything")
    if version >= 5:
        assert (answer.protocol_type, answer.protocol_name) == ("consumer", "range")


@pytest.mark.parametrize("version", range(5))
async def test_a_member_that_says_so_is_alive(serving: Serving, version: int) -> None:
    await opened(serving)
    one = await member(serving)
    await stable(one)
    assert await one.heartbeat(version) == 0
    assert await one.heartbeat(version, generation_id=7) == 22
    assert await one.heartbeat(version, member_id="somebody else") == 25
    assert await one.heartbeat(version, group_id="another") == 25


@pytest.mark.parametrize("version", range(6))
async def test_a_member_that_leaves_is_gone(serving: Serving, version: int) -> None:
    await opened(serving)
    one = await member(serving)
    await stable(one)
    assert await one.leave(version) == 0
    assert await one.heartbeat() == 25
    assert await one.leave(version) == 25


# Several members


async def test_a_newcomer_makes_everybody_join_again(serving: Serving) -> None:
    await opened(serving)
    one, two = await member(serving), await member(serving)
    await stable(one)
    await two.take_id()
    two.send_join()
    await until_async(one.must_rejoin)
    assert await one.heartbeat() == 27
    one.send_join()
    assert (await one.joined()).error_code == (await two.joined()).error_code == 0
    assert one.generation == two.generation == 2
    assert one.leader == two.leader == one.member_id
    assert sorted(one.everybody) == sorted([one.member_id, two.member_id])


async def test_followers_wait_for_what_the_leader_assigns(serving: Serving) -> None:
    await opened(serving)
    one, two = await member(serving), await member(serving)
    await stable(one)
    await two.take_id()
    two.send_join()
    one.send_join()
    await one.joined()
    await two.joined()
    two.send_sync()
    assert await two.line.is_silent()
    answer = await one.sync(assignments={one.member_id: b"0", two.member_id: b"1 and 2"})
    assert answer.assignment == b"0"
    assert (await two.line.receive()).assignment == b"1 and 2"


async def test_a_parked_join_holds_up_no_other_request_and_keeps_its_place(serving: Serving) -> None:
    """The heartbeat behind it is handled at once, and answered after it: replies keep the order of requests."""
    await opened(serving)
    one, two = await member(serving), await member(serving)
    await stable(one)
    await two.take_id()
    two.send_join()
    two.line.send(ApiKey.HEARTBEAT, group_id="other", generation_id=1, member_id="x")
    assert await two.line.is_silent()
    one.send_join()
    await one.joined()
    assert (await two.joined()).error_code == 0
    assert (await two.line.receive()).error_code == 25


# Static members


async def test_a_static_member_that_comes_back_takes_its_place_unnoticed(serving: Serving) -> None:
    await opened(serving)
    one, two = await member(serving, instance_id="one"), await member(serving, instance_id="two")
    await stable(one, two)
    again = await member(serving, instance_id="two")
    answer = await again.join()
    assert answer.error_code == 0
    assert again.generation == two.generation
    assert again.member_id != two.member_id
    assert again.member_id.startswith("two-")
    assert (await again.sync()).assignment == two.member_id.encode()
    assert await one.heartbeat() == 0
    assert await two.heartbeat() == 82
    assert await two.commit("a", {0: 1}) == {0: 82}
    assert (await two.sync()).error_code == 82


async def test_a_static_leader_that_comes_back_is_told_to_skip_the_assignment(serving: Serving) -> None:
    await opened(serving)
    one, two = await member(serving, instance_id="one"), await member(serving, instance_id="two")
    await stable(one, two)
    leader = one if one.is_leader else two
    again = await member(serving, instance_id=leader.instance_id)
    answer = await again.join()
    assert answer.skip_assignment
    assert again.is_leader
    assert len(again.everybody) == 2


async def test_an_admin_shows_a_static_member_out(serving: Serving) -> None:
    line = await opened(serving)
    one = await member(serving, instance_id="one")
    await stable(one)
    members = [{"member_id": "", "group_instance_id": "one"}, {"member_id": "", "group_instance_id": "nobody"}]
    answer = await line.ask(ApiKey.LEAVE_GROUP, group_id="g", members=members)
    assert answer.error_code == 0
    assert [(row.group_instance_id, row.error_code) for row in answer.members] == [("one", 0), ("nobody", 25)]


# Refusals


async def test_each_bad_request_gets_its_own_code_and_changes_nothing(serving: Serving) -> None:
    line = await opened(serving, group_max_size=1)
    one = await member(serving)
    await stable(one)
    two = await member(serving)
    assert (await two.join(session_timeout_ms=QUICK["group_min_session_timeout_ms"] - 1)).error_code == 26
    assert (await two.join(protocol_type="connect")).error_code == 81
    assert (await two.join()).error_code == 81
    nameless = Member(line, "")
    assert (await nameless.join()).error_code == 24
    assert (await nameless.sync(4)).error_code == 24
    assert await nameless.heartbeat() == 24
    assert await nameless.leave() == 24
    assert await one.commit("a", {0: 1}, generation=9) == {0: 22}
    assert await one.commit("a", {0: 1}, member_id="x") == {0: 25}
    assert await commit(line, "g", "a", {0: 1}) == {0: 25}
    assert await one.commit("a", {0: 5, 9: 5}) == {0: 0, 9: 3}
    assert await one.commit("unheard of", {0: 1}) == {0: 3}
    assert await one.commit("a", {1: 1}, metadata="x" * 5_000) == {1: 12}
    assert (await one.sync(assignments={})).error_code == 0
    one.protocol = None
    assert (await one.sync()).error_code == 23
    assert await offsets_of(line, "g", "a", (0, 1, 2)) == {0: 5, 1: -1, 2: -1}
    assert await one.heartbeat() == 0


async def test_members_that_share_no_protocol_do_not_share_a_group(serving: Serving) -> None:
    await opened(serving)
    one, two = await member(serving), await member(serving)
    await stable(one)
    assert (await two.join(protocols=[("sticky", b"")])).error_code == 23
    assert await one.heartbeat() == 0
