"""Share groups at a node: members on the wire, what tools are shown, offsets that admins look at, set and delete, and groups that go."""

from typing import Any

from members import coordinated
from serving import Line, Serving
from share_members import ACCEPT, ShareMember, opened
from waiting import PATIENCE_MS

from penstock.errors import ErrorCode
from penstock.wire.api_keys import ApiKey

ALL_LOOPS = True


async def beat(line: Line, epoch: int, *, group: str = "g", member_id: str = "me", **said: Any) -> Any:
    return await line.ask(ApiKey.SHARE_GROUP_HEARTBEAT, 1, group_id=group, member_id=member_id, member_epoch=epoch, **said)


async def standing(line: Line, group: str = "g", topics: Any = None) -> Any:
    answer = await line.ask(ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS, 1, groups=[{"group_id": group, "topics": topics}])
    return answer.groups[0]


async def offsets(line: Line) -> dict[tuple[str, int], tuple[int, int]]:
    """(start offset, lag) of the group g, by topic and partition."""
    found = await standing(line)
    assert found.error_code == 0, found.error_message
    return {(topic.topic_name, row.partition_index): (row.start_offset, row.lag) for topic in found.topics for row in topic.partitions}


async def alter(line: Line, *starts: tuple[str, int, int]) -> Any:
    topics = [{"topic_name": topic, "partitions": [{"partition_index": index, "start_offset": at}]} for topic, index, at in starts]
    return await line.ask(ApiKey.ALTER_SHARE_GROUP_OFFSETS, 0, group_id="g", topics=topics)


async def forget(line: Line, *topics: str) -> Any:
    return await line.ask(ApiKey.DELETE_SHARE_GROUP_OFFSETS, 0, group_id="g", topics=[{"topic_name": topic} for topic in topics])


async def delete(line: Line, group: str = "g") -> int:
    answer = await line.ask(ApiKey.DELETE_GROUPS, groups_names=[group])
    return int(answer.results[0].error_code)


async def test_a_member_joins_is_shown_and_leaves(serving: Serving) -> None:
    line, topic_id = await opened(serving, partitions=2, is_known=False)
    await coordinated(line)
    joined = await beat(line, 0, subscribed_topic_names=["t"])
    assert (joined.error_code, joined.member_id, joined.member_epoch, joined.heartbeat_interval.total_seconds()) == (0, "me", 1, 5)
    assert [(row.topic_id.bytes, row.partitions) for row in joined.assignment.topic_partitions] == [(topic_id, (0, 1))]
    steady = await beat(line, 1)
    assert (steady.error_code, steady.member_epoch, steady.assignment) == (0, 1, None)

    listed = await line.ask(ApiKey.LIST_GROUPS, types_filter=["share"], states_filter=[])
    assert [(row.group_id, row.group_state, row.group_type, row.protocol_type) for row in listed.groups] == [
        ("g", "Stable", "share", "share")
    ]
    (shown,) = (await line.ask(ApiKey.SHARE_GROUP_DESCRIBE, 1, group_ids=["g"], include_authorized_operations=False)).groups
    assert (shown.group_state, shown.group_epoch, shown.assignment_epoch, shown.assignor_name) == ("Stable", 1, 1, "simple")
    (member,) = shown.members
    assert (member.member_id, member.client_id, member.subscribed_topic_names) == ("me", "test", ("t",))
    assert [(row.topic_name, row.partitions) for row in member.assignment.topic_partitions] == [("t", (0, 1))]
    classic = (await line.ask(ApiKey.DESCRIBE_GROUPS, groups=["g"])).groups[0]
    assert (classic.error_code, classic.group_state) == (ErrorCode.GROUP_ID_NOT_FOUND, "Dead")

    assert (await beat(line, -1)).member_epoch == -1
    (shown,) = (await line.ask(ApiKey.SHARE_GROUP_DESCRIBE, 1, group_ids=["g"], include_authorized_operations=False)).groups
    assert (shown.group_state, shown.members) == ("Empty", ())


async def test_groups_of_other_kinds_are_no_share_groups(serving: Serving) -> None:
    line, _ = await opened(serving, is_known=False)
    await coordinated(line)
    joined = await line.ask(
        ApiKey.CONSUMER_GROUP_HEARTBEAT, group_id="of consumers", member_id="m", member_epoch=0, rebalance_timeout_ms=PATIENCE_MS,
        subscribed_topic_names=["t"], topic_partitions=[],
    )  # fmt: skip
    assert joined.error_code == 0
    refused = await beat(line, 0, group="of consumers", subscribed_topic_names=["t"])
    assert refused.error_code == ErrorCode.GROUP_ID_NOT_FOUND
    assert "not a share group" in refused.error_message
    for group in ("of consumers", "nobody"):
        answer = await line.ask(ApiKey.SHARE_GROUP_DESCRIBE, 1, group_ids=[group], include_authorized_operations=False)
        assert answer.groups[0].error_code == ErrorCode.GROUP_ID_NOT_FOUND
        assert (await standing(line, group)).error_code == ErrorCode.GROUP_ID_NOT_FOUND


async def test_offsets_are_shown_with_the_lag(serving: Serving) -> None:
    line, topic_id = await opened(serving, partitions=2, is_known=False)
    await coordinated(line)
    await beat(line, 0, subscribed_topic_names=["t"])
    assert await offsets(line) == {("t", 0): (-1, -1), ("t", 1): (-1, -1)}, "nobody has fetched yet"
    await line.produce("t", b"a", b"b", b"c")
    member = ShareMember(line, topic_id, partitions=(0, 1))
    await member.take()
    await member.outcomes((0, 0, [ACCEPT]), (2, 2, [ACCEPT]))
    assert await offsets(line) == {("t", 0): (1, 1), ("t", 1): (0, 0)}
    found = await standing(line, topics=[{"topic_name": "t", "partitions": [0, 9]}, {"topic_name": "none", "partitions": [0]}])
    rows = {(topic.topic_name, row.partition_index): row for topic in found.topics for row in topic.partitions}
    assert (rows["t", 0].start_offset, rows["t", 0].error_code) == (1, 0)
    assert rows["t", 9].error_code == rows["none", 0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


async def test_an_empty_group_is_set_to_other_offsets(serving: Serving) -> None:
    line, topic_id = await opened(serving, is_known=False)
    await coordinated(line)
    await line.produce("t", b"a", b"b", b"c", b"d")
    await beat(line, 0, subscribed_topic_names=["t"])
    assert (await alter(line, ("t", 0, 1))).error_code == ErrorCode.NON_EMPTY_GROUP
    member = ShareMember(await serving.line(), topic_id)
    assert len(await member.take()) == 4
    assert await member.outcomes((0, 3, [ACCEPT])) == ErrorCode.NONE
    await beat(line, -1)
    answer = await alter(line, ("t", 0, 2), ("none", 0, 0))
    assert answer.error_code == 0
    codes = {row.topic_name: row.partitions[0].error_code for row in answer.responses}
    assert codes == {"t": ErrorCode.NONE, "none": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
    assert await offsets(line) == {("t", 0): (2, 2)}
    assert await member.take() == {2: (b"c", 1), 3: (b"d", 1)}
    assert (await alter(line, ("t", 0, 999))).responses[0].partitions[0].error_code == 0
    assert await offsets(line) == {("t", 0): (4, 0)}, "within what the log has"


async def test_an_empty_group_forgets_a_topic(serving: Serving) -> None:
    line, topic_id = await opened(serving, is_known=False)
    await coordinated(line)
    await line.produce("t", b"a")
    await beat(line, 0, subscribed_topic_names=["t"])
    member = ShareMember(await serving.line(), topic_id)
    await member.take()
    await member.outcomes((0, 0, [ACCEPT]))
    assert (await forget(line, "t")).error_code == ErrorCode.NON_EMPTY_GROUP
    await beat(line, -1)
    answer = await forget(line, "t", "none")
    assert [(row.topic_name, row.error_code) for row in answer.responses] == [
        ("t", ErrorCode.NONE), ("none", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    ]  # fmt: skip
    assert await offsets(line) == {}
    await beat(line, 0, subscribed_topic_names=["t"])
    assert await member.take() == {0: (b"a", 1)}, "it begins anew"


async def test_a_group_that_is_deleted_leaves_nothing(serving: Serving) -> None:
    line, topic_id = await opened(serving, is_known=False)
    await coordinated(line)
    await line.produce("t", b"a")
    await beat(line, 0, subscribed_topic_names=["t"])
    member = ShareMember(await serving.line(), topic_id)
    await member.take()
    await member.outcomes((0, 0, [ACCEPT]))
    assert await delete(line) == ErrorCode.NON_EMPTY_GROUP
    await beat(line, -1)
    assert await delete(line) == ErrorCode.NONE
    assert await delete(line) == ErrorCode.GROUP_ID_NOT_FOUND
    assert await beat(line, 0, subscribed_topic_names=["t"])
    assert await offsets(line) == {("t", 0): (-1, -1)}
    assert await ShareMember(await serving.line(), topic_id, "new").take() == {0: (b"a", 1)}


async def test_members_and_offsets_outlive_a_restart(serving: Serving) -> None:
    line, topic_id = await opened(serving, is_known=False)
    await coordinated(line)
    await line.produce("t", b"a", b"b")
    await beat(line, 0, subscribed_topic_names=["t"])
    member = ShareMember(line, topic_id)
    await member.take()
    await member.outcomes((0, 0, [ACCEPT]))
    await serving.stop()
    await serving.open(offsets_topic_num_partitions=4)
    line = await serving.line()
    await coordinated(line)
    again = await beat(line, 1)
    assert (again.error_code, again.member_epoch) == (0, 1)
    assert await offsets(line) == {("t", 0): (1, 1)}
