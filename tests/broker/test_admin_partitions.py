"""CreatePartitions: a topic grows while it is used; what cannot grow is refused, and a crash loses neither the old nor the new."""

import asyncio
from typing import Any

import pytest
from serving import Line, Serving, fetch_body, rows_of, started
from tiers import pick_step
from waiting import PATIENCE_MS, until_async

from penstock.errors import ErrorCode
from penstock.simulator.env import SimEnv
from penstock.simulator.platter import Loss
from penstock.simulator.world import World
from penstock.wire.api_keys import ApiKey

ALL_LOOPS = True


def wish(name: str, count: int, *assignments: list[int]) -> dict[str, Any]:
    return {"name": name, "count": count, "assignments": [{"broker_ids": nodes} for nodes in assignments] or None}


async def grow(line: Line, *topics: dict[str, Any], version: int = 3, **options: Any) -> dict[str, ErrorCode]:
    answer = await line.ask(ApiKey.CREATE_PARTITIONS, version, topics=list(topics), timeout_ms=PATIENCE_MS, **options)
    for row in answer.results:
        assert (row.error_message is None) == (row.error_code == 0), "a no says why"
    return {row.name: ErrorCode(row.error_code) for row in answer.results}


async def partitions_of(line: Line, topic: str) -> list[int]:
    answer = await line.ask(ApiKey.METADATA, topics=[{"name": topic}])
    return [row.partition_index for row in answer.topics[0].partitions]


@pytest.mark.parametrize("version", range(4))
async def test_new_partitions_can_be_used_at_once_and_old_ones_keep_what_they_have(serving: Serving, version: int) -> None:
    await serving.open()
    line = await serving.line()
    topic_id = await line.create("a", 2)
    await line.produce("a", b"old", partition=1)
    assert await partitions_of(line, "a") == [0, 1]
    assert await grow(line, wish("a", 5), version=version) == {"a": ErrorCode.NONE}
    assert await partitions_of(line, "a") == [0, 1, 2, 3, 4], "nothing that was remembered is out of date"
    for index in range(5):
        assert (await line.produce("a", b"new", partition=index)).base_offset == (1 if index == 1 else 0)
    answer = await line.fetch(topic_id, dict.fromkeys(range(5), 0))
    assert {index for (_, index), row in rows_of(answer).items() if row.records} == set(range(5))


async def test_what_cannot_grow_is_refused_by_its_code_and_the_others_grow(serving: Serving) -> None:
    await serving.open(node_id=4, partitions_max=20)
    line = await serving.line()
    for name in ("a", "b", "c", "d", "e", "f", "g", "h"):
        await line.create(name, 2)
    codes = await grow(
        line,
        wish("a", 3),
        wish("b", 2),
        wish("c", 1),
        wish("d", 4, [4]),
        wish("e", 3, [9]),
        wish("f", 4, [4], [4]),
        wish("g", 1_000_000_000),
        wish("h", 3),
        wish("h", 4),
        wish("none", 3),
        wish("__consumer_offsets", 60),
    )
    assert codes == {
        "a": ErrorCode.NONE,
        "b": ErrorCode.INVALID_PARTITIONS,
        "c": ErrorCode.INVALID_PARTITIONS,
        "d": ErrorCode.INVALID_REPLICA_ASSIGNMENT,
        "e": ErrorCode.INVALID_REPLICA_ASSIGNMENT,
        "f": ErrorCode.NONE,
        "g": ErrorCode.POLICY_VIOLATION,
        "h": ErrorCode.INVALID_REQUEST,
        "none": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        "__consumer_offsets": ErrorCode.INVALID_TOPIC_EXCEPTION,
    }
    sizes = {name: len(topic.partitions) for name, topic in serving.node.image.topics.items()}
    assert sizes == dict.fromkeys("bcdegh", 2) | {"a": 3, "f": 4}
    assert serving.node.image.partition_count == 19
    assert await grow(line, wish("b", 4)) == {"b": ErrorCode.POLICY_VIOLATION}, "two more would be one too many"


async def test_a_trial_says_the_same_and_adds_nothing(serving: Serving) -> None:
    node = await serving.open()
    line = await serving.line()
    await line.create("a")
    assert await grow(line, wish("a", 3), wish("b", 3), validate_only=True) == {
        "a": ErrorCode.NONE, "b": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }  # fmt: skip
    assert (await partitions_of(line, "a"), len(node.partitions)) == ([0], 1)


async def test_a_session_that_waits_for_a_partition_finds_it_when_it_comes(serving: Serving) -> None:
    await serving.open()
    line, other = await serving.line(), await serving.line()
    await line.create("a")
    answer = await line.ask(ApiKey.FETCH, 12, **fetch_body({"a": {0: 0, 1: 0}}, session=(0, 0)))
    assert rows_of(answer)["a", 1].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    await grow(other, wish("a", 2))
    await other.produce("a", b"x", partition=1)
    answer = await line.ask(ApiKey.FETCH, 12, **fetch_body({}, session=(answer.session_id, 1)))
    assert rows_of(answer)["a", 1].records


async def test_a_grown_topic_goes_as_a_whole(serving: Serving) -> None:
    node = await serving.open()
    line = await serving.line()
    topic_id = await line.create("a")
    await grow(line, wish("a", 3))
    await line.produce("a", b"x", partition=2)
    await line.delete("a")
    await until_async(lambda: not node.image.graveyard)
    assert not (serving.directory / "topics" / topic_id.hex()).exists()
    assert (node.image.partition_count, len(node.partitions)) == (0, 0)


@pytest.mark.repeats
@pytest.mark.invariant("node.admin-changes-durable")
@pytest.mark.parametrize("loss", [Loss.ALL, Loss.NONE, None])
def test_a_crash_at_any_moment_leaves_the_topic_as_it_was_or_grown(loss: Loss | None) -> None:
    outcomes = {grown_with_a_crash_at(moment, loss) for moment in range(1, 14, pick_step(test=3, slow=1))}
    assert outcomes == {1, 3}, "crashes before and after the growth was durable"


def grown_with_a_crash_at(moment: int, loss: Loss | None) -> int:
    """How many partitions the topic has afterwards; each of them works."""
    with World(5) as world:
        disk = world.host("node").disk
        found: list[int] = []

        async def live_and_die(env: SimEnv) -> None:
            _, address = await started(env)
            line = await Line.open(address)
            await line.create("a")
            await line.produce("a", bytes(1_000))
            disk.crash_at(moment)
            await grow(line, wish("a", 3))
            await line.produce("a", b"x", partition=2)
            await asyncio.sleep(100)

        async def live_again(env: SimEnv) -> None:
            node, address = await started(env)
            line = await Line.open(address)
            found.extend(await partitions_of(line, "a"))
            assert await line.latest("a", 0) == 1
            for index in found[1:]:
                assert (await line.produce("a", b"y", partition=index)).error_code == 0
            await node.stop()

        world.start("node", live_and_die)
        world.run_until(lambda: world.has_ended("node"), 1_000)
        world.power_cut("node", loss)
        world.start("node", live_again)
        world.run_until(lambda: world.has_ended("node"), 1_000)
        assert world.hosts["node"].endings[-1] == "returned"
        return len(found)
