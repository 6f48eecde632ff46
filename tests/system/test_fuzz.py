"""Thousands of spoilt requests of every announced API and version: the node answers or hangs up, and nobody else notices."""

import select
import socket
import threading
import time
from collections import Counter
from itertools import count
from pathlib import Path
from random import Random

import pytest
from system import crowds, librdkafka
from system.harness import Node
from system.mutations import announced, proper_frames, spoil, spoilt_records
from system.raw import Line, good_batch
from tiers import pick
from waiting import ASK_MS, paced

from penstock.wire.api_keys import ApiKey
from penstock.wire.schemas import topic_id_bytes

pytestmark = [pytest.mark.paired, pytest.mark.timeout(900)]

MIB = 1 << 20
UNDER_WAY_MAX = 48
WAITING_MAX = 500
ANSWERS_MIN = 20  # Of the neighbour, while spoilt requests come.
PER_SECOND = 50  # Requests of the neighbour, so few that most of the work is the node's with spoilt requests.
CPU_S_MAX = 2.0  # Of the node, from one answer to the neighbour to the next: no spoilt request keeps it from the others for longer.
ANSWER_S_MAX = 30.0  # The neighbour waits no longer for an answer: a node that stands still uses no CPU.
# A spoilt wish for ten thousand partitions must not become the test's whole work.
SETTINGS = {"partitions.max": 300, "socket.request.max.bytes": 8 * MIB, "decompressed.batch.bytes.max": 8 * MIB}


class Neighbour(threading.Thread):
    """Somebody who behaves, all the while, on a connection of his own."""

    def __init__(self, node: Node, topic: str) -> None:
        super().__init__(daemon=True)
        self.address, self.topic = ("127.0.0.1", node.kafka_port), topic
        self.answers = 0
        self.most_cpu_s = self.longest_s = 0.0  # What the node has used from one answer to the next, and what went by.
        self._node = node
        self.trouble: BaseException | None = None
        self._stopping = threading.Event()

    def run(self) -> None:
        try:
            with Line(self.address, seconds=ANSWER_S_MAX) as line:
                used = self._node.cpu_seconds()
                for _ in paced(PER_SECOND, self._stopping):
                    began = time.monotonic()
                    assert line.produce(self.topic, good_batch(b"steady %d" % self.answers)) == 0
                    assert line.ask(ApiKey.METADATA, 9, topics=[{"name": self.topic}]).topics[0].error_code == 0
                    self.answers += 1
                    before, used = used, self._node.cpu_seconds()
                    self.most_cpu_s = max(self.most_cpu_s, used - before)
                    self.longest_s = max(self.longest_s, time.monotonic() - began)
        except BaseException as trouble:
            self.trouble = trouble

    def stop(self) -> None:
        self._stopping.set()
        self.join()


@pytest.mark.repeats
@pytest.mark.parametrize(
    "frames", [pick(test=2_000, slow=10_000), pytest.param(300_000, marks=[pytest.mark.soak, pytest.mark.timeout(3_600)])]
)
def test_spoilt_requests_are_answered_or_hung_up_on_and_the_node_lives(tmp_path: Path, frames: int) -> None:
    crowds.allow_many_connections()
    with Node(tmp_path / "data", settings=SETTINGS) as node:
        address = ("127.0.0.1", node.kafka_port)
        librdkafka.make_topic(node.bootstrap, "steady")
        librdkafka.make_topic(node.bootstrap, "fuzzed")
        before_bytes = node.resident_bytes()
        neighbour = Neighbour(node, "steady")
        neighbour.start()
        outcomes = Spoiler(address).send_all(frames, neighbour)
        neighbour.stop()
        assert node.is_alive(), f"the node ended with code {node.wait()}"
        assert node.complaints() == []
        assert neighbour.trouble is None, neighbour.trouble
        print(f"at most {neighbour.most_cpu_s:.2f} s of CPU and {neighbour.longest_s:.2f} s for one of {neighbour.answers} answers")
        assert neighbour.most_cpu_s < CPU_S_MAX
        assert node.resident_bytes() - before_bytes < 128 * MIB
        assert outcomes["answered"] > frames / 20 and outcomes["hung up"] > frames / 20, outcomes
        assert librdkafka.watermarks(node.bootstrap, "steady") == (0, neighbour.answers)
        check_readable(node, "fuzzed")


def check_readable(node: Node, topic: str) -> None:
    """Whatever was let in, a consumer can read all of it."""
    if topic in librdkafka.topic_list(node.bootstrap):
        low, high = librdkafka.watermarks(node.bootstrap, topic)
        assert len(librdkafka.read_partition(node.bootstrap, topic)) == high - low


class Spoiler:
    """Sends each spoilt request on a connection of its own, many at once, and sees what becomes of each."""

    def __init__(self, address: tuple[str, int]) -> None:
        self._address = address
        self._proper = frames_of(address)
        self._open: dict[int, socket.socket] = {}
        # How many of these seem to wait: a fetch whose waiting time was spoilt may wait for hours. Others begin beside them.
        self._waiting = 0
        self._poller = select.poll()
        self.outcomes: Counter[str] = Counter()

    def send_all(self, frames: int, neighbour: Neighbour) -> Counter[str]:
        """At least so many, and more until the neighbour was answered often enough meanwhile."""
        for number in count():
            if number >= frames and (neighbour.answers > ANSWERS_MIN or neighbour.trouble is not None):
                break
            self._send(self._frame(number))
            while len(self._open) - self._waiting >= UNDER_WAY_MAX:
                if not self._settle():
                    self._waiting = len(self._open)
            if self._waiting > WAITING_MAX:
                self._give_up()
        with Line(self._address) as last:  # Its answer comes after those to all requests before it that need not wait.
            last.ask(ApiKey.API_VERSIONS, 0)
        while self._settle():
            pass
        self._give_up()
        return self.outcomes

    def _frame(self, number: int) -> bytes:
        rng = Random(number)
        return spoilt_records(rng, "fuzzed") if rng.random() < 0.15 else spoil(rng.choice(self._proper), rng)

    def _send(self, frame: bytes) -> None:
        line = socket.create_connection(self._address)
        try:
            line.sendall(frame)
        except ConnectionError:
            self.outcomes["hung up"] += 1
            line.close()
            return
        self._open[line.fileno()] = line
        self._poller.register(line, select.POLLIN)

    def _settle(self) -> bool:
        """Whether something became of at least one of them; looks for a moment."""
        ready = self._poller.poll(ASK_MS)
        for number, _ in ready:
            self._poller.unregister(number)
            with self._open.pop(number) as line:
                self.outcomes["answered" if is_answered(line) else "hung up"] += 1
        self._waiting = min(self._waiting, len(self._open))
        return bool(ready)

    def _give_up(self) -> None:
        self.outcomes["waiting"] += len(self._open)
        for number, line in self._open.items():
            self._poller.unregister(number)
            line.close()
        self._open.clear()
        self._waiting = 0


def is_answered(line: socket.socket) -> bool:
    try:
        return bool(line.recv(1))
    except ConnectionError:
        return False


def frames_of(address: tuple[str, int]) -> list[bytes]:
    with Line(address) as line:
        (topic,) = line.ask(ApiKey.METADATA, 12, topics=[{"name": "fuzzed", "topic_id": bytes(16)}]).topics
    return proper_frames(announced(address), "fuzzed", topic_id_bytes(topic.topic_id))
