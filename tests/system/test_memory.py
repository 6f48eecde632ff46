"""Crowds that would eat all memory of a careless broker: the node stays under its cap, and those who behave are served."""

import asyncio
import json
import random
import socket
import threading
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

import pytest
from confluent_kafka import TopicPartition
from system import crowds, librdkafka
from system.clusters import until
from system.harness import Node
from system.raw import Line, fetch_frame, good_batch
from tiers import pick
from waiting import ASK_S, NEVER_MS, PATIENCE_S, pause_at_random_async, stays_async, until_async

from penstock.client import Queue
from penstock.http.sqs.addresses import queue_url
from penstock.wire.api_keys import ApiKey
from penstock.wire.schemas import write_request

pytestmark = [pytest.mark.paired, pytest.mark.timeout(900)]

MIB = 1 << 20
CAP_BYTES = 256 * MIB
PARTITIONS = 4
# The length of a Produce request of 90 MB, its API key and version, and not much more.
HALF_A_REQUEST = (90 * MIB).to_bytes(4, "big") + bytes([0, 0, 0, 9]) + bytes(6)
# The log is kept small by retention, so that the test costs the disk little; a stalled connection is not given up.
TOPIC = {"segment_bytes": 16 * MIB, "retention_bytes": 64 * MIB}
SETTINGS = {"memory.bytes.max": CAP_BYTES, "log.retention.check.interval.ms": 500, "connections.max.stalled.ms": NEVER_MS}
ACCEPTED = "penstock_connections_accepted_total"
IDLE_S = 1.0
MORE_REQUESTS, MORE_RECORDS = 20, 10_000  # A request has 550 records.


@contextmanager
def started(directory: Path) -> Iterator[Node]:
    crowds.allow_many_connections()
    with Node(directory / "data", settings=SETTINGS, is_warm=False) as node:
        librdkafka.make_topic(node.bootstrap, "crowded", PARTITIONS, **TOPIC)
        yield node
        assert node.is_alive()
        assert node.complaints() == []


@pytest.fixture
def fresh(tmp_path: Path) -> Iterator[Node]:
    """For a test that sees how much memory is added: what others have left free would hide it."""
    with started(tmp_path) as node:
        yield node


@pytest.fixture(scope="module")
def serving(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    with started(tmp_path_factory.mktemp("node")) as node:
        yield node


@pytest.fixture
def node(serving: Node) -> Iterator[Node]:
    """One for all the others."""
    serving.forget_peak()
    yield serving
    assert serving.is_alive()
    assert serving.complaints() == []


def address_of(node: Node) -> tuple[str, int]:
    return "127.0.0.1", node.kafka_port


@asynccontextmanager
async def callers(node: Node, count: int, words: bytes = b"") -> AsyncIterator[list[socket.socket]]:
    """So many silent callers, all of them accepted."""
    before = node.metric(ACCEPTED)
    async with crowds.silent_callers(address_of(node), count, words) as lines:
        await until_async(lambda: node.metric(ACCEPTED) - before >= count, f"{count} connections are accepted")
        yield lines


def serve(node: Node) -> None:
    """A small request and a large one, which has to ask for room."""
    with Line(address_of(node)) as line:
        assert line.produce("crowded", good_batch(b"small")) == 0
        assert line.produce("crowded", good_batch(b"large" * 150_000)) == 0


@pytest.mark.repeats
def test_thousands_of_idle_connections_cost_little(fresh: Node) -> None:
    before_bytes, connections = fresh.resident_bytes(), pick(test=2_000, slow=4_000)

    async def idle() -> tuple[float, float]:
        async with callers(fresh, connections):
            cpu, began = fresh.cpu_seconds(), time.monotonic()
            await stays_async(fresh.is_alive, for_s=IDLE_S)
            busy = (fresh.cpu_seconds() - cpu) / (time.monotonic() - began)
            serve(fresh)
            return busy, (fresh.resident_bytes() - before_bytes) / connections

    busy, bytes_each = asyncio.run(idle())
    print(f"{bytes_each:.0f} bytes each, {busy:.0%} of a core")
    until(lambda: fresh.open_files() < connections, "closed connections are let go")
    assert bytes_each < 20_000 and busy < 0.2, f"{bytes_each:.0f} bytes each, {busy:.0%} of a core"


def test_callers_who_dribble_hold_little_memory_and_nobody_up(fresh: Node) -> None:
    """Each caller announces 90 MB, sends a few bytes, and then another byte now and then, for as long as it likes."""
    before = fresh.resident_bytes()

    async def dribble() -> None:
        async with callers(fresh, 300, HALF_A_REQUEST) as lines:
            serve(fresh)
            with Line(address_of(fresh)) as other:
                for _ in range(8):
                    for line in lines:
                        line.send(b"x")
                    other.ask(ApiKey.API_VERSIONS, 0)  # Answered after those bytes were read.
            serve(fresh)
            assert fresh.resident_bytes() - before < 32 * MIB
            assert crowds.closed(lines) == 0, "they were given up, and nothing was shown"

    asyncio.run(dribble())


@pytest.mark.repeats
def test_large_requests_to_a_queue_fit_under_the_cap(node: Node) -> None:
    """Many at once, some of which are made to take as much memory as they can once they are read."""
    many, few = pick(test=12, slow=30), pick(test=3, slow=6)
    with Queue("large", url=f"http://127.0.0.1:{node.http_port}", patience=PATIENCE_S) as queue:
        queue.create()
        url = queue_url("localhost", "large")
        entries = [{"Id": str(number), "MessageBody": "\u00e9" * 50_000} for number in range(10)]
        escaped = _http("AmazonSQS.SendMessageBatch", json.dumps({"QueueUrl": url, "Entries": entries}).encode())
        pieces = _http("AmazonSQS.SendMessageBatch", b'{"Entries": [' + b"{}," * 2_600_000 + b"{}]}")
        wide = json.dumps({"Queue": "large", "Messages": [{"Body": "x" * 700_000 + "\U0001f600"}] * 10}, ensure_ascii=False)
        requests = [escaped] * many + [pieces] * few + [_http("Penstock.Send", wide.encode())] * few

        async def crowd() -> list[int]:
            lines = [await asyncio.open_connection("127.0.0.1", node.http_port) for _ in requests]
            statuses = await asyncio.gather(*[_until_done(*line, request) for line, request in zip(lines, requests, strict=True)])
            for _, writer in lines:  # All of them stay as long as there is one left: an idle connection must hold nothing.
                writer.close()
            return statuses

        assert asyncio.run(crowd()) == [200] * many + [413] * few + [200] * few
        assert queue.counts().ready == 10 * (many + few)
        print(f"peak {node.peak_resident_bytes() / MIB:.0f} MiB")
        assert node.peak_resident_bytes() < CAP_BYTES, f"{node.peak_resident_bytes() / MIB:.0f} MiB"


def _http(action: str, body: bytes) -> bytes:
    return f"POST / HTTP/1.1\r\nHost: x\r\nX-Amz-Target: {action}\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body


async def _until_done(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, request: bytes) -> int:
    """Asks again for as long as it hears that there is no room."""
    rng = random.Random(len(request))
    while True:
        writer.write(request)
        head = await reader.readuntil(b"\r\n\r\n")
        told = await reader.readexactly(int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0]))
        if b"too many large requests" not in told:
            return int(head.split(b" ", 2)[1])
        await pause_at_random_async(rng, 0.05, 0.1)


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
                    self.read += len(reader.consume(1_000, timeout=ASK_S))
        except BaseException as trouble:
            self.trouble = trouble

    def stop(self) -> None:
        self._stopping.set()
        self.join()


@pytest.mark.repeats
@pytest.mark.parametrize(
    ("consumers", "requests"),
    [
        (pick(test=100, slow=500), pick(test=200, slow=1_000)),
        pytest.param(500, 50_000, marks=[pytest.mark.soak, pytest.mark.timeout(3_600)]),
    ],
)
def test_hundreds_of_consumers_that_never_read_and_100_producers_at_full_speed_fit_under_the_cap(
    node: Node, consumers: int, requests: int
) -> None:
    """All at once would take a hundred times the memory that there is: each of them asks for as much as there is, twenty times."""
    librdkafka.make_topic(node.bootstrap, "library", PARTITIONS)  # It keeps what the greedy ask for.
    asyncio.run(crowds.FullSpeed(address_of(node), "library", PARTITIONS).run(producers=PARTITIONS, requests=200))
    first, end = librdkafka.watermarks(node.bootstrap, "library")
    assert (end - first) * 100 > 10 * MIB
    greedy = fetch_frame("library", PARTITIONS, bytes_max=50 * MIB) * 20
    load = crowds.FullSpeed(address_of(node), "crowded", PARTITIONS)

    async def crowd() -> None:
        async with crowds.silent_callers(address_of(node), consumers, greedy) as lines:
            await load.run(producers=100, requests=requests)
            await until_async(lambda: crowds.readable(lines) == len(lines), "everybody is sent what fits into the buffers")
            read = consumer.read  # What it reads from now on it is sent while the node holds replies for all of the crowd.
            await load.run(producers=PARTITIONS, requests=load.least_acknowledged() + MORE_REQUESTS)
            enough = max(20 * requests, read + MORE_RECORDS)
            await until_async(lambda: consumer.read > enough or consumer.trouble, "the one who reads is served")
            assert node.metric("penstock_connections") > consumers, "the crowd is still there"

    consumer = GoodConsumer(node, "crowded", PARTITIONS)
    consumer.start()
    asyncio.run(crowd())
    consumer.stop()
    assert consumer.trouble is None, consumer.trouble
    assert node.peak_resident_bytes() < CAP_BYTES, f"{node.peak_resident_bytes() / MIB:.0f} MiB"
    print(f"peak {node.peak_resident_bytes() / MIB:.0f} MiB, {load.acknowledged} requests in, {consumer.read} records out")


def test_requests_whose_replies_nobody_reads_fit_under_the_cap(node: Node) -> None:
    """Small questions with large answers, asked without end over 50 connections."""
    for number in range(20):
        librdkafka.make_topic(node.bootstrap, f"wide-{number}", partitions=50)
    question = write_request(ApiKey.METADATA, 1, 1, "test", {"topics": None})
    answered = 0.0

    def is_at_rest() -> bool:
        nonlocal answered
        before, answered = answered, node.metric('penstock_requests_total{api="METADATA"}')
        return answered == before and node.metric("penstock_reply_bytes") > 0

    async def flood() -> None:
        loop = asyncio.get_running_loop()
        async with crowds.silent_callers(address_of(node), 50) as lines:
            tasks = [loop.create_task(loop.sock_sendall(line, question * 20_000)) for line in lines]
            await until_async(lambda: crowds.readable(lines) == len(lines), "everybody is answered")
            await until_async(is_at_rest, "the node answers no more, as nobody reads", every_s=ASK_S)
            for task in tasks:
                task.cancel()

    asyncio.run(flood())
    assert node.peak_resident_bytes() < CAP_BYTES
    with Line(address_of(node)) as line:
        assert line.produce("crowded", good_batch(b"still here")) == 0


def test_half_requests_hold_no_memory_and_are_given_up(tmp_path: Path) -> None:
    """Each caller announces 90 MB, sends a few bytes and falls silent."""
    settings = SETTINGS | {"connections.max.stalled.ms": 1_000}
    with Node(tmp_path / "data", settings=settings) as node:
        librdkafka.make_topic(node.bootstrap, "crowded", PARTITIONS)
        before = node.resident_bytes()

        async def fall_silent() -> None:
            async with callers(node, 300, HALF_A_REQUEST) as lines:
                with Line(address_of(node)) as other:  # Answered after what the callers had sent was read.
                    assert other.produce("crowded", good_batch(b"small")) == 0
                assert node.resident_bytes() - before < 32 * MIB
                await until_async(lambda: crowds.closed(lines) == len(lines), "those who stopped in a request are given up", every_s=ASK_S)

        asyncio.run(fall_silent())
        assert node.complaints() == []


def test_more_connections_than_allowed_are_turned_away_and_room_comes_back(tmp_path: Path) -> None:
    with Node(tmp_path / "data", settings={"connections.max": 50}) as node:

        async def crowd() -> None:
            async with crowds.silent_callers(address_of(node), 60) as lines:
                await until_async(lambda: crowds.closed(lines) >= 10, "those past the limit are turned away")
                await stays_async(lambda: crowds.closed(lines) == 10)

        asyncio.run(crowd())

        def is_served() -> bool:
            with Line(address_of(node)) as line:
                return line.ask(ApiKey.API_VERSIONS, 0).error_code == 0

        until(is_served, "there is room again")
