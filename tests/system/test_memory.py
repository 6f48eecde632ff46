"""Crowds that would eat all memory of a careless broker: the node stays under its cap, and those who behave are served."""

import asyncio
import contextlib
import json
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import TopicPartition
from system import crowds, librdkafka
from system.harness import Node
from system.raw import Line, fetch_frame, good_batch

from penstock.client import Queue
from penstock.http.sqs.addresses import queue_url
from penstock.wire.api_keys import ApiKey
from penstock.wire.schemas import write_request

pytestmark = pytest.mark.serial

MIB = 1 << 20
CAP_BYTES = 256 * MIB
PARTITIONS = 4
# The length of a Produce request of 90 MB, its API key and version, and not much more.
HALF_A_REQUEST = (90 * MIB).to_bytes(4, "big") + bytes([0, 0, 0, 9]) + bytes(6)
# The log is kept small by retention, so that the test costs the disk little; a stalled connection is given up late, as by default.
TOPIC = {"segment_bytes": 16 * MIB, "retention_bytes": 64 * MIB}
SETTINGS = {"memory.bytes.max": CAP_BYTES, "log.retention.check.interval.ms": 500}


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Node]:
    crowds.allow_many_connections()
    with Node(tmp_path / "data", settings=SETTINGS, is_warm=False) as node:
        librdkafka.make_topic(node.bootstrap, "crowded", PARTITIONS, **TOPIC)
        yield node
        assert node.is_alive()
        assert node.complaints() == []


def address_of(node: Node) -> tuple[str, int]:
    return "127.0.0.1", node.kafka_port


class GoodConsumer(threading.Thread):
    """Reads on and on. `read` counts records."""

    def __init__(self, node: Node, topic: str, partitions: int) -> None:
        super().__init__(daemon=True)
        self.read = 0
        self.trouble: BaseException | None = None
        self._where = [TopicPartition(topic, partition, 0) for partition in range(partitions)]
        self._address = node.bootstrap
        self._stopping = threading.Event()

    def run(self) -> None:
        try:
            with librdkafka.consumer(self._address, queued_max_messages_kbytes=16_384, fetch_message_max_bytes=MIB) as reader:
                reader.assign(self._where)
                while not self._stopping.is_set():
                    self.read += len(reader.consume(1_000, timeout=0.2))
        except BaseException as trouble:
            self.trouble = trouble

    def stop(self) -> None:
        self._stopping.set()
        self.join()


@pytest.mark.parametrize("seconds", [4, pytest.param(120, marks=[pytest.mark.soak, pytest.mark.timeout(600)])])
def test_500_consumers_that_never_read_and_100_producers_at_full_speed_fit_under_the_cap(node: Node, seconds: int) -> None:
    librdkafka.make_topic(node.bootstrap, "library", PARTITIONS)  # It keeps what the greedy ask for.
    asyncio.run(crowds.FullSpeed(address_of(node), "library", PARTITIONS).run(producers=4, seconds=1.0))
    assert librdkafka.watermarks(node.bootstrap, "library")[1] * 100 > 10 * MIB
    greedy = fetch_frame("library", PARTITIONS, bytes_max=50 * MIB) * 20
    load = crowds.FullSpeed(address_of(node), "crowded", PARTITIONS)

    async def crowd() -> None:
        async with crowds.silent_callers(address_of(node), 500, greedy):
            await load.run(producers=100, seconds=seconds)

    consumer = GoodConsumer(node, "crowded", PARTITIONS)
    consumer.start()
    asyncio.run(crowd())
    consumer.stop()
    assert consumer.trouble is None, consumer.trouble
    assert node.peak_resident_bytes() < CAP_BYTES, f"{node.peak_resident_bytes() / MIB:.0f} MiB"
    print(f"peak {node.peak_resident_bytes() / MIB:.0f} MiB, {load.acknowledged} requests in, {consumer.read} records out")
    assert load.acknowledged > 100 * seconds, "the producers were hardly served"
    assert consumer.read > 1_000 * seconds, "the one who reads was hardly served"


def test_requests_whose_replies_nobody_reads_fit_under_the_cap(node: Node) -> None:
    """Small questions with large answers, asked without end over 50 connections."""
    for number in range(20):
        librdkafka.make_topic(node.bootstrap, f"wide-{number}", partitions=50)
    question = write_request(ApiKey.METADATA, 1, 1, "test", {"topics": None})

    async def flood() -> None:
        loop = asyncio.get_running_loop()
        async with crowds.silent_callers(address_of(node), 50) as lines:
            tasks = [loop.create_task(loop.sock_sendall(line, question * 20_000)) for line in lines]
            await asyncio.sleep(2)
            for task in tasks:
                task.cancel()

    asyncio.run(flood())
    assert node.peak_resident_bytes() < CAP_BYTES
    with Line(address_of(node)) as line:
        assert line.produce("crowded", good_batch(b"still here")) == 0


def test_half_requests_hold_no_memory_and_are_given_up(tmp_path: Path) -> None:
    """Each caller announces 90 MB, sends a few bytes and falls silent."""
    settings = SETTINGS | {"connections.max.stalled.ms": 1_500}
    with Node(tmp_path / "data", settings=settings, is_warm=False) as node:
        librdkafka.make_topic(node.bootstrap, "crowded", PARTITIONS)
        before = node.resident_bytes()

        async def fall_silent() -> int:
            async with crowds.silent_callers(address_of(node), 300, HALF_A_REQUEST) as lines:
                await asyncio.sleep(0.5)
                assert node.resident_bytes() - before < 32 * MIB
                served_meanwhile(node)
                return await count_closed(lines, within=10)

        assert asyncio.run(fall_silent()) == 300, "callers who stopped in the middle of a request are still connected"
        assert node.complaints() == []


def test_callers_who_dribble_hold_little_memory_and_nobody_up(node: Node) -> None:
    """The same, but each of them sends another byte now and then, for as long as it likes."""
    before = node.resident_bytes()

    async def dribble() -> None:
        async with crowds.silent_callers(address_of(node), 300, HALF_A_REQUEST) as lines:
            for _ in range(8):
                await asyncio.sleep(0.25)
                for line in lines:
                    line.send(b"x")
            served_meanwhile(node)

    asyncio.run(dribble())
    assert node.resident_bytes() - before < 32 * MIB


def served_meanwhile(node: Node) -> None:
    """A small request and a large one, which has to ask for room."""
    began = time.monotonic()
    with Line(address_of(node)) as line:
        assert line.produce("crowded", good_batch(b"small")) == 0
        assert line.produce("crowded", good_batch(b"large" * 150_000)) == 0
    assert time.monotonic() - began < 5, "those who behave had to wait for those who do not"


async def count_closed(lines: list[socket.socket], within: float = 0.5) -> int:
    return sum(await asyncio.gather(*[is_closed(line, within) for line in lines]))


async def is_closed(line: socket.socket, within: float) -> bool:
    try:
        async with asyncio.timeout(within):
            return await asyncio.get_running_loop().sock_recv(line, 1) == b""
    except ConnectionError:
        return True
    except TimeoutError:
        return False


def test_large_requests_to_a_queue_fit_under_the_cap(node: Node) -> None:
    """Many at once, some of which are made to take as much memory as they can once they are read."""
    with Queue("large", url=f"http://127.0.0.1:{node.http_port}") as queue:
        queue.create()
        url = queue_url("localhost", "large")
        entries = [{"Id": str(number), "MessageBody": "\u00e9" * 50_000} for number in range(10)]
        escaped = _http("AmazonSQS.SendMessageBatch", json.dumps({"QueueUrl": url, "Entries": entries}).encode())
        pieces = _http("AmazonSQS.SendMessageBatch", b'{"Entries": [' + b"{}," * 2_600_000 + b"{}]}")
        wide = json.dumps({"Queue": "large", "Messages": [{"Body": "x" * 700_000 + "\U0001f600"}] * 10}, ensure_ascii=False)
        requests = [escaped] * 30 + [pieces] * 6 + [_http("Penstock.Send", wide.encode())] * 6

        async def crowd() -> list[int]:
            lines = [await asyncio.open_connection("127.0.0.1", node.http_port) for _ in requests]
            statuses = await asyncio.gather(*[_until_done(*line, request) for line, request in zip(lines, requests, strict=True)])
            for _, writer in lines:  # All of them stay as long as there is one left: an idle connection must hold nothing.
                writer.close()
            return statuses

        assert asyncio.run(crowd()) == [200] * 30 + [413] * 6 + [200] * 6
        assert queue.counts().ready == 360
        print(f"peak {node.peak_resident_bytes() / MIB:.0f} MiB")
        assert node.peak_resident_bytes() < CAP_BYTES, f"{node.peak_resident_bytes() / MIB:.0f} MiB"


def _http(action: str, body: bytes) -> bytes:
    return f"POST / HTTP/1.1\r\nHost: x\r\nX-Amz-Target: {action}\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body


async def _until_done(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, request: bytes) -> int:
    """Asks again for as long as it hears that there is no room."""
    while True:
        writer.write(request)
        head = await reader.readuntil(b"\r\n\r\n")
        told = await reader.readexactly(int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0]))
        if b"too many large requests" not in told:
            return int(head.split(b" ", 2)[1])
        await asyncio.sleep(0.05)


def test_thousands_of_idle_connections_cost_little(node: Node) -> None:
    before_bytes, connections = node.resident_bytes(), 4_000

    async def idle() -> tuple[float, float]:
        async with crowds.silent_callers(address_of(node), connections):
            await asyncio.sleep(0.5)
            cpu, began = node.cpu_seconds(), time.monotonic()
            await asyncio.sleep(1)
            busy = (node.cpu_seconds() - cpu) / (time.monotonic() - began)
            with Line(address_of(node)) as line:
                assert line.produce("crowded", good_batch(b"served")) == 0
            return busy, (node.resident_bytes() - before_bytes) / connections

    busy, bytes_each = asyncio.run(idle())
    assert node.open_files() < connections, "closed connections are let go"
    assert bytes_each < 20_000 and busy < 0.2, f"{bytes_each:.0f} bytes each, {busy:.0%} of a core"


def test_more_connections_than_allowed_are_turned_away_and_room_comes_back(tmp_path: Path) -> None:
    with Node(tmp_path / "data", settings={"connections.max": 50}, is_warm=False) as node:

        async def crowd() -> int:
            async with crowds.silent_callers(address_of(node), 60) as lines:
                await asyncio.sleep(0.3)
                return await count_closed(lines)

        assert asyncio.run(crowd()) == 10
        deadline = time.monotonic() + 5
        while True:
            with contextlib.suppress(AssertionError), Line(address_of(node)) as line:
                assert line.ask(ApiKey.API_VERSIONS, 0).error_code == 0
                break
            assert time.monotonic() < deadline, "no room came back"
