"""What clients make the node hold is counted, bounded, and given back, whatever becomes of them."""

import asyncio
import random
import struct
from contextlib import suppress
from typing import Any

import pytest
from serving import Line, Serving, batch, fetch_body, produce_body, records_in, rows_of, started, virtually
from tiers import pick
from waiting import EXPIRES_S, NEVER_S, PATIENCE_MS, pause_at_random_async, until_async

from penstock.broker.connection import COUNTED_FROM_BYTES, Connection
from penstock.broker.fetch_sessions import FetchSession
from penstock.broker.memory import RequestRoom
from penstock.broker.node import Node
from penstock.simulator.env import SimEnv
from penstock.simulator.world import World
from penstock.wire.api_keys import ApiKey
from penstock.wire.compression import Codec
from penstock.wire.schemas import write_request

BOTH_LOOPS = True

MIB = 1 << 20


async def is_all_given_back(node: Node) -> bool:
    def nothing_is_held() -> bool:
        for connection in node.connections:
            connection.let_buffer_go()  # As housekeeping does with those that fall silent.
        return node.request_room.bytes_taken == 0 and node.reply_room.bytes_taken == 0

    await until_async(nothing_is_held)
    return not node.request_room.is_crowded


async def fill(line: Line, topic: str, mebibytes: int) -> None:
    for _ in range(mebibytes):
        await line.produce(topic, bytes(MIB - 10_000))


async def test_a_request_is_counted_while_it_arrives(serving: Serving) -> None:
    node = await serving.open()
    line = await serving.line()
    await line.create("a")
    frame = write_request(ApiKey.PRODUCE, 12, 9, "test", produce_body({"a": {0: batch(bytes(900_000))}}))
    line.writer.write(frame[:500_000])
    await until_async(lambda: node.request_room.bytes_taken >= 500_000)
    assert node.request_room.bytes_taken < 3_000_000
    line.writer.write(frame[500_000:])
    assert await line.receive_frame() is not None
    assert await is_all_given_back(node)


async def test_a_request_that_never_ends_is_given_back_with_its_connection(serving: Serving) -> None:
    node = await serving.open()
    line = await serving.line()
    line.writer.write(struct.pack(">ihh", 50 * MIB, ApiKey.PRODUCE, 9) + bytes(MIB))
    await until_async(lambda: node.request_room.bytes_taken >= MIB)
    line.close()
    assert await is_all_given_back(node)


async def test_who_finds_no_room_waits_and_is_served_in_turn(serving: Serving) -> None:
    node = await serving.open(gathering_s_when_crowded=NEVER_S)
    node.request_room.bytes_max = 3 * MIB
    lines = [await serving.line() for _ in range(10)]
    await lines[0].create("a")
    frame = write_request(ApiKey.PRODUCE, 12, 9, "test", produce_body({"a": {0: batch(bytes(900_000))}}))
    room = node.request_room

    def seen() -> tuple[int, int]:
        return room.bytes_taken, len(room._waiting) + len(room._growing)

    for line in lines:
        before = seen()
        line.writer.write(frame[:800_000])
        await until_async(lambda before=before: seen() != before)  # type: ignore[misc]
    assert room.is_crowded
    lines[-1].close()  # One of those who wait goes away.
    for line in lines[:-1]:
        line.writer.write(frame[800_000:])
    for line in lines[:-1]:
        assert await line.receive_frame() is not None
    assert node.metrics.batches_in == 9
    for line in lines:
        line.close()
    assert await is_all_given_back(node)


def test_buffers_that_are_kept_for_nothing_are_taken_back_when_somebody_waits() -> None:
    async def scenario(world: World, env: SimEnv) -> None:
        node, address = await started(env)
        lines = [await Line.open(address) for _ in range(6)]
        await lines[0].create("a")
        for line in lines[:5]:
            await line.produce("a", bytes(900_000))
        assert node.request_room.bytes_taken > 0, "they keep their buffers for what they send next"
        node.request_room.bytes_max = node.request_room.bytes_taken
        began = env.now()
        assert (await lines[5].produce("a", bytes(900_000))).base_offset == 5
        assert env.now() - began < 1, "sooner than housekeeping would"
        assert await is_all_given_back(node)

    virtually(scenario)


async def test_a_large_batch_counts_until_it_has_been_unpacked(serving: Serving) -> None:
    node = await serving.open()
    line = await serving.line()
    await line.create("a")
    noise = random.Random(1).randbytes(400_000)
    large = batch(noise, bytes(2 * MIB), codec=Codec.ZSTD)
    serving.env.offloads.hold()
    line.send(ApiKey.PRODUCE, **produce_body({"a": {0: large}}))
    await serving.env.offloads.until_waited_for()
    assert node.request_room.bytes_taken >= len(large)
    serving.env.offloads.let_go()
    assert (await line.receive()).responses[0].partition_responses[0].error_code == 0
    assert await is_all_given_back(node)


async def test_partitions_of_a_parked_fetch_count_until_it_is_answered(serving: Serving) -> None:
    """A short request can name a hundred thousand partitions, each of which becomes an object that waits."""
    node = await serving.open()
    line, other = await serving.line(), await serving.line()
    await line.create("a", 500)
    names = {index: 0 for index in range(500)}
    line.send(ApiKey.FETCH, **fetch_body({"a": names}, max_wait_ms=PATIENCE_MS))
    line.send(ApiKey.FETCH, **fetch_body({"a": names}, max_wait_ms=PATIENCE_MS))
    await until_async(lambda: node.request_room.bytes_taken >= 2 * 500 * 200)
    await other.produce("a", b"x")
    for _ in range(2):
        await line.receive()
    assert await is_all_given_back(node)
    line.send(
        ApiKey.FETCH, **fetch_body({"a": {index: 1 for index in range(1)} | {index: 0 for index in range(1, 500)}}, max_wait_ms=PATIENCE_MS)
    )
    await until_async(lambda: node.request_room.bytes_taken > 0)
    line.close()
    assert await is_all_given_back(node)


async def test_replies_count_until_they_are_taken(serving: Serving) -> None:
    node = await serving.open()
    line = await serving.line()
    await line.create("a")
    await fill(line, "a", 12)
    slow = await serving.line(receive_bytes=1_000)
    for _ in range(3):
        slow.send(ApiKey.FETCH, **fetch_body({"a": 0}, max_bytes=200 * MIB, partition_max_bytes=200 * MIB))
    await until_async(lambda: node.reply_room.bytes_taken > 0)
    assert COUNTED_FROM_BYTES < node.reply_room.bytes_taken < 40 * MIB
    for _ in range(3):
        assert len(records_in(rows_of(await slow.receive())["a", 0].records)) >= 8
    assert await is_all_given_back(node)


async def test_a_long_list_of_topics_counts_like_any_reply(serving: Serving) -> None:
    node = await serving.open()
    line = await serving.line()
    await line.create("a", 1_000)
    slow = await serving.line(receive_bytes=1_000)
    for _ in range(400):
        slow.send(ApiKey.METADATA, 12, topics=None)
    await until_async(lambda: node.reply_room.bytes_taken > 0)
    for _ in range(400):
        assert len(await slow.receive_frame() or b"") > COUNTED_FROM_BYTES
    assert await is_all_given_back(node)


@pytest.mark.repeats
@pytest.mark.parametrize("seed", range(pick(test=2, slow=4)))
async def test_any_mix_of_clients_that_come_hang_and_go_leaves_nothing_behind(serving: Serving, seed: int) -> None:
    node = await serving.open(requests_in_flight_max=4, checkpoint_bytes=1 * MIB)
    node.request_room.bytes_max = 4 * MIB
    node.reply_room.bytes_max = 8 * MIB
    rng = random.Random(seed)
    helper = await serving.line()
    topic_id = await helper.create("a", 3)
    await fill(helper, "a", 3)
    produce = write_request(ApiKey.PRODUCE, 12, 1, "x", produce_body({"a": {rng.randrange(3): batch(rng.randbytes(300_000))}}))
    large = write_request(ApiKey.PRODUCE, 12, 1, "x", produce_body({"a": {1: batch(bytes(3 * MIB), codec=Codec.ZSTD)}}))
    fetches = [
        write_request(ApiKey.FETCH, 12, 1, "x", fetch_body({"a": {0: 0, 1: 0, 2: 0}}, max_bytes=50 * MIB, partition_max_bytes=50 * MIB)),
        write_request(ApiKey.FETCH, 12, 1, "x", fetch_body({"a": {2: 1 << 40}})),
        write_request(ApiKey.FETCH, 12, 1, "x", fetch_body({"a": 0}, max_wait_ms=50, min_bytes=1 << 30)),
        write_request(ApiKey.FETCH, 18, 1, "x", fetch_body({topic_id: {0: 0, 1: 0}}, session=(0, 0), max_wait_ms=30)),
    ]
    menu = [produce, large, *fetches, write_request(ApiKey.METADATA, 12, 1, "x", {"topics": None})]

    async def client() -> None:
        line = await serving.line(receive_bytes=1_000)
        for _ in range(rng.randrange(1, 8)):
            frames = b"".join(rng.choice(menu) for _ in range(rng.randrange(1, 6)))
            with suppress(RuntimeError):  # As uvloop has it when the node has closed the connection, after a frame that broke off.
                line.writer.write(frames[: rng.choice([len(frames), len(frames), rng.randrange(len(frames))])])
            await pause_at_random_async(rng, 0.0, 0.02)
            for _ in range(rng.randrange(3)):
                with suppress(TimeoutError, ConnectionError, RuntimeError):
                    async with asyncio.timeout(EXPIRES_S):
                        await line.reader.read(rng.choice([100, 100_000, 10 * MIB]))
        rng.choice([line.close, line.writer.transport.abort])()

    serving.env.disk.is_cold = seed % 2 == 1
    await asyncio.gather(*(client() for _ in range(40)))
    for line in serving.lines[1:]:
        line.writer.transport.abort()
    await until_async(lambda: len(node.connections) == 1)
    await helper.produce("a", b"and the node lives")
    assert await is_all_given_back(node)
    await until_async(lambda: not node.parked_produces)
    for partition in node.partitions:
        assert all(isinstance(watcher, FetchSession) for watcher in partition.watchers)


async def test_a_request_of_millions_of_empty_rows_is_refused_before_it_is_taken_apart(serving: Serving) -> None:
    await serving.open()
    line = await serving.line()
    await line.create("a")
    rows = struct.pack(">ii", 0, -1) * 50_000
    line.send_frame(struct.pack(">hhihhhiihci", ApiKey.PRODUCE, 7, 1, -1, -1, -1, 1000, 1, 1, b"a", 50_000) + rows)
    assert await line.is_closed()


def test_leaving_the_queue_for_room_costs_the_same_wherever_one_stands() -> None:
    """Ten thousand connections that wait and then go away together must not hold up the loop."""
    room, waiting = RequestRoom(100), [object.__new__(Connection) for _ in range(20_000)]
    assert room.take(100, lambda: None)
    for connection in waiting:
        assert not room.take(50, connection._room_is_there)
    for connection in reversed(waiting):
        room.leave_queue(connection._room_is_there)
    assert not room.is_crowded


def test_a_crowd_of_huge_requests_holds_no_more_than_the_room_and_is_dissolved() -> None:
    """All have begun and none can go on: those who have been at it longest make room for the others."""

    async def scenario(world: World, env: SimEnv) -> None:
        node, address = await started(env, connections_max_stalled_ms=1_000_000)
        node.request_room.bytes_max = 8 * MIB
        helper = await Line.open(address)
        await helper.create("a")
        crowd = [await Line.open(address) for _ in range(60)]

        async def push(line: Line) -> None:
            line.writer.write(struct.pack(">ihhi", 30 * MIB, ApiKey.PRODUCE, 9, 1))
            with suppress(ConnectionError):
                while not line.writer.is_closing():
                    line.writer.write(bytes(64 << 10))
                    await line.writer.drain()
                    await asyncio.sleep(0.01)

        pushing = [asyncio.create_task(push(line)) for line in crowd]
        for _ in range(100):
            await asyncio.sleep(0.05)
            held = sum(connection._inbox._end - connection._inbox._begin for connection in node.connections)
            assert held <= 8 * MIB + 61 * (64 << 10)
            assert node.request_room.bytes_taken <= 8 * MIB
        assert node.request_room.is_crowded
        began, helper.patience_seconds = env.now(), 60.0
        async with asyncio.timeout(60):
            assert (await helper.produce("a", bytes(900_000), timeout_ms=PATIENCE_MS)).error_code == 0
        assert env.now() - began < 20
        assert node.metrics.connections_closed_as_stalled > 0
        for task in pushing:
            task.cancel()

    virtually(scenario)


def test_those_who_have_begun_go_before_those_who_have_not() -> None:
    room, served = RequestRoom(100), []
    assert room.take(60, lambda: None)
    assert not room.take(50, lambda: served.append("newcomer"))
    assert not room.take(50, lambda: served.append("grown"), held=20)
    assert room.is_crowded
    room.give_back(20)
    assert served == ["grown"], "and what it held counted all the while"
    assert room.bytes_taken == 90
    room.give_back(70)
    assert served == ["grown", "newcomer"]


def test_a_request_larger_than_all_the_room_grows_when_it_is_alone() -> None:
    room, served = RequestRoom(100), []
    assert room.take(90, lambda: None)
    assert room.take(10, lambda: None)
    assert not room.take(500, lambda: served.append("alone"), held=90)
    room.give_back(10)
    assert served == ["alone"]
    assert room.bytes_taken == 590


def test_room_is_given_in_the_order_of_asking() -> None:
    room, served = RequestRoom(100), []
    room.take(100, lambda: None)
    callbacks: list[Any] = [lambda number=number: served.append(number) for number in range(5)]
    for callback in callbacks:
        room.take(30, callback)
    room.leave_queue(callbacks[1])
    room.give_back(100)
    assert served == [0, 2, 3]
    room.hold(500)
    room.give_back(30)
    assert served == [0, 2, 3], "what is held counts"
    room.let_go(500)
    assert served == [0, 2, 3, 4]


def test_what_is_held_beside_them_keeps_no_large_request_out_for_ever() -> None:
    """There is always some fetch that waits; a request larger than all the room must come in all the same."""
    room, served = RequestRoom(100), []
    room.hold(20)
    assert room.take(40, lambda: None)
    assert not room.take(500, lambda: served.append("large"))
    room.give_back(40)
    assert served == ["large"]
    room.give_back(500)
    room.let_go(20)
    assert room.bytes_taken == 0


def test_a_large_request_that_is_still_worked_on_keeps_the_next_large_one_out() -> None:
    room, served = RequestRoom(100), []
    assert room.take(500, lambda: None)
    room.hold(500)
    room.give_back(500)
    assert not room.take(500, lambda: served.append("next"))
    assert served == []
    room.let_go(500)
    assert served == ["next"]


async def test_fetches_that_would_hold_too_much_while_they_wait_are_answered_at_once(serving: Serving) -> None:
    node = await serving.open()
    node.request_room.bytes_max = 1 * MIB
    line = await serving.line()
    await line.create("a", 500)
    wish = fetch_body({"a": {index: 0 for index in range(500)}}, max_wait_ms=PATIENCE_MS)
    line.send(ApiKey.FETCH, **wish)
    await until_async(lambda: node.request_room.bytes_taken > 100_000)
    other = await serving.line()
    for _ in range(20):
        await other.ask(ApiKey.FETCH, **wish)
    assert node.request_room.bytes_taken <= 1 * MIB // 4
    assert await line.is_silent(), "the first one still waits"


@pytest.mark.parametrize(
    ("api", "version", "body"),
    [
        (ApiKey.METADATA, 9, b"\xd1\x86\x03" + b"\x02a\x00" * 50_000),
        (ApiKey.DELETE_TOPICS, 5, b"\xd1\x86\x03" + b"\x01" * 50_000),
        (ApiKey.LIST_OFFSETS, 1, struct.pack(">iihci", -1, 1, 1, b"a", 50_000) + struct.pack(">iq", 0, -1) * 50_000),
        (ApiKey.FETCH, 4, struct.pack(">iiiibihci", -1, 0, 0, 1, 0, 1, 1, b"a", 50_000) + struct.pack(">iqi", 0, 0, 1) * 50_000),
    ],
)
async def test_a_request_with_more_rows_than_any_client_needs_is_refused(serving: Serving, api: ApiKey, version: int, body: bytes) -> None:
    node = await serving.open()
    line = await serving.line()
    is_flexible = api in (ApiKey.METADATA, ApiKey.DELETE_TOPICS)
    line.send_frame(struct.pack(">hhih", api, version, 1, -1) + (b"\0" if is_flexible else b"") + body)
    assert await line.is_closed()
    assert node.metrics.connections_closed_as_malformed == 1


async def test_a_client_that_is_cut_off_as_soon_as_it_reads_again_is_buried_once(serving: Serving) -> None:
    """The bytes that don't parse are looked at when the transport says that it can take more: closing from within that call is delicate."""
    node = await serving.open(requests_in_flight_max=4)
    helper = await serving.line()
    await helper.create("a", 1)
    await fill(helper, "a", 1)
    line = await serving.line(receive_bytes=1_000)
    fetch = write_request(ApiKey.FETCH, 12, 1, "x", fetch_body({"a": 0}, max_bytes=MIB, partition_max_bytes=MIB))
    line.writer.write(fetch * 8 + b"\xff\xff\xff\xff")
    await until_async(lambda: any(each._is_paused for each in node.connections))
    with suppress(ConnectionError):
        while await line.reader.read(MIB):
            pass
    await until_async(lambda: len(node.connections) == 1)
    assert node.metrics.connections_closed_as_malformed == 1
