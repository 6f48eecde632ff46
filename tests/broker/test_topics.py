"""CreateTopics and DeleteTopics: what is decided, what holds when the reply leaves, and what a crash in between leaves behind."""

import asyncio
from typing import Any

import pytest
from serving import Line, Serving, batch, fetch_body, produce_body, rows_of, sequenced, started, virtually
from waiting import PATIENCE_MS, until_async

from penstock.errors import ErrorCode
from penstock.simulator.disk_faults import DiskFaults
from penstock.simulator.env import SimEnv
from penstock.simulator.platter import Loss
from penstock.simulator.world import World
from penstock.wire.api_keys import ApiKey

ALL_LOOPS = True

pytestmark = pytest.mark.invariant("node.recreated-topic-is-new")


def wish(name: str, partitions: int = 1, replicas: int = 1, **more: Any) -> dict[str, Any]:
    return {"name": name, "num_partitions": partitions, "replication_factor": replicas} | more


async def create(line: Line, *topics: dict[str, Any], version: int = 7, **options: Any) -> dict[str, Any]:
    answer = await line.ask(ApiKey.CREATE_TOPICS, version, topics=list(topics), timeout_ms=PATIENCE_MS, **options)
    return {topic.name: topic for topic in answer.topics}


async def names(line: Line) -> list[str]:
    return [topic.name for topic in (await line.ask(ApiKey.METADATA, topics=None)).topics]


async def test_topics_are_made_together_and_refused_one_by_one(serving: Serving) -> None:
    await serving.open()
    line = await serving.line()
    await line.create("there")
    made = await create(
        line,
        wish("good", 3),
        wish("there"),
        wish("bad/name"),
        wish("no-partitions", 0),
        wish("many-replicas", 1, 2),
        wish("no-replicas", 1, 0),
        wish("bad-config", configs=[{"name": "no.such.setting", "value": "1"}]),
        wish("bad-value", configs=[{"name": "retention.ms", "value": "soon"}]),
        wish("twice"),
        wish("twice"),
    )
    assert {name: ErrorCode(topic.error_code) for name, topic in made.items()} == {
        "good": ErrorCode.NONE,
        "there": ErrorCode.TOPIC_ALREADY_EXISTS,
        "bad/name": ErrorCode.INVALID_TOPIC_EXCEPTION,
        "no-partitions": ErrorCode.INVALID_PARTITIONS,
        "many-replicas": ErrorCode.INVALID_REPLICATION_FACTOR,
        "no-replicas": ErrorCode.INVALID_REPLICATION_FACTOR,
        "bad-config": ErrorCode.INVALID_CONFIG,
        "bad-value": ErrorCode.INVALID_CONFIG,
        "twice": ErrorCode.INVALID_REQUEST,
    }
    for name, topic in made.items():
        is_made = name == "good"
        assert (topic.error_message is None) == is_made
        assert (topic.num_partitions, topic.replication_factor) == ((3, 1) if is_made else (-1, -1))
        assert (topic.topic_id is not None and topic.topic_id.bytes != bytes(16)) == is_made
    assert "already exists" in (made["there"].error_message or ""), "scripts around kafka-topics look for these words"
    assert await names(line) == ["there", "good"]
    assert (await line.produce("good", b"x", partition=2)).error_code == 0, "it can be used at once"


async def test_defaults_are_the_nodes(serving: Serving) -> None:
    await serving.open(num_partitions=5)
    line = await serving.line()
    for version in range(4, 8):
        name = f"v{version}"
        assert (await create(line, wish(name, -1, -1), version=version))[name].error_code == 0
        answer = await line.ask(ApiKey.METADATA, topics=[{"name": name}])
        assert len(answer.topics[0].partitions) == 5


async def test_a_trial_stores_nothing_and_says_the_same(serving: Serving) -> None:
    node = await serving.open()
    line = await serving.line()
    end_before = node.quorum.end
    made = await create(line, wish("a", 3), wish("b/c"), validate_only=True)
    assert {name: topic.error_code for name, topic in made.items()} == {"a": 0, "b/c": ErrorCode.INVALID_TOPIC_EXCEPTION}
    assert made["a"].num_partitions == 3
    assert await names(line) == []
    assert node.quorum.end == end_before


async def test_assignments_are_followed_or_refused(serving: Serving) -> None:
    await serving.open(node_id=4)
    line = await serving.line()

    def assigned(name: str, *replicas: list[int], **more: Any) -> dict[str, Any]:
        rows = [{"partition_index": index, "broker_ids": nodes} for index, nodes in enumerate(replicas)]
        return wish(name, -1, -1, assignments=rows) | more

    made = await create(
        line,
        assigned("good", [4], [4]),
        assigned("stranger", [9]),
        assigned("empty", []),
        assigned("double", [4, 4]),
        assigned("both", [4], num_partitions=1),
        wish("gap", -1, -1, assignments=[{"partition_index": 1, "broker_ids": [4]}]),
    )
    assert {name: ErrorCode(topic.error_code) for name, topic in made.items()} == {
        "good": ErrorCode.NONE,
        "stranger": ErrorCode.INVALID_REPLICA_ASSIGNMENT,
        "empty": ErrorCode.INVALID_REPLICA_ASSIGNMENT,
        "double": ErrorCode.INVALID_REPLICA_ASSIGNMENT,
        "both": ErrorCode.INVALID_REQUEST,
        "gap": ErrorCode.INVALID_REPLICA_ASSIGNMENT,
    }
    assert made["good"].num_partitions == 2


async def test_the_reply_tells_the_configs_and_where_they_come_from(serving: Serving) -> None:
    await serving.open(topic_defaults={"retention.ms": "5000"})
    line = await serving.line()
    settings = [{"name": "flush", "value": "os"}, {"name": "segment.bytes", "value": None}, {"name": "preallocate", "value": "true"}]
    made = await create(line, wish("a", configs=settings))
    configs = {config.name: (config.value, config.config_source) for config in made["a"].configs}
    assert configs["flush"] == ("os", 1)
    assert configs["segment.bytes"] == (str(1 << 30), 5), "a null means the default"
    assert configs["retention.ms"] == ("5000", 4), "the node's own default"
    assert {source for _, source in configs.values()} == {1, 4, 5}, "clients refuse other numbers"


async def test_partitions_are_bounded(serving: Serving) -> None:
    await serving.open(partitions_max=10)
    line = await serving.line()
    made = await create(line, wish("a", 6), wish("b", 6), wish("c", 4), wish("d", 1), wish("e", 11))
    codes = [made[name].error_code for name in "abcde"]
    no = ErrorCode.POLICY_VIOLATION
    assert codes == [0, no, 0, no, ErrorCode.INVALID_PARTITIONS]
    await line.delete("a")
    assert (await create(line, wish("d", 6)))["d"].error_code == 0, "a deleted topic gives its room back"


# Deleting


async def delete(line: Line, *topics: dict[str, Any]) -> list[Any]:
    return list((await line.ask(ApiKey.DELETE_TOPICS, 6, topics=list(topics), timeout_ms=PATIENCE_MS)).responses)


async def test_by_name_by_id_and_by_neither(serving: Serving) -> None:
    await serving.open()
    line = await serving.line()
    ids = {name: await line.create(name) for name in ("a", "b", "c")}
    rows = await delete(
        line,
        {"name": "a"},
        {"name": None, "topic_id": ids["b"]},
        {"name": "c", "topic_id": ids["c"]},
        {"name": "d"},
        {"name": None, "topic_id": bytes(15) + b"\7"},
        {"name": None},
        {"name": "a"},
    )
    assert [ErrorCode(row.error_code) for row in rows] == [
        ErrorCode.NONE,
        ErrorCode.NONE,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ]
    assert [row.name for row in rows] == ["a", "b", "c", "d", None, None, "a"]
    assert rows[1].topic_id.bytes == ids["b"]
    assert await names(line) == ["c"]
    old = await line.ask(ApiKey.DELETE_TOPICS, 1, topic_names=["c", "x"], timeout_ms=PATIENCE_MS)
    assert [(row.name, row.error_code) for row in old.responses] == [("c", 0), ("x", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)]


async def test_what_waits_on_a_deleted_topic_ends_at_once(serving: Serving) -> None:
    node = await serving.open()
    producer, reader, single, other = [await serving.line() for _ in range(4)]
    await other.create("a", 2)
    await other.create("b")
    reader.send(ApiKey.FETCH, **fetch_body({"a": 0}, max_wait_ms=PATIENCE_MS))
    serving.env.disk.flushes.hold()
    body = produce_body({"a": {0: batch(b"1"), 1: batch(b"2")}, "b": {0: batch(b"3")}}, timeout_ms=PATIENCE_MS)
    producer.send(ApiKey.PRODUCE, **body)
    single.send(ApiKey.PRODUCE, **produce_body({"a": {0: batch(b"4")}}, timeout_ms=PATIENCE_MS))
    await until_async(lambda: node.metrics.batches_in == 4)
    other.send(ApiKey.DELETE_TOPICS, topics=[{"name": "a"}], timeout_ms=PATIENCE_MS)
    await until_async(lambda: node.metrics.requests["DELETE_TOPICS"] == 1)
    serving.env.disk.flushes.let_go()
    assert (await other.receive()).responses[0].error_code == 0
    code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert rows_of(await reader.receive())["a", 0].error_code in (0, code), "it may have been flushed before the deletion"
    answered = {
        (topic.name, row.index): row.error_code for topic in (await producer.receive()).responses for row in topic.partition_responses
    }
    assert answered["b", 0] == 0
    assert {answered["a", 0], answered["a", 1]} <= {0, code}
    assert (await single.receive()).responses[0].partition_responses[0].error_code in (0, code)
    assert not node.parked_produces


def test_a_produce_that_waits_for_a_slow_disk_is_refused_when_its_topic_goes() -> None:
    async def scenario(world: World, env: SimEnv) -> None:
        node, address = await started(env)
        line, other = await Line.open(address), await Line.open(address)
        await line.create("a", flush="interval")
        await line.create("slow")
        partition = node.partitions.find("slow", 0)
        assert partition is not None
        world.hosts["node"].disk.faults = DiskFaults(sync_seconds_min=1, sync_seconds_max=1)
        began = env.now()
        line.send(ApiKey.PRODUCE, **produce_body({"slow": {0: batch(b"x")}}, timeout_ms=PATIENCE_MS))
        line.send(ApiKey.PRODUCE, **produce_body({"slow": {0: batch(b"x")}, "a": {0: batch(b"y")}}, timeout_ms=PATIENCE_MS))
        await asyncio.sleep(0.01)
        world.hosts["node"].disk.faults = DiskFaults(sync_seconds_min=0.1, sync_seconds_max=0.1)
        await other.delete("slow")
        rows = [row for _ in range(2) for topic in (await line.receive()).responses for row in topic.partition_responses]
        assert [row.error_code for row in rows] == [3, 3, 0]
        assert env.now() - began < 0.9, "before the slow flush has ended"
        await asyncio.sleep(5)
        assert partition.leader.parked_count == 0

    virtually(scenario)


async def test_files_go_and_nothing_is_owed_any_more(serving: Serving) -> None:
    node = await serving.open()
    line = await serving.line()
    topic_id = await line.create("a", 3)
    await line.produce("a", b"x", partition=1)
    await line.fetch("a", {0: 0, 1: 0, 2: 0})
    directory = serving.directory / "topics" / topic_id.hex()
    assert directory.exists()
    await line.delete("a")
    await until_async(lambda: not node.image.graveyard)
    assert not directory.exists()
    assert len(node.files) <= 1, "no file of it is open any more"


async def test_a_topic_that_was_never_written_to_is_buried_too(serving: Serving) -> None:
    node = await serving.open()
    line = await serving.line()
    for _ in range(3):
        await line.create("a")
        await line.delete("a")
    await until_async(lambda: not node.image.graveyard)


async def test_a_name_can_be_used_again_at_once_and_is_another_topic(serving: Serving) -> None:
    await serving.open()
    line = await serving.line()
    for generation in range(5):
        await line.create("a")
        row = await line.produce_batch("a", sequenced(7, 0, b"%d" % generation))
        assert (row.error_code, row.base_offset) == (0, 0), "nothing of the one before it"
        await line.delete("a")
    await line.create("a")
    assert await line.latest("a") == 0


@pytest.mark.parametrize("loss", [Loss.ALL, Loss.NONE, None])
def test_a_crash_at_any_moment_of_a_deletion_is_made_good_at_the_next_start(loss: Loss | None) -> None:
    outcomes = {deleted_with_a_crash_at(change, loss) for change in range(1, 12)}
    assert outcomes == {"still there", "gone"}, "crashes before and after the deletion was durable"


def deleted_with_a_crash_at(change: int, loss: Loss | None) -> str:
    with World(5) as world:
        disk = world.host("node").disk
        topic_ids, topics_left = [], []

        async def live_and_die(env: SimEnv) -> None:
            _, address = await started(env)
            line = await Line.open(address)
            topic_ids.append(await line.create("a"))
            await line.produce("a", bytes(1_000))
            disk.crash_at(change)
            await line.delete("a")
            await asyncio.sleep(100)

        async def live_again(env: SimEnv) -> None:
            node, address = await started(env)
            line = await Line.open(address)
            topics_left.extend(await names(line))
            if topics_left:
                assert (await line.produce("a", b"x")).base_offset == 1
            await until_async(lambda: not node.image.graveyard)
            await node.stop()

        world.start("node", live_and_die)
        world.run_until(lambda: world.has_ended("node"), 1_000)
        world.power_cut("node", loss)
        world.start("node", live_again)
        world.run_until(lambda: world.has_ended("node"), 1_000)
        assert world.hosts["node"].endings[-1] == "returned"
        has_files = any(topic_ids[0].hex() in path for path in disk.files())
        assert has_files == bool(topics_left)
        return "still there" if topics_left else "gone"


# Disks


@pytest.mark.parametrize("snapshot_every_bytes", [1, 1 << 20])
def test_a_full_disk_refuses_a_topic_and_nothing_is_changed(monkeypatch: pytest.MonkeyPatch, snapshot_every_bytes: int) -> None:
    """Whatever the answer says holds, also when there is room for the record and none for the snapshot after it."""
    monkeypatch.setattr("penstock.broker.quorum_snapshots.SNAPSHOT_EVERY_BYTES", snapshot_every_bytes)
    monkeypatch.setattr("penstock.broker.quorum.ROOM_KEPT_BYTES", 0)

    async def scenario(world: World, env: SimEnv) -> None:
        _, address = await started(env, disk_free_bytes_min=0, disk_reserve_bytes=0)
        line = await Line.open(address)
        disk = world.hosts["node"].disk
        used = disk.capacity_bytes - disk.free_bytes()
        for room in range(0, 800, 25):
            disk.capacity_bytes = used + room
            code = (await create(line, wish("a", 2)))["a"].error_code
            disk.capacity_bytes = used + (1 << 20)
            is_there = "a" in await names(line)
            assert (code == 0) == is_there, f"with room for {room} bytes the answer was {ErrorCode(code).name}"
            if is_there:
                await asyncio.sleep(2)
                assert (await line.produce("a", b"x", partition=1)).error_code == 0
                await line.delete("a")
                await asyncio.sleep(3)
            used = disk.capacity_bytes - disk.free_bytes()

    virtually(scenario)


@pytest.mark.invariant("log.disk-full-undoes-append")
def test_a_topic_that_was_made_with_the_last_bytes_of_a_disk_is_written_to_when_there_is_room(monkeypatch: pytest.MonkeyPatch) -> None:
    """The record of the topic found room, and the directories of its partitions did not."""
    monkeypatch.setattr("penstock.broker.quorum.ROOM_KEPT_BYTES", -1_000)

    async def scenario(world: World, env: SimEnv) -> None:
        node, address = await started(env, disk_free_bytes_min=0)
        line = await Line.open(address)
        disk = world.hosts["node"].disk
        before = disk.free_bytes()
        await line.create("a", 2)
        record_bytes = before - disk.free_bytes()
        roomy, disk.capacity_bytes = disk.capacity_bytes, disk.capacity_bytes - disk.free_bytes() + record_bytes
        await line.create("b", 2)
        assert disk.free_bytes() == 0
        topic_id = node.image.topics["b"].topic_id
        assert not disk.exists(f"topics/{topic_id.hex()}")
        assert (await line.produce("b", b"x")).error_code == ErrorCode.KAFKA_STORAGE_ERROR
        assert await line.latest("b") == 0, "it can be read, and is empty"
        disk.capacity_bytes = roomy
        await asyncio.sleep(2)  # Until the node has seen that there is room.
        for partition in range(2):
            assert (await line.produce("b", b"x", partition=partition)).error_code == ErrorCode.NONE

    virtually(scenario)
