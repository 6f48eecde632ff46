"""Which ledgers share groups have at a node: none that nobody asked for, and none that nobody could delete."""

import asyncio
from functools import partial
from typing import Any

import pytest
from members import coordinated
from serving import Line, Serving
from share_members import ACCEPT, ShareMember, known, opened
from waiting import until_async

from penstock.broker.groups import _deletion
from penstock.broker.shares import ledger_calls, sweeping
from penstock.errors import ErrorCode
from penstock.vocabulary import TopicId
from penstock.wire.api_keys import ApiKey

ALL_LOOPS = True


async def beat(line: Line, epoch: int, *topics: str, group: str = "g") -> int:
    said = {"subscribed_topic_names": list(topics)} if topics else {}
    answer = await line.ask(ApiKey.SHARE_GROUP_HEARTBEAT, 1, group_id=group, member_id="me", member_epoch=epoch, **said)
    return int(answer.error_code)


async def shown(line: Line, group: str = "g") -> dict[tuple[str, int], int]:
    """Start offsets by topic and partition, as an admin is told."""
    answer = (await line.ask(ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS, 1, groups=[{"group_id": group, "topics": None}])).groups[0]
    assert answer.error_code == 0, answer.error_message
    return {(topic.topic_name, row.partition_index): row.start_offset for topic in answer.topics for row in topic.partitions}


async def alter(line: Line, *starts: tuple[str, int, int], group: str = "g") -> list[int]:
    topics = [{"topic_name": topic, "partitions": [{"partition_index": index, "start_offset": at}]} for topic, index, at in starts]
    answer = await line.ask(ApiKey.ALTER_SHARE_GROUP_OFFSETS, 0, group_id=group, topics=topics)
    return [answer.error_code] if answer.error_code else [row.partitions[0].error_code for row in answer.responses]


async def forget(line: Line, *topics: str) -> list[int]:
    answer = await line.ask(ApiKey.DELETE_SHARE_GROUP_OFFSETS, 0, group_id="g", topics=[{"topic_name": topic} for topic in topics])
    return [answer.error_code] if answer.error_code else [row.error_code for row in answer.responses]


async def delete(line: Line, group: str = "g") -> int:
    answer = await line.ask(ApiKey.DELETE_GROUPS, groups_names=[group])
    return int(answer.results[0].error_code)


def groups_at(serving: Serving, topic_id: Any, index: int = 0) -> list[str]:
    """Whose ledgers are there."""
    queue = serving.node.ledgers.find(topic_id, index)
    return [] if queue is None else [group for group in queue.state.groups() if group != "$queue"]


def recorded(serving: Serving, group: str = "g") -> list[tuple[str, tuple[int, ...]]]:
    state = serving.node.groups.find(group).state
    view = None if state is None else state.describe_share(group)
    return [] if view is None else [tuple(row) for row in view.ledgers.values()]


async def fault(member: ShareMember, **said: Any) -> tuple[int, str | None]:
    row = (await member.fetch(**said)).responses[0].partitions[0]
    return row.error_code, row.error_message


async def served(member: ShareMember) -> None:
    """A moment after its group has come to be, which it is left alone for after a refusal."""

    async def is_served() -> bool:
        return not any(row.error_code for topic in (await member.fetch(wait_ms=100)).responses for row in topic.partitions)

    await until_async(is_served)


# Fetches that nobody was assigned


@pytest.mark.parametrize("is_used", [False, True])
async def test_a_fetch_for_a_group_that_nobody_has_joined_makes_nothing(serving: Serving, is_used: bool) -> None:
    line, topic_id = await opened(serving, is_known=is_used)
    if is_used:
        await ShareMember(line, topic_id).take()
    before = groups_at(serving, topic_id)
    stranger = ShareMember(await serving.line(), topic_id, group="typo")
    code, message = await fault(stranger)
    assert (code, "typo" in (message or "")) == (ErrorCode.UNKNOWN_SERVER_ERROR, True), "as Kafka says it; clients go on"
    assert groups_at(serving, topic_id) == before
    assert (serving.node.image.companion_of(topic_id) is not None) == is_used, "nor is anything made that it would need"
    await known(line, "t", group="typo")
    await served(stranger)


async def test_a_group_begins_only_where_its_members_read(serving: Serving) -> None:
    line, _ = await opened(serving)
    other_id = await line.create("other", 1)
    assert (await fault(ShareMember(line, other_id)))[0] == ErrorCode.UNKNOWN_SERVER_ERROR
    assert await beat(line, 0, "other") == 0
    assert await ShareMember(line, other_id, "again").take() == {}


async def test_a_member_of_a_deleted_group_that_goes_on_gets_nothing(serving: Serving) -> None:
    line, topic_id = await opened(serving)
    await line.produce("t", b"a", b"b")
    member = ShareMember(await serving.line(), topic_id)
    assert len(await member.take(records_max=1)) == 1
    assert await delete(line) == ErrorCode.NONE
    assert (await fault(member))[0] == ErrorCode.UNKNOWN_SERVER_ERROR
    assert groups_at(serving, topic_id) == []


async def test_too_many_groups_are_not_told_as_a_leader_that_is_elsewhere(serving: Serving, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ledger_calls, "GROUPS_MAX", 2)  # The queue's own, and one other.
    line, topic_id = await opened(serving)
    await ShareMember(line, topic_id).take()
    await known(line, "t", group="h")
    code, message = await fault(ShareMember(line, topic_id, group="h"))
    assert (code, "delete some" in (message or "")) == (ErrorCode.UNKNOWN_SERVER_ERROR, True)
    assert await alter(line, ("t", 0, 0), group="i") == [ErrorCode.POLICY_VIOLATION]
    assert recorded(serving, "i") == [], "refused is unchanged"
    assert await delete(line) == ErrorCode.NONE
    assert await ShareMember(line, topic_id, "another", group="h").take() == {}


async def test_a_coordinators_word_from_before_a_ledger_was_forgotten_counts_for_nothing(serving: Serving) -> None:
    line, topic_id = await opened(serving)
    await ShareMember(line, topic_id).take()
    queue = serving.node.ledgers.find(topic_id, 0)
    assert queue is not None
    first = await serving.node.groups.find("g").ask(partial(_deletion, "g", 0))
    await serving.node.shares.forget_all("g", first.ledgers)
    beginnings, asked = serving.node.shares.beginnings, asyncio.Event()
    original, go_on = beginnings._answer, asyncio.Event()

    async def slow(question: Any) -> Any:
        answer = (await original(question))._replace(word="recorded") if not asked.is_set() else await original(question)
        asked.set()
        await go_on.wait()
        return answer

    beginnings._answer = slow  # type: ignore[method-assign]
    member = ShareMember(await serving.line(), topic_id, "late")
    member.send()
    await asked.wait()
    await serving.node.shares.forget_all("g", first.ledgers)
    assert (await serving.node.groups.find("g").ask(partial(_deletion, "g", first.hold))).is_over
    go_on.set()
    assert (await member.receive()).responses[0].partitions[0].error_code == ErrorCode.UNKNOWN_SERVER_ERROR
    assert groups_at(serving, topic_id) == []


# Topics that go


async def test_offsets_of_a_topic_that_was_made_again_are_deleted(serving: Serving) -> None:
    line, _ = await opened(serving)
    await line.delete("t")
    topic_id = await line.create("t", 1)
    assert await forget(line, "t") == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION], "those went with their topic"
    await known(line, "t")
    await line.produce("t", b"a")
    member = ShareMember(line, topic_id)
    assert len(await member.take()) == 1
    assert await member.outcomes((0, 0, [ACCEPT])) == 0
    assert await forget(line, "t") == [ErrorCode.NONE]
    assert groups_at(serving, topic_id) == []
    assert await shown(line) == {}


async def test_ledgers_of_deleted_topics_are_not_kept(serving: Serving) -> None:
    line, _ = await opened(serving)
    for _ in range(3):
        await line.delete("t")
        await line.create("t", 1)
        await known(line, "t")
    await until_async(lambda: recorded(serving) == [("t", (0,))])
    await line.delete("t")
    await until_async(lambda: recorded(serving) == [])


async def test_who_loads_a_coordinator_drops_what_went_while_nobody_coordinated(serving: Serving) -> None:
    line, _ = await opened(serving)
    await line.create("u", 1)
    await known(line, "t", "u")
    coordinator = serving.node.groups.find("g")
    coordinator.order = lambda command: False  # type: ignore[method-assign] # Its log takes nothing when the topic goes.
    await line.delete("t")
    assert ("t", (0,)) in recorded(serving)
    await serving.stop()
    await serving.open(offsets_topic_num_partitions=4)
    await until_async(lambda: recorded(serving) == [("u", (0,))])


# Changes by admins


async def test_nothing_begins_while_the_group_goes(serving: Serving) -> None:
    line, _ = await opened(serving)
    other_id = await line.create("other", 1)
    first = await serving.node.groups.find("g").ask(partial(_deletion, "g", 0))
    await serving.node.shares.forget_all("g", first.ledgers)
    assert await alter(line, ("other", 0, 0)) == [ErrorCode.COORDINATOR_NOT_AVAILABLE]
    assert (await serving.node.groups.find("g").ask(partial(_deletion, "g", first.hold))).is_over
    assert groups_at(serving, other_id) == []
    assert recorded(serving) == []


async def test_an_admin_makes_a_group_by_saying_where_it_begins(serving: Serving) -> None:
    line, topic_id = await opened(serving, is_known=False)
    await coordinated(line)
    await line.produce("t", b"a", b"b")
    assert await alter(line, ("nowhere", 0, 0)) == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    assert await delete(line) == ErrorCode.GROUP_ID_NOT_FOUND, "where all is refused none is made"
    assert await alter(line, ("t", 0, 1)) == [ErrorCode.NONE]
    assert await shown(line) == {("t", 0): 1}
    assert await beat(line, 0, "t") == 0
    assert await ShareMember(line, topic_id).take() == {1: (b"b", 1)}


async def test_what_is_refused_is_not_recorded(serving: Serving) -> None:
    line, _ = await opened(serving)
    refused = await alter(line, ("__consumer_offsets", 0, 0), ("t", 77, 0), ("t", 0, -5), ("none", 0, 0))
    assert refused == [
        ErrorCode.TOPIC_AUTHORIZATION_FAILED, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.INVALID_REQUEST,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ]  # fmt: skip
    assert recorded(serving) == [("t", (0,))]
    assert await shown(line) == {("t", 0): -1}


# Ledgers that were left


async def orphan(serving: Serving) -> tuple[Line, bytes]:
    """Of the group `lost`: as one that an older version has left, or a deletion that was cut off."""
    line, topic_id = await opened(serving)
    await ShareMember(line, topic_id).take()
    await serving.node.shares.start(TopicId(topic_id), 0, "lost", 0)
    assert groups_at(serving, topic_id) == ["g", "lost"]
    return line, topic_id


async def test_a_ledger_without_a_group_goes_when_the_coordinator_has_said_so_for_long(
    serving: Serving, monkeypatch: pytest.MonkeyPatch
) -> None:
    line, topic_id = await orphan(serving)
    for _ in range(3):
        await serving.node.shares.sweeping.look()
    assert groups_at(serving, topic_id) == ["g", "lost"]
    monkeypatch.setattr(sweeping, "SUSPECTED_SECONDS", 0.0)
    await serving.node.shares.sweeping.look()
    assert groups_at(serving, topic_id) == ["g"], "a living group has its ledger, members or not"
    assert await beat(line, 0, "t", group="lost") == ErrorCode.COORDINATOR_NOT_AVAILABLE, "not before it is gone for certain"


@pytest.mark.parametrize("obstacle", ["joined", "away", "replaced", "late", "held", "worked on"])
async def test_a_ledger_stays_unless_it_is_certain_that_nobody_needs_it(
    serving: Serving, monkeypatch: pytest.MonkeyPatch, obstacle: str
) -> None:
    line, topic_id = await orphan(serving)
    monkeypatch.setattr(sweeping, "SUSPECTED_SECONDS", 0.0)
    node, member = serving.node, ShareMember(await serving.line(), topic_id, group="lost")
    await line.produce("t", b"a")
    await node.shares.sweeping.look()
    coordinator = node.groups.find("lost")
    original = node.shares.beginnings._answer

    async def answer_late(question: Any) -> Any:
        answer = await original(question)
        if question.group == "lost" and obstacle == "worked on":
            assert await member.outcomes(*[(0, 0, [ACCEPT])] * len(await member.take())) == 0
        return answer

    match obstacle:
        case "joined":
            await known(line, "t", group="lost")
        case "away":
            state, coordinator.state = coordinator.state, None
        case "replaced":
            monkeypatch.setattr(coordinator, "_why_not_now", lambda: "nothing is committed")
        case "late":
            monkeypatch.setattr(sweeping, "IN_TIME_SECONDS", 0.0)
        case "held":
            assert len(await member.take()) == 1
        case "worked on":
            monkeypatch.setattr(node.shares.beginnings, "_answer", answer_late)
    await node.shares.sweeping.look()
    assert groups_at(serving, topic_id) == ["g", "lost"]
    if obstacle == "away":
        coordinator.state = state
