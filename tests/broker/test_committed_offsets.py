"""Offsets that groups commit at a node: told in every version, durable before they are answered, and gone with their topic."""

import asyncio
from typing import Any

import pytest
from members import QUICK, commit, committed_codes, coordinated, member, offsets_of, opened, send_commit, stable
from serving import Line, Serving, batch
from waiting import until_async

from penstock.broker import groups as groups_module
from penstock.broker import patience
from penstock.broker.groups import CONSUMER_OFFSETS
from penstock.broker.handlers import offset_fetch
from penstock.vocabulary import Offset
from penstock.wire.api_keys import ApiKey
from penstock.wire.keyed_records import Pair, keyed_records

ALL_LOOPS = True


@pytest.mark.parametrize("version", range(2, 11))
async def test_what_is_committed_is_told_in_every_version(serving: Serving, version: int) -> None:
    line = await opened(serving)
    topic_id = await line.create("b")
    partition = {"partition_index": 0, "committed_offset": 42, "committed_leader_epoch": 3, "committed_metadata": "a note"}
    named = {"topic_id": topic_id} if version >= 10 else {"name": "b"}
    answer = await line.ask(
        ApiKey.OFFSET_COMMIT, version,
        group_id="g", generation_id_or_member_epoch=-1, member_id="", retention_time_ms=-1, topics=[{**named, "partitions": [partition]}],
    )  # fmt: skip
    assert answer.topics[0].partitions[0].error_code == 0
    for fetch_version in range(1, 11):
        (row,) = await fetched(line, fetch_version, "b", topic_id)
        assert (row.committed_offset, row.metadata, row.error_code) == (42, "a note", 0)
        if fetch_version >= 5:
            assert row.committed_leader_epoch == (3 if version >= 6 else -1)


async def fetched(line: Line, version: int, topic: str, topic_id: bytes, group: str = "g") -> list[Any]:
    wish = {"topic_id": topic_id, "partition_indexes": [0]} if version >= 10 else {"name": topic, "partition_indexes": [0]}
    if version < 8:
        answer = await line.ask(ApiKey.OFFSET_FETCH, version, group_id=group, topics=[wish])
    else:
        answer = (await line.ask(ApiKey.OFFSET_FETCH, version, groups=[{"group_id": group, "topics": [wish]}])).groups[0]
    assert version < 2 or answer.error_code == 0
    return list(answer.topics[0].partitions)


@pytest.mark.parametrize("version", range(1, 11))
async def test_a_group_that_never_committed_has_no_offset_and_no_error(serving: Serving, version: int) -> None:
    line = await opened(serving)
    topic_id = await line.create("b")
    (row,) = await fetched(line, version, "b", topic_id, "nobody")
    assert (row.committed_offset, row.metadata, row.error_code) == (-1, "", 0)


@pytest.mark.parametrize("version", range(2, 11))
async def test_all_that_a_group_has_committed_is_told_on_request(serving: Serving, version: int) -> None:
    line = await opened(serving)
    topic_id = await line.create("b")
    assert await commit(line, "g", "a", {0: 1, 2: 3}) == {0: 0, 2: 0}
    assert await commit(line, "g", "b", {0: 9}) == {0: 0}
    if version < 8:
        answer = await line.ask(ApiKey.OFFSET_FETCH, version, group_id="g", topics=None)
    else:
        answer = (await line.ask(ApiKey.OFFSET_FETCH, version, groups=[{"group_id": "g", "topics": None}])).groups[0]
    rows = {(row.partition_index, row.committed_offset) for topic in answer.topics for row in topic.partitions}
    assert rows == {(0, 1), (2, 3), (0, 9)}
    if version >= 10:
        assert topic_id in {topic.topic_id.bytes for topic in answer.topics}


async def test_many_offsets_are_told_at_once(serving: Serving) -> None:
    line = await opened(serving)
    await line.create("wide", 600)
    assert set((await commit(line, "g", "wide", {index: index for index in range(600)})).values()) == {0}
    assert await offsets_of(line, "g", "wide", range(600)) == {index: index for index in range(600)}


async def test_many_offsets_of_a_group_are_gathered_while_others_have_their_turn(serving: Serving, monkeypatch: pytest.MonkeyPatch) -> None:
    line = await opened(serving)
    await line.create("wide", 600)
    await commit(line, "g", "wide", {index: index for index in range(600)})
    monkeypatch.setattr(patience, "SECONDS_AT_ONCE", -1)
    turns, is_done = 0, False

    def count_turn() -> None:
        nonlocal turns
        turns += 1
        if not is_done:
            asyncio.get_running_loop().call_soon(count_turn)

    held = await serving.node.groups.find("g").read(lambda state: state.all_offsets("g"))
    count_turn()
    (topic,) = await offset_fetch._all(serving.node, 9, held)
    is_done = True
    assert {row["partition_index"]: row["committed_offset"] for row in topic["partitions"]} == {index: index for index in range(600)}
    assert turns >= 600


async def test_a_topic_that_many_groups_read_is_forgotten_in_pieces(serving: Serving, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(groups_module, "DELETED_AT_ONCE", 5)
    line = await opened(serving, offsets_topic_num_partitions=1)
    await line.create("kept")
    for number in range(8):
        await commit(line, f"g{number}", "a", {0: 1, 1: 1, 2: 1})
    await commit(line, "g0", "kept", {0: 7})
    await line.delete("a")
    await line.create("a", 3)
    for number in range(8):
        assert await offsets_of(line, f"g{number}", "a", (0, 1, 2)) == {0: -1, 1: -1, 2: -1}
    assert await offsets_of(line, "g0", "kept") == {0: 7}
    assert [len(each) for each in await batches(serving)][-5:] == [5, 5, 5, 5, 4]


async def batches(serving: Serving) -> list[list[Pair]]:
    """The batches of the groups' log, each with its records."""
    log = serving.node.partitions.by_name[CONSUMER_OFFSETS][0].log
    found, offset = [], Offset(0)
    while offset < log.end_offset:
        pairs, following = keyed_records(bytes(await log.read_later(offset, bytes_max=1, end_offset=log.end_offset)), offset)
        found.append(pairs)
        offset = Offset(following)
    return found


async def test_a_topic_id_that_nobody_knows_is_refused_by_itself(serving: Serving) -> None:
    line = await opened(serving)
    known, unknown = await line.create("b"), bytes(range(16))
    partition = {"partition_index": 0, "committed_offset": 7, "committed_leader_epoch": -1, "committed_metadata": ""}
    topics = [{"topic_id": topic_id, "partitions": [partition]} for topic_id in (unknown, known)]
    answer = await line.ask(ApiKey.OFFSET_COMMIT, 10, group_id="g", generation_id_or_member_epoch=-1, member_id="", topics=topics)
    assert [topic.partitions[0].error_code for topic in answer.topics] == [100, 0]
    wishes = [{"topic_id": topic_id, "partition_indexes": [0]} for topic_id in (unknown, known)]
    answer = (await line.ask(ApiKey.OFFSET_FETCH, 10, groups=[{"group_id": "g", "topics": wishes}])).groups[0]
    assert [(topic.partitions[0].error_code, topic.partitions[0].committed_offset) for topic in answer.topics] == [(100, -1), (0, 7)]


async def test_a_member_of_a_lost_group_is_told_in_the_words_of_its_version(serving: Serving) -> None:
    line = await opened(serving)
    assert await commit(line, "lost", "a", {0: 1}, generation=3, member_id="x", version=9) == {0: 69}
    assert await commit(line, "lost", "a", {0: 1}, generation=3, member_id="x", version=8) == {0: 22}


async def test_offsets_of_a_deleted_topic_are_forgotten(serving: Serving) -> None:
    line = await opened(serving)
    await commit(line, "g", "a", {0: 5})
    await line.delete("a")
    await line.create("a")
    assert await offsets_of(line, "g") == {0: -1}


# Durability


@pytest.mark.invariant("groups.answer-after-flush")
async def test_a_commit_is_answered_when_it_is_on_the_disk(serving: Serving) -> None:
    line = await opened(serving)
    other = await serving.line()
    flushes = serving.env.disk.flushes
    flushes.hold()
    send_commit(line, "g", "a", {0: 5})
    await flushes.until_waited_for()
    assert await line.is_silent()
    wish = {"name": "a", "partition_indexes": [0]}
    other.send(ApiKey.OFFSET_FETCH, groups=[{"group_id": "g", "topics": [wish]}], require_stable=False)
    assert await other.is_silent()  # What it would be told could still be lost.
    flushes.let_go()
    assert committed_codes(await line.receive()) == {0: 0}
    assert (await other.receive()).groups[0].topics[0].partitions[0].committed_offset == 5


@pytest.mark.invariant("groups.answer-after-flush")
async def test_an_assignment_is_told_when_it_is_on_the_disk(serving: Serving) -> None:
    await opened(serving)
    one = await member(serving)
    await one.join()
    flushes = serving.env.disk.flushes
    flushes.hold()
    one.send_sync(assignments={one.member_id: b"all"})
    await flushes.until_waited_for()
    assert await one.line.is_silent()
    flushes.let_go()
    assert (await one.line.receive()).assignment == b"all"


@pytest.mark.parametrize("ending", ["stop", "crash"])
async def test_groups_outlive_the_node(serving: Serving, ending: str) -> None:
    line = await opened(serving)
    one = await member(serving)
    await stable(one)
    assert await one.commit("a", {0: 5, 1: 6}, metadata="half way") == {0: 0, 1: 0}
    assert await commit(line, "simple", "a", {2: 7}) == {2: 0}
    await (serving.stop() if ending == "stop" else serving.crash())
    await serving.open(**QUICK)
    line = await serving.line()
    await until_loaded(serving)
    assert await offsets_of(line, "g", "a", (0, 1, 2)) == {0: 5, 1: 6, 2: -1}
    assert await offsets_of(line, "simple", "a", (2,)) == {2: 7}
    one.line = line
    assert await one.heartbeat() == 0, "a restart is no reason to rebalance"
    assert (await one.sync()).assignment == one.member_id.encode()
    assert await one.commit("a", {0: 6}) == {0: 0}


async def until_loaded(serving: Serving) -> None:
    await until_async(lambda: not serving.node.groups.is_loading())


# The internal topic


async def test_clients_do_not_write_what_coordinators_keep(serving: Serving) -> None:
    line = await opened(serving)
    row = await line.produce_batch(CONSUMER_OFFSETS, batch(b"nonsense"))
    assert row.error_code == 17
    assert await line.latest(CONSUMER_OFFSETS) == 0


async def test_a_deleted_offsets_topic_takes_the_groups_with_it(serving: Serving) -> None:
    line = await opened(serving)
    one = await member(serving)
    await stable(one)
    await one.commit("a", {0: 5})
    two = await member(serving)
    await two.take_id()
    two.send_join()
    await line.ask(ApiKey.METADATA, topics=None)
    await line.delete(CONSUMER_OFFSETS)
    assert (await two.joined()).error_code == 16
    assert await one.heartbeat() == 16
    await coordinated(line)
    assert await offsets_of(line, "g") == {0: -1}
