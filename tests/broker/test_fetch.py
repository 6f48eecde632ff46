"""Fetch without sessions: what is sent, how much of it, and when."""

import asyncio
from typing import Any

import pytest
from serving import Line, Serving, batch, fetch_body, produce_body, records_in, rows_of, started, virtually
from waiting import PATIENCE_MS, until_async

from penstock.errors import ErrorCode
from penstock.simulator.disk_faults import DiskFaults
from penstock.simulator.env import SimEnv
from penstock.simulator.world import World
from penstock.wire.api_keys import ApiKey
from penstock.wire.compression import Codec

ALL_LOOPS = True

ALL_VERSIONS = range(4, 19)


def values_in(row: Any) -> list[bytes | None]:
    return [record.value for record in records_in(row.records)]


async def fill(line: Line, topic: str, *sizes: int, partition: int = 0) -> None:
    """One batch of each size, more or less."""
    for size in sizes:
        await line.produce(topic, bytes(size), partition=partition)


@pytest.mark.parametrize("codec", list(Codec))
async def test_what_was_sent_is_read_in_every_version(serving: Serving, codec: Codec) -> None:
    await serving.open()
    line = await serving.line()
    topic_id = await line.create("a")
    await line.produce_batch("a", batch(b"1", b"2", codec=codec))
    await line.produce_batch("a", batch(b"3", codec=codec))
    for version in ALL_VERSIONS:
        topic: str | bytes = topic_id if version >= 13 else "a"
        row = rows_of(await line.fetch(topic, version=version))[topic, 0]
        assert (row.error_code, row.high_watermark, row.last_stable_offset) == (0, 3, 3), version
        records = records_in(row.records)
        assert [(record.offset, record.value) for record in records] == [(0, b"1"), (1, b"2"), (2, b"3")], version


async def test_an_offset_inside_a_batch_brings_the_whole_batch(serving: Serving) -> None:
    await serving.open()
    line = await serving.line()
    await line.create("a")
    await line.produce("a", b"0", b"1", b"2")
    await line.produce("a", b"3")
    assert values_in(rows_of(await line.fetch("a", 2))["a", 0]) == [b"0", b"1", b"2", b"3"]
    assert values_in(rows_of(await line.fetch("a", 3))["a", 0]) == [b"3"]


async def test_at_the_end_there_is_nothing_and_no_error(serving: Serving) -> None:
    await serving.open()
    line = await serving.line()
    await line.create("a")
    empty = rows_of(await line.fetch("a"))["a", 0]
    assert (empty.error_code, empty.high_watermark, empty.log_start_offset, empty.records) == (0, 0, 0, b"")
    await line.produce("a", b"0")
    row = rows_of(await line.fetch("a", 1))["a", 0]
    assert (row.error_code, row.high_watermark, row.records) == (0, 1, b"")


@pytest.mark.parametrize("offset", [2, 100, -1, -5])
async def test_an_offset_that_never_was_is_out_of_range_and_answered_at_once(serving: Serving, offset: int) -> None:
    await serving.open()
    line = await serving.line()
    await line.create("a")
    await line.produce("a", b"0")
    row = rows_of(await line.fetch("a", offset, max_wait_ms=PATIENCE_MS))["a", 0]
    assert row.error_code == ErrorCode.OFFSET_OUT_OF_RANGE
    assert (row.high_watermark, row.log_start_offset) == (1, 0)


async def test_what_is_not_flushed_is_neither_read_nor_out_of_range(serving: Serving) -> None:
    await serving.open()
    line, other = await serving.line(), await serving.line()
    await line.create("a")
    serving.env.disk.flushes.hold()
    other.send(ApiKey.PRODUCE, **produce_body({"a": {0: batch(b"x")}}))
    await serving.env.disk.flushes.until_waited_for()
    for offset in (0, 1):
        row = rows_of(await line.fetch("a", offset))["a", 0]
        assert (row.error_code, row.high_watermark, row.records) == (0, 0, b"")


async def test_leader_epochs_are_compared(serving: Serving) -> None:
    node = await serving.open()
    line = await serving.line()
    await line.create("a")
    await line.produce("a", b"0")
    partition = node.partitions.find("a", 0)
    assert partition is not None
    await serving.crash()
    node = await serving.open()
    line = await serving.line()
    codes = [rows_of(await line.fetch("a", leader_epoch=epoch, max_wait_ms=PATIENCE_MS))["a", 0].error_code for epoch in (0, 1, 2, -1)]
    assert codes == [ErrorCode.FENCED_LEADER_EPOCH, 0, ErrorCode.UNKNOWN_LEADER_EPOCH, 0]


async def test_unknown_topics_partitions_and_ids_are_told_apart_and_answered_at_once(serving: Serving) -> None:
    await serving.open()
    line = await serving.line()
    topic_id, stranger = await line.create("a"), bytes(15) + b"\7"
    by_name = rows_of(await line.ask(ApiKey.FETCH, **fetch_body({"a": {0: 0, 1: 0, -1: 0}, "b": 0}, max_wait_ms=PATIENCE_MS)))
    assert {place: row.error_code for place, row in by_name.items()} == {
        ("a", 0): 0,
        ("a", 1): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ("a", -1): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ("b", 0): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
    by_id = rows_of(await line.ask(ApiKey.FETCH, 18, **fetch_body({topic_id: {0: 0, 1: 0}, stranger: 0}, max_wait_ms=PATIENCE_MS)))
    assert {place: row.error_code for place, row in by_id.items()} == {
        (topic_id, 0): 0,
        (topic_id, 1): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        (stranger, 0): ErrorCode.UNKNOWN_TOPIC_ID,
    }


async def test_read_committed_sees_the_same_and_an_empty_list_of_aborted_transactions(serving: Serving) -> None:
    await serving.open()
    line = await serving.line()
    await line.create("a")
    await line.produce("a", b"0")
    committed = rows_of(await line.fetch("a", isolation_level=1))["a", 0]
    uncommitted = rows_of(await line.fetch("a", isolation_level=0))["a", 0]
    assert committed.aborted_transactions == ()
    assert uncommitted.aborted_transactions is None
    assert committed.records == uncommitted.records
    assert committed.last_stable_offset == 1


@pytest.mark.parametrize("session", [(0, -1), (0, 0)])
async def test_replicas_are_not_served_here(serving: Serving, session: tuple[int, int]) -> None:
    node = await serving.open()
    line = await serving.line()
    await line.create("a")
    await line.produce("a", b"0")
    answer = await line.fetch("a", replica_id=3, session=session)
    assert rows_of(answer)["a", 0].error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    assert not rows_of(answer)["a", 0].records
    assert len(node.fetch_sessions) == 0


async def test_a_fetch_of_nothing_is_answered_at_once(serving: Serving) -> None:
    await serving.open()
    line = await serving.line()
    for session in ((0, -1), (0, 0)):
        answer = await line.ask(ApiKey.FETCH, **fetch_body({}, max_wait_ms=PATIENCE_MS, session=session))
        assert (answer.error_code, answer.session_id, answer.responses) == (0, 0, ())


# How much


async def test_whole_batches_are_sent_up_to_the_limits(serving: Serving) -> None:
    await serving.open()
    line = await serving.line()
    await line.create("a")
    await fill(line, "a", *[1_000] * 10)
    size = len(rows_of(await line.fetch("a"))["a", 0].records) // 10
    for limit, batches in ((3 * size, 3), (3 * size + size // 2, 3), (size, 1), (1, 1), (0, 1)):
        row = rows_of(await line.fetch("a", partition_max_bytes=limit))["a", 0]
        assert len(row.records) == batches * size, f"partition limit {limit}"
        row = rows_of(await line.fetch("a", max_bytes=limit))["a", 0]
        assert len(row.records) == batches * size, f"limit {limit}"


async def test_only_the_first_batch_of_a_reply_may_be_larger_than_the_limit(serving: Serving) -> None:
    await serving.open()
    line = await serving.line()
    await line.create("a", 4)
    for partition, size in enumerate((5_000, 5_000, 100, 5_000)):
        await fill(line, "a", size, 100, partition=partition)
    answer = await line.fetch("a", {0: 0, 1: 0, 2: 0, 3: 0}, max_bytes=1_000)
    assert [len(records_in(row.records)) for row in rows_of(answer).values()] == [1, 0, 0, 0]


async def test_a_batch_larger_than_the_partition_limit_is_sent_only_as_the_first_of_a_reply(serving: Serving) -> None:
    """KIP-74: a client that allows 1,000 bytes per partition gets one larger batch so as not to hang, not one from each partition."""
    await serving.open()
    line = await serving.line()
    await line.create("a", 3)
    for partition, size in enumerate((5_000, 5_000, 100)):
        await fill(line, "a", size, partition=partition)
    answer = await line.fetch("a", {0: 0, 1: 0, 2: 0}, partition_max_bytes=1_000)
    assert [len(records_in(row.records)) for row in rows_of(answer).values()] == [1, 0, 1]
    reversed_answer = await line.fetch("a", {2: 0, 1: 0, 0: 0}, partition_max_bytes=1_000)
    assert [len(records_in(row.records)) for row in rows_of(reversed_answer).values()] == [1, 0, 0], "the small one came first"


async def test_the_node_bounds_a_reply_whatever_is_asked_for(serving: Serving) -> None:
    await serving.open(fetch_max_bytes=4_096)
    line = await serving.line()
    await line.create("a", 2)
    for partition in range(2):
        await fill(line, "a", *[1_000] * 10, partition=partition)
    answer = await line.fetch("a", {0: 0, 1: 0}, max_bytes=(1 << 31) - 1, partition_max_bytes=(1 << 31) - 1)
    assert sum(len(row.records) for row in rows_of(answer).values()) <= 4_096


# When


async def test_a_fetch_waits_for_a_byte_and_leaves_with_it(serving: Serving) -> None:
    await serving.open()
    line, other = await serving.line(), await serving.line()
    await line.create("a", 2)
    line.send(ApiKey.FETCH, **fetch_body({"a": {0: 0, 1: 0}}, max_wait_ms=PATIENCE_MS))
    assert await line.is_silent()
    await other.produce("a", b"x", partition=1)
    rows = rows_of(await line.receive())
    assert values_in(rows["a", 1]) == [b"x"]
    assert values_in(rows["a", 0]) == []


def test_a_fetch_leaves_empty_when_its_time_is_up() -> None:
    async def scenario(world: World, env: SimEnv) -> None:
        node, address = await started(env)
        line = await Line.open(address)
        await line.create("a")
        for wait_ms in (0, -1, 1, 700, 9_000):
            began = env.now()
            row = rows_of(await line.fetch("a", max_wait_ms=wait_ms))["a", 0]
            assert (row.error_code, row.records) == (0, b"")
            assert max(0, wait_ms) <= (env.now() - began) * 1000 < max(0, wait_ms) + 10
        partition = node.partitions.find("a", 0)
        assert partition is not None and not partition.watchers

    virtually(scenario)


def test_a_fetch_for_many_bytes_waits_until_there_are_enough() -> None:
    async def scenario(world: World, env: SimEnv) -> None:
        _, address = await started(env)
        line, other = await Line.open(address), await Line.open(address)
        await line.create("a", 2)
        began = env.now()
        line.send(ApiKey.FETCH, **fetch_body({"a": {0: 0, 1: 0}}, max_wait_ms=9_000, min_bytes=3_000))
        for number in range(5):
            await asyncio.sleep(1)
            await other.produce("a", bytes(900), partition=number % 2)
        rows = rows_of(await line.receive())
        assert 4 <= env.now() - began < 6, "the fourth makes it enough"
        assert sum(len(row.records) for row in rows.values()) >= 3_000
        row = rows_of(await line.fetch("a", max_wait_ms=2_000, min_bytes=1 << 20))["a", 0]
        assert len(row.records) > 900, "when time is up it leaves with what there is"

    virtually(scenario)


async def test_bytes_that_were_appended_before_the_fetch_and_flushed_after_it_wake_it(serving: Serving) -> None:
    await serving.open()
    line, other = await serving.line(), await serving.line()
    await line.create("a")
    serving.env.disk.flushes.hold()
    other.send(ApiKey.PRODUCE, **produce_body({"a": {0: batch(bytes(5_000))}}))
    await serving.env.disk.flushes.until_waited_for()
    line.send(ApiKey.FETCH, **fetch_body({"a": 0}, max_wait_ms=PATIENCE_MS, min_bytes=1_000))
    assert await line.is_silent()
    serving.env.disk.flushes.let_go()
    assert len(rows_of(await line.receive())["a", 0].records) > 5_000


async def test_bytes_that_are_appended_while_others_are_flushed_wake_it_when_their_turn_comes(serving: Serving) -> None:
    node = await serving.open()
    line, other = await serving.line(), await serving.line()
    await line.create("a")
    serving.env.disk.flushes.hold()
    line.send(ApiKey.FETCH, **fetch_body({"a": 0}, max_wait_ms=PATIENCE_MS, min_bytes=1_000))
    other.send(ApiKey.PRODUCE, **produce_body({"a": {0: batch(bytes(600))}}))
    await serving.env.disk.flushes.until_waited_for()
    other.send(ApiKey.PRODUCE, **produce_body({"a": {0: batch(bytes(600))}}))
    await until_async(lambda: node.metrics.batches_in == 2)
    serving.env.disk.flushes.let_go()
    assert len(rows_of(await line.receive())["a", 0].records) > 1_200


async def test_a_fetch_that_wants_more_than_it_may_get_leaves_when_it_is_full(serving: Serving) -> None:
    await serving.open()
    line = await serving.line()
    await line.create("a")
    await fill(line, "a", *[1_000] * 5)
    row = rows_of(await line.fetch("a", max_wait_ms=PATIENCE_MS, min_bytes=1 << 20, max_bytes=3_000))["a", 0]
    assert 2_000 < len(row.records) <= 3_000
    row = rows_of(await line.fetch("a", max_wait_ms=PATIENCE_MS, min_bytes=1 << 20, max_bytes=100))["a", 0]
    assert len(row.records) > 1_000, "one batch, larger than allowed"


def test_what_retention_takes_does_not_keep_a_fetch_waiting() -> None:
    """Bytes that go away are not bytes that have yet to come."""

    async def scenario(world: World, env: SimEnv) -> None:
        _, address = await started(env, retention_check_ms=2_000)
        line, other = await Line.open(address), await Line.open(address)
        await line.create("a", segment_bytes=2_000, retention_ms=5_000)
        for _ in range(20):
            await other.produce_batch("a", batch(bytes(900), timestamp_ms=env.wall_ms()))
        line.send(ApiKey.FETCH, **fetch_body({"a": 20}, max_wait_ms=9_000, min_bytes=1_500))
        await asyncio.sleep(8)
        began = env.now()
        for _ in range(2):
            await other.produce_batch("a", batch(bytes(900), timestamp_ms=env.wall_ms()))
        assert len(rows_of(await line.receive())["a", 0].records) > 1_800
        assert env.now() - began < 0.5

    virtually(scenario)


async def test_an_error_ends_the_wait_at_once(serving: Serving) -> None:
    await serving.open()
    line, other = await serving.line(), await serving.line()
    await line.create("a", 2)
    line.send(ApiKey.FETCH, **fetch_body({"a": {0: 0, 1: 0}}, max_wait_ms=PATIENCE_MS, min_bytes=1 << 20))
    assert await line.is_silent()
    await other.delete("a")
    rows = rows_of(await line.receive())
    assert {row.error_code for row in rows.values()} == {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}


async def test_a_fetch_at_an_offset_that_is_not_there_yet_but_appended_is_woken(serving: Serving) -> None:
    node = await serving.open()
    line, other = await serving.line(), await serving.line()
    await line.create("a")
    serving.env.disk.flushes.hold()
    other.send(ApiKey.PRODUCE, **produce_body({"a": {0: batch(b"0")}}))
    await serving.env.disk.flushes.until_waited_for()
    line.send(ApiKey.FETCH, **fetch_body({"a": 1}, max_wait_ms=PATIENCE_MS))
    await until_async(lambda: node.partitions.find("a", 0).watchers)  # type: ignore[union-attr]
    other.send(ApiKey.PRODUCE, **produce_body({"a": {0: batch(b"1")}}))
    await until_async(lambda: node.metrics.batches_in == 2)
    serving.env.disk.flushes.let_go()
    assert values_in(rows_of(await line.receive())["a", 0]) == [b"1"]


# From the disk


async def test_what_is_not_in_memory_is_read_away_from_the_loop(serving: Serving) -> None:
    node = await serving.open()
    line, other = await serving.line(), await serving.line()
    await line.create("a", 3)
    for partition in range(3):
        await fill(line, "a", 1_000, 1_000, partition=partition)
    serving.env.disk.is_cold = True
    serving.env.disk.cold_reads.hold()
    line.send(ApiKey.FETCH, **fetch_body({"a": {0: 0, 1: 0, 2: 1}}))
    await serving.env.disk.cold_reads.until_waited_for()
    assert (await other.produce("a", b"others go on")).error_code == 0
    serving.env.disk.cold_reads.let_go()
    rows = rows_of(await line.receive())
    assert [len(records_in(row.records)) for row in rows.values()] == [2, 2, 1]
    assert node.metrics.reads_cold == 1


async def test_what_comes_during_a_cold_read_is_not_missed(serving: Serving) -> None:
    await serving.open()
    line, other = await serving.line(), await serving.line()
    await line.create("a", 2)
    await fill(other, "a", 100)
    serving.env.disk.is_cold = True
    serving.env.disk.cold_reads.hold()
    line.send(ApiKey.FETCH, **fetch_body({"a": {1: 0, 0: 0}}, max_wait_ms=PATIENCE_MS, min_bytes=1_000))
    await serving.env.disk.cold_reads.until_waited_for()
    await fill(other, "a", 5_000, partition=1)
    serving.env.disk.is_cold = False
    serving.env.disk.cold_reads.let_go()
    assert sum(len(row.records) for row in rows_of(await line.receive()).values()) > 1_000


async def test_a_topic_that_is_deleted_during_a_cold_read_ends_it(serving: Serving) -> None:
    await serving.open()
    line, other = await serving.line(), await serving.line()
    await line.create("a", 2)
    await fill(other, "a", 100)
    serving.env.disk.is_cold = True
    serving.env.disk.cold_reads.hold()
    line.send(ApiKey.FETCH, **fetch_body({"a": {0: 0, 1: 0}}, max_wait_ms=PATIENCE_MS, min_bytes=1_000))
    await serving.env.disk.cold_reads.until_waited_for()
    await other.delete("a")
    serving.env.disk.cold_reads.let_go()
    rows = rows_of(await line.receive())
    assert rows["a", 1].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


async def test_a_client_that_goes_away_during_a_cold_read_leaves_nothing_behind(serving: Serving) -> None:
    node = await serving.open()
    line, other = await serving.line(), await serving.line()
    await line.create("a")
    await fill(other, "a", 100)
    serving.env.disk.is_cold = True
    serving.env.disk.cold_reads.hold()
    line.send(ApiKey.FETCH, **fetch_body({"a": 0}, max_wait_ms=PATIENCE_MS, min_bytes=1_000))
    await serving.env.disk.cold_reads.until_waited_for()
    line.close()
    await until_async(lambda: len(node.connections) == 1)
    serving.env.disk.cold_reads.let_go()
    serving.env.disk.is_cold = False
    await other.produce("a", b"x")
    partition = node.partitions.find("a", 0)
    assert partition is not None and not partition.watchers


async def test_what_retention_takes_during_a_cold_read_is_out_of_range_and_not_damaged(serving: Serving) -> None:
    """A consumer that is told of damage gives up; one that is out of range goes on with what there is."""
    await serving.open()
    line = await serving.line()
    await line.create("a", segment_bytes=1_024, retention_bytes=2_000, retention_ms=-1)
    await fill(line, "a", *[900] * 10)
    await serving.crash()  # The records that are dropped and those that stay are of different leader epochs.
    node = await serving.open()
    line = await serving.line()
    await fill(line, "a", *[900] * 10)
    serving.env.disk.is_cold = True
    serving.env.disk.cold_reads.hold()
    line.send(ApiKey.FETCH, **fetch_body({"a": 3}))
    wish = {"partition_index": 0, "current_leader_epoch": -1, "timestamp": 1_600_000_000_000}
    other = await serving.line()
    other.send(ApiKey.LIST_OFFSETS, topics=[{"name": "a", "partitions": [wish]}], replica_id=-1)
    await until_async(lambda: serving.env.disk.cold_reads.waiting == 2)
    partition = node.partitions.find("a", 0)
    assert partition is not None
    node.look_for_old_segments_soon()
    await until_async(lambda: partition.log.start_offset > 10)
    serving.env.disk.cold_reads.let_go()
    row = rows_of(await line.receive())["a", 0]
    assert row.error_code in (0, ErrorCode.OFFSET_OUT_OF_RANGE)
    found = (await other.receive()).topics[0].partitions[0]
    assert found.error_code == 0
    assert found.offset in (0, partition.log.start_offset)


def test_bytes_that_rotted_are_refused_and_the_others_served(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(world: World, env: SimEnv) -> None:
        node, address = await started(env)
        line = await Line.open(address)
        await line.create("a", 2)
        for partition in range(2):
            await fill(line, "a", 1_000, 1_000, partition=partition)
        rotten = node.partitions.find("a", 0)
        assert rotten is not None
        world.hosts["node"].disk.rot(f"{rotten.log.directory}/{0:020}.log", 1_500)
        rows = rows_of(await line.fetch("a", {0: 1, 1: 0}))
        assert rows["a", 0].error_code == ErrorCode.CORRUPT_MESSAGE
        assert len(records_in(rows["a", 1].records)) == 2
        for _ in range(20):
            await line.fetch("a", 1)
        assert sum("cannot read a-0 at 1" in record.getMessage() for record in caplog.records) == 1, "told once a minute at most"
        await asyncio.sleep(100)
        await line.fetch("a", 1)
        assert sum("cannot read a-0 at 1" in record.getMessage() for record in caplog.records) == 2
        assert len(records_in(rows_of(await line.fetch("a"))["a", 0].records)) == 1, "what is before it can be read"

    virtually(scenario)


@pytest.mark.parametrize("is_cold", [True, False])
def test_a_disk_that_cannot_be_read_is_an_error_of_that_partition(is_cold: bool) -> None:
    async def scenario(world: World, env: SimEnv) -> None:
        _, address = await started(env)
        line = await Line.open(address)
        await line.create("a")
        await fill(line, "a", 1_000)
        world.hosts["node"].disk.faults = DiskFaults(cold_read=1.0 if is_cold else 0.0)
        world.hosts["node"].disk.fail_next_read()
        assert rows_of(await line.fetch("a"))["a", 0].error_code == ErrorCode.KAFKA_STORAGE_ERROR
        assert len(records_in(rows_of(await line.fetch("a"))["a", 0].records)) == 1

    virtually(scenario)


async def test_what_goes_on_in_the_next_segment_does_not_wait_for_more(serving: Serving) -> None:
    """One look gives bytes of one segment: a reader who wants more than that must get it now and ask again, as at Kafka."""
    await serving.open()
    line = await serving.line()
    await line.create("a", segment_bytes=16_384)
    await fill(line, "a", 9_000, 9_000, 9_000, 9_000)
    line.send(ApiKey.FETCH, **fetch_body({"a": 0}, max_wait_ms=PATIENCE_MS, min_bytes=30_000))
    assert rows_of(await line.receive())["a", 0].records
    line.send(ApiKey.FETCH, **fetch_body({"a": 3}, max_wait_ms=PATIENCE_MS, min_bytes=30_000))
    assert await line.is_silent(), "at the end of the log there is nothing but to wait"
