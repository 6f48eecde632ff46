"""Replies leave in the order of the requests, and a connection takes no more work than it may."""

import asyncio
import struct

import pytest
from serving import Serving, batch, fetch_body, produce_body
from waiting import PATIENCE_MS, stays_async, until_async

from penstock.broker.connection import UNSENT_BYTES_HIGH
from penstock.wire.api_keys import ApiKey
from penstock.wire.compression import Codec

pytestmark = pytest.mark.invariant("node.replies-in-order")

BOTH_LOOPS = True


async def test_replies_wait_for_a_parked_fetch_that_came_before_them(serving: Serving) -> None:
    await serving.open()
    line, other = await serving.line(), await serving.line()
    await line.create("a")
    line.send(ApiKey.FETCH, **fetch_body({"a": 0}, max_wait_ms=PATIENCE_MS))
    line.send(ApiKey.METADATA, topics=None)
    line.send(ApiKey.API_VERSIONS, 0)
    assert await line.is_silent()
    await other.produce("a", b"wakes the fetch")
    fetched = await line.receive()
    assert fetched.responses[0].partitions[0].high_watermark == 1
    assert [topic.name for topic in (await line.receive()).topics] == ["a"]
    assert (await line.receive()).error_code == 0


async def test_a_produce_behind_a_parked_fetch_wakes_it(serving: Serving) -> None:
    """Were the produce handled only after the fetch, one connection would wait for itself."""
    await serving.open()
    line = await serving.line()
    await line.create("a")
    line.send(ApiKey.FETCH, **fetch_body({"a": 0}, max_wait_ms=PATIENCE_MS))
    line.send(ApiKey.PRODUCE, **produce_body({"a": {0: batch(b"x")}}))
    fetched = await line.receive()
    assert fetched.responses[0].partitions[0].records is not None
    assert (await line.receive()).responses[0].partition_responses[0].base_offset == 0


async def test_two_hundred_pipelined_requests_are_answered_in_order_with_few_under_way(serving: Serving) -> None:
    node = await serving.open(requests_in_flight_max=8)
    line = await serving.line()
    await line.create("a")
    serving.env.disk.flushes.hold()
    for number in range(200):
        line.send(ApiKey.PRODUCE, **produce_body({"a": {0: batch(b"%d" % number)}}))
    await until_async(lambda: node.metrics.batches_in >= 8)
    await stays_async(lambda: node.metrics.batches_in == 8)  # No more than allowed is taken before the first can be answered.
    serving.env.disk.flushes.let_go()
    rows = [(await line.receive()).responses[0].partition_responses[0] for _ in range(200)]
    assert [row.base_offset for row in rows] == list(range(200))


async def test_many_kinds_of_requests_in_one_write_are_answered_in_order(serving: Serving) -> None:
    await serving.open(requests_in_flight_max=3)
    line = await serving.line()
    for number in range(30):
        line.send(ApiKey.METADATA, topics=[{"name": f"t{number % 5}"}], allow_auto_topic_creation=True)
        line.send(ApiKey.PRODUCE, **produce_body({f"t{number % 5}": {0: batch(b"%d" % number)}}))
        line.send(ApiKey.FETCH, **fetch_body({f"t{number % 5}": 0}))
        line.send(ApiKey.INIT_PRODUCER_ID, transactional_id=None)
    for number in range(30):
        assert (await line.receive()).topics[0].error_code == 0, "made before the produce behind it"
        row = (await line.receive()).responses[0].partition_responses[0]
        assert (row.error_code, row.base_offset) == (0, number // 5)
        await line.receive()
        assert (await line.receive()).producer_id == number


async def test_a_request_waits_for_the_one_before_it_that_must_end_first(serving: Serving) -> None:
    """A client that makes a topic and at once asks about it on the same connection finds it."""
    await serving.open()
    line = await serving.line()
    serving.env.disk.flushes.hold()
    line.send(ApiKey.CREATE_TOPICS, topics=[{"name": "a", "num_partitions": 1, "replication_factor": 1}], timeout_ms=PATIENCE_MS)
    line.send(ApiKey.PRODUCE, **produce_body({"a": {0: batch(b"x")}}))
    await serving.env.disk.flushes.until_waited_for()
    serving.env.disk.flushes.let_go()
    assert (await line.receive()).topics[0].error_code == 0
    assert (await line.receive()).responses[0].partition_responses[0].error_code == 0


async def test_order_is_kept_when_a_batch_must_be_unpacked_off_the_loop(serving: Serving) -> None:
    node = await serving.open()
    line = await serving.line()
    await line.create("a")
    large = batch(*[b"%d" % number * 1_000 for number in range(800)], codec=Codec.GZIP)
    assert len(large) < 1_000_000
    serving.env.offloads.hold()
    line.send(ApiKey.PRODUCE, **produce_body({"a": {0: batch(b"first")}}))
    line.send(ApiKey.PRODUCE, **produce_body({"a": {0: large}}))
    line.send(ApiKey.PRODUCE, **produce_body({"a": {0: batch(b"last")}}))
    assert (await line.receive()).responses[0].partition_responses[0].base_offset == 0
    await serving.env.offloads.until_waited_for()
    assert await line.is_silent()
    assert node.metrics.batches_in == 1
    serving.env.offloads.let_go()
    offsets = [(await line.receive()).responses[0].partition_responses[0].base_offset for _ in range(2)]
    assert offsets == [1, 801]


async def test_other_connections_go_on_while_one_waits_for_its_large_batch(serving: Serving) -> None:
    await serving.open()
    line, other = await serving.line(), await serving.line()
    await line.create("a")
    serving.env.offloads.hold()
    line.send(ApiKey.PRODUCE, **produce_body({"a": {0: batch(bytes(2_000_000), codec=Codec.ZSTD)}}))
    await serving.env.offloads.until_waited_for()
    assert (await other.produce("a", b"x")).base_offset == 0
    serving.env.offloads.let_go()
    assert (await line.receive()).responses[0].partition_responses[0].base_offset == 1


@pytest.mark.parametrize("cut", [1, 2, 3, 5, 50])
async def test_requests_arrive_whole_however_they_are_cut(serving: Serving, cut: int) -> None:
    await serving.open()
    line = await serving.line()
    request = struct.pack(">ihhihi", 14, ApiKey.METADATA, 1, 9, -1, -1)
    sent = request * 6
    for at in range(0, len(sent), cut):
        line.writer.write(sent[at : at + cut])
        await line.writer.drain()
        await asyncio.sleep(0)
    for _ in range(6):
        frame = await line.receive_frame()
        assert frame is not None and frame[:4] == b"\0\0\0\x09"


async def test_a_client_that_does_not_read_is_not_read_from(serving: Serving) -> None:
    node = await serving.open()
    line = await serving.line(receive_bytes=1_000)
    await line.create("a")
    await line.produce("a", bytes(900_000))
    for _ in range(200):
        line.send(ApiKey.FETCH, **fetch_body({"a": 0}))
    (connection,) = node.connections
    await until_async(lambda: connection._is_paused)
    await stays_async(lambda: node.metrics.requests["FETCH"] < 60)  # What it asked for next stays unread.
    assert node.reply_room.bytes_taken < 20 << 20
    assert connection._written_bytes >= UNSENT_BYTES_HIGH
    for _ in range(200):
        assert len((await line.receive()).responses[0].partitions[0].records) > 900_000
    assert node.reply_room.bytes_taken == 0


async def test_a_client_that_goes_away_with_requests_under_way_leaves_nothing_behind(serving: Serving) -> None:
    node = await serving.open()
    line, other = await serving.line(), await serving.line()
    topic_id = await line.create("a")
    partition = node.partitions.find("a", 0)
    assert partition is not None
    line.send(ApiKey.FETCH, **fetch_body({"a": 0}, max_wait_ms=PATIENCE_MS))
    line.send(ApiKey.FETCH, 18, **fetch_body({topic_id: 0}, max_wait_ms=PATIENCE_MS, session=(0, 0)))
    await until_async(lambda: len(partition.watchers) == 2)
    serving.env.disk.flushes.hold()
    line.send(ApiKey.PRODUCE, **produce_body({"a": {0: batch(b"x")}}))
    await until_async(lambda: len(node.parked_produces) == 1)
    line.close()
    await until_async(lambda: len(node.connections) == 1)
    assert not node.parked_produces
    assert len(partition.watchers) == 1, "only the session, which its client may take up again"
    serving.env.disk.flushes.let_go()
    assert (await other.produce("a", b"y")).base_offset == 1


async def test_a_node_that_stops_answers_what_it_has_appended(serving: Serving) -> None:
    node = await serving.open()
    line, idle = await serving.line(), await serving.line()
    await line.create("a")
    serving.env.disk.flushes.hold()
    for number in range(5):
        line.send(ApiKey.PRODUCE, **produce_body({"a": {0: batch(b"%d" % number)}}))
    await until_async(lambda: len(node.parked_produces) == 5)
    stopping = asyncio.create_task(serving.stop())
    await until_async(lambda: node.health().reason == "stopping")  # By then it has told all connections.
    line.send(ApiKey.PRODUCE, **produce_body({"a": {0: batch(b"too late")}}))
    serving.env.disk.flushes.let_go()
    for number in range(5):
        assert (await line.receive()).responses[0].partition_responses[0].base_offset == number
    assert await line.receive_frame() is None
    assert await idle.is_closed()
    await stopping
    await serving.open()
    assert await (await serving.line()).latest("a") == 5
