"""Produce: what is taken, what is refused and how, and when the answer leaves."""

import asyncio
from typing import Any

import pytest
from serving import Line, Serving, batch, produce_body, sequenced, started, virtually
from waiting import until_async

from penstock.errors import ErrorCode
from penstock.simulator.disk_faults import DiskFaults
from penstock.simulator.env import SimEnv
from penstock.simulator.world import World
from penstock.wire.api_keys import ApiKey
from penstock.wire.batches import Record, decode_records, encode_batch, read_header
from penstock.wire.compression import Codec

ALL_LOOPS = True


def rows_of(answer: Any) -> dict[tuple[str, int], Any]:
    return {(topic.name, row.index): row for topic in answer.responses for row in topic.partition_responses}


async def test_many_topics_and_partitions_are_answered_row_by_row(serving: Serving) -> None:
    await serving.open()
    line = await serving.line()
    await line.create("a", 3)
    await line.create("b", 2, max_message_bytes=200)
    body = produce_body(
        {
            "a": {0: batch(b"1"), 1: batch(b"2", b"3"), 2: b"no batch", 3: batch(b"4")},
            "b": {0: batch(bytes(500)), 1: batch(b"5")},
            "c": {0: batch(b"6")},
        }
    )
    rows = rows_of(await line.ask(ApiKey.PRODUCE, **body))
    codes = {place: ErrorCode(row.error_code) for place, row in rows.items()}
    assert codes == {
        ("a", 0): ErrorCode.NONE,
        ("a", 1): ErrorCode.NONE,
        ("a", 2): ErrorCode.CORRUPT_MESSAGE,
        ("a", 3): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ("b", 0): ErrorCode.MESSAGE_TOO_LARGE,
        ("b", 1): ErrorCode.NONE,
        ("c", 0): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
    for place, row in rows.items():
        is_taken = codes[place] is ErrorCode.NONE
        assert (row.base_offset, row.log_start_offset) == ((0, 0) if is_taken else (-1, -1))
        assert (row.error_message is None) == is_taken
        assert row.log_append_time is None
    assert [await line.latest("a", partition) for partition in range(3)] == [1, 2, 0]
    assert serving.node.metrics.batches_refused == 4
    assert serving.node.metrics.batches_in == 3


async def test_by_id_and_by_name_it_is_the_same_partition(serving: Serving) -> None:
    await serving.open()
    line = await serving.line()
    topic_id = await line.create("a")
    await line.produce("a", b"by name")
    answer = await line.ask(ApiKey.PRODUCE, 13, **produce_body({topic_id: {0: batch(b"by id")}, bytes(15) + b"\5": {0: batch(b"lost")}}))
    known, unknown = answer.responses
    assert known.partition_responses[0].base_offset == 1
    assert unknown.partition_responses[0].error_code == ErrorCode.UNKNOWN_TOPIC_ID


async def test_an_unknown_partition_of_a_known_topic_id_is_an_unknown_partition(serving: Serving) -> None:
    """UNKNOWN_TOPIC_ID would tell the client that the topic was made anew."""
    await serving.open()
    line = await serving.line()
    topic_id = await line.create("a")
    answer = await line.ask(ApiKey.PRODUCE, 13, **produce_body({topic_id: {5: batch(b"x")}}))
    assert answer.responses[0].partition_responses[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


@pytest.mark.parametrize("acks", [2, -2, 100])
async def test_acks_other_than_0_1_and_all_are_refused(serving: Serving, acks: int) -> None:
    await serving.open()
    line = await serving.line()
    await line.create("a")
    row = await line.produce("a", b"x", acks=acks)
    assert row.error_code == ErrorCode.INVALID_REQUIRED_ACKS
    assert await line.latest("a") == 0


async def test_a_partition_with_fewer_replicas_than_must_be_in_sync_takes_what_all_of_them_have(serving: Serving) -> None:
    """As Kafka does. Too few of those that there are: tests/clusters/test_few_replicas.py."""
    await serving.open()
    line = await serving.line()
    await line.create("a", min_insync_replicas=2)
    assert (await line.produce("a", b"x")).error_code == ErrorCode.NONE


async def test_acks_0_is_answered_by_silence(serving: Serving) -> None:
    await serving.open()
    line = await serving.line()
    await line.create("a")
    for number in range(100):
        line.send(ApiKey.PRODUCE, is_answered=False, **produce_body({"a": {0: batch(b"%d" % number)}}, acks=0))
    assert (await line.produce("a", b"last")).base_offset == 100, "the next reply is that of the next request with one"


async def test_an_error_with_acks_0_closes_the_connection(serving: Serving) -> None:
    await serving.open()
    line, other = await serving.line(), await serving.line()
    await line.create("a")
    line.send(ApiKey.PRODUCE, is_answered=False, **produce_body({"a": {0: batch(b"x"), 9: batch(b"y")}}, acks=0))
    assert await line.is_closed()
    assert (await other.produce("a", b"z")).base_offset == 1, "what could be taken was taken, as Kafka does"


async def test_an_error_with_acks_0_behind_a_large_batch_closes_the_connection(serving: Serving) -> None:
    await serving.open()
    line = await serving.line()
    await line.create("a")
    body = produce_body({"a": {0: batch(bytes(2_000_000), codec=Codec.ZSTD), 9: batch(b"y")}}, acks=0)
    line.send(ApiKey.PRODUCE, is_answered=False, **body)
    assert await line.is_closed()


async def test_a_transactional_batch_without_its_transactional_id_is_refused_and_so_is_a_control_batch(serving: Serving) -> None:
    await serving.open()
    line = await serving.line()
    await line.create("a")
    transactional = sequenced(1, 0, is_transactional=True)
    assert (await line.produce_batch("a", transactional)).error_code == ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    control = batch(b"x", is_control=True)
    assert (await line.produce_batch("a", control)).error_code == ErrorCode.INVALID_RECORD
    assert await line.latest("a") == 0


async def test_nothing_and_two_batches_are_refused(serving: Serving) -> None:
    await serving.open()
    line = await serving.line()
    await line.create("a")
    for records in (None, b"", batch(b"1") + batch(b"2")):
        answer = await line.ask(ApiKey.PRODUCE, **produce_body({"a": {0: records}}))
        assert answer.responses[0].partition_responses[0].error_code == ErrorCode.INVALID_RECORD
    assert await line.latest("a") == 0


async def test_a_request_without_topics_is_answered(serving: Serving) -> None:
    await serving.open()
    line = await serving.line()
    assert (await line.ask(ApiKey.PRODUCE, **produce_body({}))).responses == ()


# Records


async def test_a_bad_record_is_named_and_its_whole_batch_refused(serving: Serving) -> None:
    await serving.open()
    line = await serving.line()
    await line.create("a", cleanup_policy="compact")
    records = [Record(key=b"k", value=b"v"), Record(key=b"k", value=b"v"), Record(key=None, value=b"v")]
    keyless = bytes(encode_batch([record._replace(timestamp_ms=1_700_000_000_000) for record in records]))
    row = await line.produce_batch("a", keyless)
    assert row.error_code == ErrorCode.INVALID_RECORD
    assert [(error.batch_index, "key" in error.batch_index_error_message) for error in row.record_errors] == [(2, True)]
    old = await line.produce_batch("a", keyless, version=7)
    assert old.error_code == ErrorCode.INVALID_RECORD, "older clients are told the code alone"
    assert await line.latest("a") == 0


@pytest.mark.parametrize("codec", list(Codec))
async def test_a_timestamp_from_the_far_future_is_refused(serving: Serving, codec: Codec) -> None:
    await serving.open()
    line = await serving.line()
    await line.create("a")
    now = serving.env.wall_ms()
    late = bytes(encode_batch([Record(value=b"1", timestamp_ms=now), Record(value=b"2", timestamp_ms=now + 7_200_000)], codec=codec))
    row = await line.produce_batch("a", late)
    assert row.error_code == ErrorCode.INVALID_TIMESTAMP
    assert [error.batch_index for error in row.record_errors] == [1]
    await line.create("b", message_timestamp_after_max_ms=7_300_000)
    assert (await line.produce_batch("b", late)).error_code == 0


@pytest.mark.parametrize("codec", list(Codec))
async def test_log_append_time_is_stamped_told_and_read_back(serving: Serving, codec: Codec) -> None:
    await serving.open()
    line = await serving.line()
    await line.create("a", message_timestamp_type="LogAppendTime")
    before = serving.env.wall_ms()
    row = await line.produce_batch("a", batch(b"1", b"2", codec=codec))
    after = serving.env.wall_ms()
    told = int(row.log_append_time.timestamp() * 1000 + 0.5)
    assert before <= told <= after
    fetched = await line.fetch("a")
    records = decode_records(fetched.responses[0].partitions[0].records, bytes_max=1 << 20)
    assert [record.timestamp_ms for record in records] == [told, told]
    assert read_header(fetched.responses[0].partitions[0].records).uses_log_append_time


async def test_a_bomb_is_refused_and_the_next_batch_taken(serving: Serving) -> None:
    await serving.open(decompressed_bytes_max=4 << 20)
    line = await serving.line()
    await line.create("a")
    bomb = batch(bytes(8 << 20), codec=Codec.GZIP)
    assert len(bomb) < 20_000
    line.send(ApiKey.PRODUCE, **produce_body({"a": {0: bomb}}))
    line.send(ApiKey.PRODUCE, **produce_body({"a": {0: batch(b"x")}}))
    assert (await line.receive()).responses[0].partition_responses[0].error_code == ErrorCode.MESSAGE_TOO_LARGE
    assert (await line.receive()).responses[0].partition_responses[0].error_code == 0


async def test_garbage_that_claims_to_be_compressed_is_refused(serving: Serving) -> None:
    await serving.open()
    line = await serving.line()
    await line.create("a")
    good = bytearray(batch(b"x"))
    for codec in (Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD):
        from crc32c import crc32c

        good[22] = codec
        good[17:21] = crc32c(bytes(good[21:])).to_bytes(4, "big")
        assert (await line.produce_batch("a", bytes(good))).error_code == ErrorCode.CORRUPT_MESSAGE, codec


async def test_a_refused_batch_is_counted_once_also_when_its_neighbour_is_unpacked_off_the_loop(serving: Serving) -> None:
    node = await serving.open()
    line = await serving.line()
    await line.create("a", 2)
    await line.ask(ApiKey.PRODUCE, **produce_body({"a": {0: b"no batch", 1: batch(bytes(2_000_000), codec=Codec.ZSTD)}}))
    assert (node.metrics.batches_refused, node.metrics.batches_in) == (1, 1)


async def test_a_topic_that_is_deleted_while_its_batch_is_unpacked_is_unknown(serving: Serving) -> None:
    node = await serving.open()
    line, other = await serving.line(), await serving.line()
    await line.create("a")
    await line.create("b")
    serving.env.offloads.hold()
    body = produce_body({"a": {0: batch(bytes(2_000_000), codec=Codec.ZSTD)}, "b": {0: batch(b"x")}})
    line.send(ApiKey.PRODUCE, **body)
    await serving.env.offloads.until_waited_for()
    await other.delete("a")
    serving.env.offloads.let_go()
    rows = rows_of(await line.receive())
    assert (rows["a", 0].error_code, rows["b", 0].error_code) == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, 0)
    assert not node.parked_produces


async def test_a_partition_that_is_named_twice_gets_both_batches_and_both_rows(serving: Serving) -> None:
    await serving.open()
    line = await serving.line()
    await line.create("a")
    body = produce_body({"a": {0: batch(b"1")}})
    body["topic_data"][0]["partition_data"] *= 2
    body["topic_data"] *= 2
    answer = await line.ask(ApiKey.PRODUCE, **body)
    assert [row.base_offset for topic in answer.responses for row in topic.partition_responses] == [0, 1, 2, 3]


async def test_a_batch_that_repeats_its_neighbour_is_a_duplicate(serving: Serving) -> None:
    """Within one request too, where neither is flushed yet."""
    await serving.open()
    line = await serving.line()
    await line.create("a")
    body = produce_body({"a": {0: sequenced(5, 0)}})
    body["topic_data"][0]["partition_data"] *= 3
    answer = await line.ask(ApiKey.PRODUCE, **body)
    assert [(row.error_code, row.base_offset) for row in answer.responses[0].partition_responses] == [(0, 0)] * 3
    assert await line.latest("a") == 1


# Idempotent producers


async def test_a_duplicate_is_answered_with_its_first_offset_and_a_gap_refused(serving: Serving) -> None:
    node = await serving.open()
    line = await serving.line()
    await line.create("a")
    producer = await line.init_producer()
    for sequence in range(7):
        assert (await line.produce_batch("a", sequenced(producer, sequence))).base_offset == sequence
    for sequence in (2, 3, 4, 5, 6):
        row = await line.produce_batch("a", sequenced(producer, sequence))
        assert (row.error_code, row.base_offset, row.log_start_offset) == (0, sequence, 0)
    assert (await line.produce_batch("a", sequenced(producer, 1))).error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, "past the window"
    assert (await line.produce_batch("a", sequenced(producer, 8))).error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert await line.latest("a") == 7
    assert node.metrics.duplicates_in == 5


async def test_the_answer_to_a_duplicate_waits_until_the_original_is_flushed(serving: Serving) -> None:
    await serving.open()
    line, impatient = await serving.line(), await serving.line()
    await line.create("a")
    producer = await line.init_producer()
    serving.env.disk.flushes.hold()
    line.send(ApiKey.PRODUCE, **produce_body({"a": {0: sequenced(producer, 0)}}))
    await serving.env.disk.flushes.until_waited_for()
    for acks in (1, -1):
        impatient.send(ApiKey.PRODUCE, **produce_body({"a": {0: sequenced(producer, 0)}}, acks=acks))
    assert await impatient.is_silent()
    serving.env.disk.flushes.let_go()
    for asked, count in ((line, 1), (impatient, 2)):
        for _ in range(count):
            row = (await asked.receive()).responses[0].partition_responses[0]
            assert (row.error_code, row.base_offset) == (0, 0)
    assert await line.latest("a") == 1


async def test_a_duplicate_with_log_append_time_is_told_the_first_time(serving: Serving) -> None:
    await serving.open()
    line = await serving.line()
    await line.create("a", message_timestamp_type="LogAppendTime")
    producer = await line.init_producer()
    first = await line.produce_batch("a", sequenced(producer, 0))
    serving.env.wall_ahead_ms = 5_000
    again = await line.produce_batch("a", sequenced(producer, 0))
    assert again.log_append_time == first.log_append_time


# When the answer leaves


@pytest.mark.parametrize("acks", [1, -1])
async def test_under_flush_ack_the_answer_waits_for_the_flush(serving: Serving, acks: int) -> None:
    await serving.open()
    line, other = await serving.line(), await serving.line()
    await line.create("a")
    serving.env.disk.flushes.hold()
    line.send(ApiKey.PRODUCE, **produce_body({"a": {0: batch(b"x")}}, acks=acks))
    await serving.env.disk.flushes.until_waited_for()
    assert await line.is_silent()
    assert await other.latest("a") == 0, "nobody sees what is not flushed"
    serving.env.disk.flushes.let_go()
    assert (await line.receive()).responses[0].partition_responses[0].error_code == 0


@pytest.mark.parametrize("configs", [{"flush": "os"}, {"flush": "interval"}, {"flush": "os", "flush_messages": 100}], ids=str)
async def test_under_other_modes_it_does_not_wait(serving: Serving, configs: dict[str, Any]) -> None:
    await serving.open()
    line = await serving.line()
    await line.create("a", **configs)
    serving.env.disk.flushes.hold()
    assert (await line.produce("a", b"x")).error_code == 0
    assert await line.latest("a") == 1


@pytest.mark.parametrize(
    ("configs", "count"),
    [({"flush": "os", "flush_messages": 5}, 5), ({"flush": "interval", "flush_ms": 20}, 1), ({"flush": "os", "flush_ms": 20}, 1)],
)
async def test_under_other_modes_the_flush_comes_when_it_was_promised(serving: Serving, configs: dict[str, Any], count: int) -> None:
    node = await serving.open()
    line = await serving.line()
    await line.create("a", **configs)
    partition = node.partitions.find("a", 0)
    assert partition is not None
    for _ in range(count):
        await line.produce("a", b"x")
    await until_async(lambda: partition.log.flushed_end == count)


async def test_flush_messages_of_one_is_flush_ack(serving: Serving) -> None:
    await serving.open()
    line = await serving.line()
    await line.create("a", flush="os", flush_messages=1)
    serving.env.disk.flushes.hold()
    line.send(ApiKey.PRODUCE, **produce_body({"a": {0: batch(b"x")}}))
    await serving.env.disk.flushes.until_waited_for()
    assert await line.is_silent()


def test_what_is_not_durable_in_time_is_answered_as_timed_out_and_the_rest_as_it_is() -> None:
    async def scenario(world: World, env: SimEnv) -> None:
        node, address = await started(env)
        line = await Line.open(address)
        await line.create("slow")
        await line.create("quick", flush="os")
        world.hosts["node"].disk.faults = DiskFaults(sync_seconds_min=30, sync_seconds_max=30)
        began = env.now()
        body = produce_body({"slow": {0: batch(b"1")}, "quick": {0: batch(b"2"), 5: batch(b"3")}}, timeout_ms=3_000)
        rows = rows_of(await line.ask(ApiKey.PRODUCE, **body))
        assert 3 <= env.now() - began <= 5
        assert rows["slow", 0].error_code == ErrorCode.REQUEST_TIMED_OUT
        assert (rows["quick", 0].error_code, rows["quick", 0].base_offset) == (0, 0), "it was durable as promised"
        assert rows["quick", 5].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert not node.parked_produces
        await asyncio.sleep(60)
        assert await line.latest("slow") == 1, "it became durable later"

    virtually(scenario)


def test_requests_that_timed_out_or_whose_client_is_gone_are_forgotten_while_nothing_is_committed() -> None:
    async def scenario(world: World, env: SimEnv) -> None:
        node, address = await started(env)
        line = await Line.open(address)
        await line.create("a")
        await line.create("b")
        world.hosts["node"].disk.faults = DiskFaults(sync_seconds_min=500, sync_seconds_max=500)
        places = [node.partitions.find(topic, 0) for topic in ("a", "b")]
        for attempt in range(20):
            one, two, gone = [await Line.open(address) for _ in range(3)]
            one.send(ApiKey.PRODUCE, **produce_body({"a": {0: batch(b"1")}}, timeout_ms=1_000))
            two.send(ApiKey.PRODUCE, **produce_body({"a": {0: batch(b"2")}, "b": {0: batch(b"3")}}, timeout_ms=1_000))
            gone.send(ApiKey.PRODUCE, **produce_body({"a": {0: batch(b"4")}}, timeout_ms=60_000))
            for each in (one, two):
                assert {row.error_code for row in rows_of(await each.receive()).values()} == {ErrorCode.REQUEST_TIMED_OUT}
            for each in (one, two, gone):
                each.close()
            await asyncio.sleep(0.1)
            assert sum(place.leader.parked_count for place in places) <= 4, f"after {attempt + 1} attempts"
        await asyncio.sleep(1_500)
        world.hosts["node"].disk.faults = DiskFaults()
        line = await Line.open(address)
        assert await line.latest("a") == 60, "it became durable later"
        await line.produce("a", b"and so does what comes after")

    virtually(scenario)


def test_a_disk_that_hangs_does_not_keep_produce_requests_from_timing_out() -> None:
    """Not even while a checkpoint waits for the same disk."""

    async def scenario(world: World, env: SimEnv) -> None:
        _, address = await started(env, checkpoint_bytes=1024)
        line = await Line.open(address)
        await line.create("a")
        await line.produce("a", bytes(5_000))
        world.hosts["node"].disk.faults = DiskFaults(sync_seconds_min=500, sync_seconds_max=500)
        line.send(ApiKey.PRODUCE, **produce_body({"a": {0: batch(bytes(5_000))}}, timeout_ms=100_000))
        await asyncio.sleep(5)  # By now housekeeping wants a checkpoint.
        began = env.now()
        line2 = await Line.open(address)
        row = line2.produce("a", b"x", timeout_ms=3_000)
        async with asyncio.timeout(20):
            assert (await row).error_code == ErrorCode.REQUEST_TIMED_OUT
        assert env.now() - began < 6

    virtually(scenario)
