"""OffsetFetch with and without `require_stable`, while a transaction has offsets pending; and pending offsets over restarts."""

from typing import Any

import pytest
from members import commit, coordinated, offsets_of
from serving import Line, Serving
from waiting import until_async

from penstock.groups.commands import CommitPending, EndPending, NewOffset
from penstock.groups.replies import PendingEnded
from penstock.vocabulary import ProducerId
from penstock.wire.api_keys import ApiKey

ALL_LOOPS = True

pytestmark = pytest.mark.invariant("groups.transactional-offsets-atomic", "groups.stable-offsets-wait")

PRODUCER = ProducerId(4_000)
UNSTABLE = 88
ALL = (0, 1, 2)
QUICK = {"offsets_topic_num_partitions": 1}


async def loaded(serving: Serving, line: Line) -> None:
    """The coordinator has read its log, which it does while others are served."""
    await coordinated(line)
    await until_async(lambda: serving.node.groups.find("g").state is not None)


async def opened(serving: Serving) -> Line:
    """Of topic a: partition 0 is committed at 10; partition 1 is at 11, and a transaction would make it 21; partition 2 would be 22."""
    await serving.open(**QUICK)
    line = await serving.line()
    await loaded(serving, line)
    await line.create("a", 3)
    await commit(line, "g", "a", {0: 10, 1: 11})
    await pend(serving, {1: 21, 2: 22})
    return line


async def pend(serving: Serving, offsets: dict[int, int], number: int = 1) -> None:
    coordinator = serving.node.groups.find("g")
    assert coordinator.state is not None
    guard, topic = coordinator.state.guard(PRODUCER), serving.node.image.topics["a"]
    new = tuple(NewOffset("a", index, offset, topic_id=topic.topic_id) for index, offset in offsets.items())
    reply = await coordinator.ask(
        lambda asker: CommitPending(token=asker, group="g", producer_id=PRODUCER, producer_epoch=0, number=number, offsets=new, guard=guard)
    )
    assert [code for *_, code in reply.offsets] == [0] * len(offsets)


async def end(serving: Serving, *, commits: bool, number: int = 1) -> PendingEnded:
    reply: PendingEnded = await serving.node.groups.find("g").ask(
        lambda asker: EndPending(token=asker, producer_id=PRODUCER, producer_epoch=0, number=number, is_commit=commits)
    )
    return reply


async def fetched(line: Line, version: int, partitions: tuple[int, ...] | None, *, require_stable: bool) -> dict[int, tuple[Any, ...]]:
    """(error, offset, leader epoch, metadata) of each partition; None wants all that there are."""
    topic_id = (await line.ask(ApiKey.METADATA, topics=[{"name": "a"}])).topics[0].topic_id
    named: dict[str, Any] = {"topic_id": topic_id} if version >= 10 else {"name": "a"}
    topics = None if partitions is None else [{**named, "partition_indexes": list(partitions)}]
    if version >= 8:
        answer = await line.ask(ApiKey.OFFSET_FETCH, version, groups=[{"group_id": "g", "topics": topics}], require_stable=require_stable)
        (found,) = answer.groups
    else:
        stable = {"require_stable": require_stable} if version >= 7 else {}
        found = await line.ask(ApiKey.OFFSET_FETCH, version, group_id="g", topics=topics, **stable)
    assert version < 2 or found.error_code == 0
    return {
        row.partition_index: (int(row.error_code), row.committed_offset, getattr(row, "committed_leader_epoch", -1), row.metadata)
        for topic in found.topics
        for row in topic.partitions
    }


@pytest.mark.parametrize("version", range(7, 11))
async def test_whoever_wants_stable_offsets_is_told_to_come_again_for_those_that_are_not(serving: Serving, version: int) -> None:
    line = await opened(serving)
    unstable = (UNSTABLE, -1, -1, "")
    assert await fetched(line, version, ALL, require_stable=True) == {0: (0, 10, -1, ""), 1: unstable, 2: unstable}
    assert await fetched(line, version, None, require_stable=True) == {0: (0, 10, -1, ""), 1: unstable}
    assert await end(serving, commits=True) == PendingEnded(offsets=2)
    assert await offsets_of(line, "g", partitions=ALL) == {0: 10, 1: 21, 2: 22}
    assert await fetched(line, version, None, require_stable=True) == {0: (0, 10, -1, ""), 1: (0, 21, -1, ""), 2: (0, 22, -1, "")}


@pytest.mark.parametrize("version", range(1, 11))
async def test_for_everybody_else_it_is_as_if_the_transaction_was_not_there(serving: Serving, version: int) -> None:
    line = await opened(serving)
    assert await fetched(line, version, ALL, require_stable=False) == {0: (0, 10, -1, ""), 1: (0, 11, -1, ""), 2: (0, -1, -1, "")}
    if version >= 2:
        assert await fetched(line, version, None, require_stable=False) == {0: (0, 10, -1, ""), 1: (0, 11, -1, "")}
    assert await end(serving, commits=False) == PendingEnded(offsets=2)
    assert await fetched(line, version, ALL, require_stable=False) == {0: (0, 10, -1, ""), 1: (0, 11, -1, ""), 2: (0, -1, -1, "")}


@pytest.mark.parametrize("commits", [True, False])
async def test_what_is_pending_outlives_the_node(serving: Serving, commits: bool) -> None:
    """From the log, and then from the snapshot that a proper stop leaves."""
    await opened(serving)
    for finish in (serving.crash, serving.stop):
        await finish()
        await serving.open(**QUICK)
        line = await serving.line()
        await loaded(serving, line)
        found = await fetched(line, 9, ALL, require_stable=True)
        assert {index: row[0] for index, row in found.items()} == {0: 0, 1: UNSTABLE, 2: UNSTABLE}
    assert await end(serving, commits=commits) == PendingEnded(offsets=2)
    await serving.stop()
    await serving.open(**QUICK)
    line = await serving.line()
    await loaded(serving, line)
    assert await offsets_of(line, "g", partitions=ALL) == ({0: 10, 1: 21, 2: 22} if commits else {0: 10, 1: 11, 2: -1})


async def test_a_deleted_topic_takes_what_is_pending_for_it_along(serving: Serving) -> None:
    line = await opened(serving)
    await line.delete("a")
    await line.create("a", 3)
    assert await offsets_of(line, "g", partitions=ALL) == {0: -1, 1: -1, 2: -1}
    assert await end(serving, commits=True) == PendingEnded()
    assert await offsets_of(line, "g", partitions=ALL) == {0: -1, 1: -1, 2: -1}


async def test_a_deleted_group_takes_what_is_pending_in_it_along(serving: Serving) -> None:
    line = await opened(serving)
    answer = await line.ask(ApiKey.DELETE_GROUPS, groups_names=["g"])
    assert answer.results[0].error_code == 0
    assert await end(serving, commits=True) == PendingEnded()
    assert (await line.ask(ApiKey.LIST_GROUPS)).groups == ()
