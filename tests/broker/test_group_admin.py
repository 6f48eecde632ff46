"""Groups seen from outside: listed, described, deleted, their offsets taken away."""

from typing import Any

import pytest
from members import commit, coordinated, member, offsets_of, stable
from serving import Line, Serving

from penstock.groups import committing
from penstock.wire.api_keys import ApiKey

ALL_LOOPS = True

QUICK = {"group_initial_rebalance_delay_ms": 0, "offsets_topic_num_partitions": 4}


async def opened(serving: Serving) -> Line:
    await serving.open(**QUICK)
    line = await serving.line()
    await coordinated(line)
    await line.create("a", 3)
    return line


@pytest.mark.parametrize("version", range(6))
async def test_every_group_is_listed(serving: Serving, version: int) -> None:
    line = await opened(serving)
    assert (await line.ask(ApiKey.LIST_GROUPS, version)).groups == ()
    await stable(await member(serving, "alive"))
    await commit(line, "simple", "a", {0: 1})
    answer = await line.ask(ApiKey.LIST_GROUPS, version)
    assert answer.error_code == 0
    rows = {row.group_id: row for row in answer.groups}
    assert {name: row.protocol_type for name, row in rows.items()} == {"alive": "consumer", "simple": ""}
    if version >= 4:
        assert {name: row.group_state for name, row in rows.items()} == {"alive": "Stable", "simple": "Empty"}
    if version >= 5:
        assert {row.group_type for row in rows.values()} == {"classic"}


@pytest.mark.parametrize(
    ("states", "types", "found"),
    [
        (["stable"], [], {"alive"}),
        (["Empty"], ["Classic"], {"simple"}),
        ([], ["consumer"], set()),
        (["Stable", "Empty", "nonsense"], [], {"alive", "simple"}),
        (["PreparingRebalance"], [], set()),
    ],
)
async def test_groups_are_listed_by_state_and_type(serving: Serving, states: list[str], types: list[str], found: set[str]) -> None:
    line = await opened(serving)
    await stable(await member(serving, "alive"))
    await commit(line, "simple", "a", {0: 1})
    answer = await line.ask(ApiKey.LIST_GROUPS, states_filter=states, types_filter=types)
    assert {row.group_id for row in answer.groups} == found


async def test_a_node_without_groups_lists_none(serving: Serving) -> None:
    await serving.open(**QUICK)
    line = await serving.line()
    answer = await line.ask(ApiKey.LIST_GROUPS)
    assert (answer.error_code, answer.groups) == (0, ())


async def described(line: Line, *groups: str, version: int = 6, **options: Any) -> list[Any]:
    return list((await line.ask(ApiKey.DESCRIBE_GROUPS, version, groups=list(groups), **options)).groups)


@pytest.mark.parametrize("version", range(7))
async def test_a_stable_group_is_described_with_all_its_members(serving: Serving, version: int) -> None:
    line = await opened(serving)
    one, two = await member(serving, instance_id="i"), await member(serving)
    await stable(one, two)
    (group,) = await described(line, "g", version=version)
    assert (group.error_code, group.group_id, group.group_state) == (0, "g", "Stable")
    assert (group.protocol_type, group.protocol_data) == ("consumer", "range")
    rows = {row.member_id: row for row in group.members}
    assert set(rows) == {one.member_id, two.member_id}
    row = rows[one.member_id]
    assert (row.client_id, row.client_host) == ("test", f"/{one.line.writer.get_extra_info('sockname')[0]}")
    assert (row.member_metadata, row.member_assignment) == (b"subscription", one.member_id.encode())
    if version >= 4:
        assert row.group_instance_id == "i"
    if version >= 3:
        assert group.authorized_operations == -(2**31)


async def test_what_may_be_done_with_a_group_is_told_on_request(serving: Serving) -> None:
    line = await opened(serving)
    await commit(line, "g", "a", {0: 1})
    (group,) = await described(line, "g", include_authorized_operations=True)
    assert group.authorized_operations == 1 << 3 | 1 << 6 | 1 << 8


@pytest.mark.parametrize("version", range(7))
async def test_every_group_asked_for_is_answered_also_those_that_are_not_there(serving: Serving, version: int) -> None:
    line = await opened(serving)
    await commit(line, "simple", "a", {0: 1})
    nobody, simple = await described(line, "nobody", "simple", version=version)
    assert (nobody.group_id, nobody.group_state, nobody.error_code) == ("nobody", "Dead", 69 if version >= 6 else 0)
    assert (simple.group_id, simple.group_state, simple.error_code) == ("simple", "Empty", 0)


@pytest.mark.parametrize("version", range(3))
async def test_only_groups_without_members_are_deleted(serving: Serving, version: int) -> None:
    line = await opened(serving)
    one = await member(serving, "alive")
    await stable(one)
    await commit(line, "simple", "a", {0: 1})
    names = ["simple", "alive", "nobody", "simple"]
    answer = await line.ask(ApiKey.DELETE_GROUPS, version, groups_names=names)
    assert [(row.group_id, row.error_code) for row in answer.results] == [("simple", 0), ("alive", 68), ("nobody", 69)]
    assert await offsets_of(line, "simple") == {0: -1}
    assert await one.heartbeat() == 0
    await one.leave()
    answer = await line.ask(ApiKey.DELETE_GROUPS, version, groups_names=["alive"])
    assert answer.results[0].error_code == 0
    assert (await line.ask(ApiKey.LIST_GROUPS)).groups == ()


async def test_a_large_group_is_deleted_whole(serving: Serving, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(committing, "DELETED_AT_ONCE", 2)
    line = await opened(serving)
    one = await member(serving)
    await stable(one)
    await one.commit("a", {0: 1, 1: 1, 2: 1})
    await commit(line, "simple", "a", {0: 1, 1: 1, 2: 1})
    await one.leave()
    answer = await line.ask(ApiKey.DELETE_GROUPS, groups_names=["g", "simple"])
    assert [row.error_code for row in answer.results] == [0, 0]
    assert (await line.ask(ApiKey.LIST_GROUPS)).groups == ()
    assert await offsets_of(line, "g", "a", (0, 1, 2)) == {0: -1, 1: -1, 2: -1}


async def test_a_deleted_group_stays_deleted_after_a_restart(serving: Serving) -> None:
    line = await opened(serving)
    await commit(line, "g", "a", {0: 1, 1: 2})
    await commit(line, "kept", "a", {0: 3})
    await line.ask(ApiKey.DELETE_GROUPS, groups_names=["g"])
    await serving.crash()
    await serving.open(**QUICK)
    line = await serving.line()
    await coordinated(line)
    while (answer := await line.ask(ApiKey.LIST_GROUPS)).error_code == 14:
        pass
    assert [row.group_id for row in answer.groups] == ["kept"]


async def deleted_offsets(line: Line, group: str, topics: dict[str, list[int]]) -> Any:
    wishes = [{"name": name, "partitions": [{"partition_index": index} for index in indexes]} for name, indexes in topics.items()]
    return await line.ask(ApiKey.OFFSET_DELETE, group_id=group, topics=wishes)


async def test_offsets_are_deleted_one_by_one(serving: Serving) -> None:
    line = await opened(serving)
    await commit(line, "g", "a", {0: 1, 1: 2, 2: 3})
    answer = await deleted_offsets(line, "g", {"a": [0, 9, 2], "unheard of": [0]})
    assert answer.error_code == 0
    assert [[(row.partition_index, row.error_code) for row in topic.partitions] for topic in answer.topics] == [
        [(0, 0), (9, 3), (2, 0)],
        [(0, 3)],
    ]
    assert await offsets_of(line, "g", "a", (0, 1, 2)) == {0: -1, 1: 2, 2: -1}
    assert (await deleted_offsets(line, "nobody", {"a": [0]})).error_code == 69
    assert (await deleted_offsets(line, "", {"a": [0]})).error_code == 24


async def test_offsets_of_a_topic_that_members_read_stay(serving: Serving) -> None:
    line = await opened(serving)
    one = await member(serving)
    subscription = b"\x00\x00" + b"\x00\x00\x00\x01" + b"\x00\x01a" + b"\xff\xff\xff\xff"  # Version 0: the topic a, and no user data.
    await stable(one, protocols=[("range", subscription)])
    await one.commit("a", {0: 5})
    answer = await deleted_offsets(line, "g", {"a": [0]})
    assert [row.error_code for row in answer.topics[0].partitions] == [86]
    assert await offsets_of(line, "g") == {0: 5}
