"""Thousands of spoilt requests of every announced API and version: the node answers or hangs up, and nobody else notices."""

import asyncio
import threading
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path
from random import Random

import pytest
from system import librdkafka
from system.harness import Node
from system.mutations import announced, proper_frames, spoil, spoilt_records
from system.raw import Line, good_batch

from penstock.wire.api_keys import ApiKey
from penstock.wire.schemas import topic_id_bytes

pytestmark = pytest.mark.serial

MIB = 1 << 20
LANES = 48
PATIENCE_SECONDS = 0.2  # A fetch whose waiting time was spoilt may wait for hours; nobody here does.
# A spoilt wish for ten thousand partitions must not become the test's whole work.
SETTINGS = {"partitions.max": 300, "socket.request.max.bytes": 8 * MIB, "decompressed.batch.bytes.max": 8 * MIB}


class Neighbour(threading.Thread):
    """Somebody who behaves, all the while, on a connection of his own."""

    def __init__(self, address: tuple[str, int], topic: str) -> None:
        super().__init__(daemon=True)
        self.address, self.topic = address, topic
        self.answers = 0
        self.longest_seconds = 0.0
        self.trouble: BaseException | None = None
        self._stopping = threading.Event()

    def run(self) -> None:
        try:
            with Line(self.address) as line:
                while not self._stopping.wait(0.02):
                    began = time.monotonic()
                    assert line.produce(self.topic, good_batch(b"steady %d" % self.answers)) == 0
                    assert line.ask(ApiKey.METADATA, 9, topics=[{"name": self.topic}]).topics[0].error_code == 0
                    self.answers += 1
                    self.longest_seconds = max(self.longest_seconds, time.monotonic() - began)
        except BaseException as trouble:
            self.trouble = trouble

    def stop(self) -> None:
        self._stopping.set()
        self.join()


@pytest.mark.parametrize("frames", [10_000, pytest.param(300_000, marks=[pytest.mark.soak, pytest.mark.timeout(3_600)])])
def test_spoilt_requests_are_answered_or_hung_up_on_and_the_node_lives(tmp_path: Path, frames: int) -> None:
    with Node(tmp_path / "data", settings=SETTINGS, is_warm=False) as node:
        address = ("127.0.0.1", node.kafka_port)
        librdkafka.make_topic(node.bootstrap, "steady")
        librdkafka.make_topic(node.bootstrap, "fuzzed")
        before_bytes = node.resident_bytes()
        neighbour = Neighbour(address, "steady")
        neighbour.start()
        outcomes = asyncio.run(fuzz(address, frames))
        neighbour.stop()
        assert node.is_alive(), f"the node ended with code {node.wait()}"
        assert node.complaints() == []
        assert neighbour.trouble is None, neighbour.trouble
        assert neighbour.answers > 20 and neighbour.longest_seconds < 2
        assert node.resident_bytes() - before_bytes < 128 * MIB
        assert outcomes["answered"] > frames / 20 and outcomes["hung up"] > frames / 20, outcomes
        assert librdkafka.watermarks(node.bootstrap, "steady") == (0, neighbour.answers)
        check_readable(node, "fuzzed")


def check_readable(node: Node, topic: str) -> None:
    """Whatever was let in, a consumer can read all of it."""
    if topic in librdkafka.topic_list(node.bootstrap):
        low, high = librdkafka.watermarks(node.bootstrap, topic)
        assert len(librdkafka.read_partition(node.bootstrap, topic)) == high - low


async def fuzz(address: tuple[str, int], frames: int) -> Counter[str]:
    proper = await asyncio.to_thread(frames_of, address)
    outcomes: Counter[str] = Counter()
    work = iter(range(frames))

    async def lane() -> None:
        for number in work:
            rng = Random(number)
            spoilt = spoilt_records(rng, "fuzzed") if rng.random() < 0.15 else spoil(rng.choice(proper), rng)
            outcomes[await send(address, spoilt)] += 1

    await asyncio.gather(*[lane() for _ in range(LANES)])
    return outcomes


def frames_of(address: tuple[str, int]) -> list[bytes]:
    with Line(address) as line:
        (topic,) = line.ask(ApiKey.METADATA, 12, topics=[{"name": "fuzzed", "topic_id": bytes(16)}]).topics
    return proper_frames(announced(address), "fuzzed", topic_id_bytes(topic.topic_id))


async def send(address: tuple[str, int], frame: bytes) -> str:
    reader, writer = await asyncio.open_connection(*address)
    try:
        writer.write(frame)
        async with asyncio.timeout(PATIENCE_SECONDS):
            return "answered" if await reader.read(1) else "hung up"
    except TimeoutError:
        return "waiting"
    except ConnectionError:
        return "hung up"
    finally:
        with suppress(ConnectionError):
            writer.transport.abort()
