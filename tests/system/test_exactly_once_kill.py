"""Records are moved from topic to topic while movers and nodes of a cluster die: a reader of committed records finds each once, in order.

Two movers share a group; each is killed and started again at random, as are the nodes, one at a time. PENSTOCK_ROUNDS sets how often.
"""

import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from announced import needs_announced
from cli.running import Ended, penstock
from confluent_kafka import Consumer as LibraryConsumer
from confluent_kafka import KafkaException, TopicPartition
from system import librdkafka
from system.clusters import Cluster, drawn

from penstock.client import Consumer, Producer

pytestmark = [pytest.mark.paired, pytest.mark.timeout(400)]  # A mover that librdkafka left hanging takes ten seconds to find out.

ROUNDS = int(os.environ.get("PENSTOCK_ROUNDS", "10"))
SOAK_ROUNDS = int(os.environ.get("PENSTOCK_ROUNDS", "200"))
both = pytest.mark.parametrize("rounds", [ROUNDS, pytest.param(SOAK_ROUNDS, marks=[pytest.mark.soak, pytest.mark.timeout(3_600)])])

PROGRAM = Path(__file__).with_name("mover.py")
PARTITIONS = 4
SAFE = {"replicas": 3, "min_insync_replicas": 2}
SETTINGS = {
    "broker.session.timeout.ms": 1_000, "broker.heartbeat.interval.ms": 150, "replica.lag.time.max.ms": 3_000,
    "group.initial.rebalance.delay.ms": 0, "group.min.session.timeout.ms": 500,
    "transaction.state.log.num.partitions": 4, "offsets.topic.num.partitions": 4,
}  # fmt: skip
STOPPED_SECONDS = 1.5  # Longer than a node's session.
PER_SECOND = 200
PATIENCE_SECONDS = 60.0
SESSION_SECONDS = 6.0  # Of a mover.


class Mover:
    """One mover, and another after it whenever it ends."""

    def __init__(self, cluster: Cluster, number: int, source: str, target: str, rng: random.Random) -> None:
        options = {
            "bootstrap": cluster.bootstrap, "name": f"mover-{number}", "group": "movers", "source": source, "target": target,
            "max_records": rng.choice([20, 200]),
        }  # fmt: skip
        self._command = [sys.executable, str(PROGRAM), json.dumps(options)]
        self.lives = 0
        self.words: list[str] = []  # What those said that ended by themselves.
        self._said = cluster.members[0].data_directory.parent / f"mover-{number}.txt"
        self.start()

    def start(self) -> None:
        self.lives += 1
        with self._said.open("w") as said:
            self._process = subprocess.Popen(self._command, stderr=said)

    def look_after(self) -> None:
        """Starts another one where this one has come to its end."""
        if self._process.poll() is not None:
            self.words.append(self.says())
            self.start()

    def says(self) -> str:
        """Its last words, and where it stands."""
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGUSR1)
            time.sleep(0.2)
        return self._said.read_text()[-3_000:]

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()

    def rest(self) -> None:
        """Until its session is over, and the group is divided anew. A static member that dies between the two steps of a cooperative
        rebalance comes back to what it had in the first: perhaps nothing, while what it gave up is nobody's."""
        self.kill()
        time.sleep(SESSION_SECONDS + 1)


@contextmanager
def writing(bootstrap: str, topic: str) -> Iterator[list[int]]:
    """Numbers into the topic, from a thread, until the block ends. How many, once it has ended."""
    stopping, count = threading.Event(), [0]

    def write() -> None:
        with Producer(bootstrap, settings={"reconnect.backoff.max.ms": 200}) as producer:
            while not stopping.wait(1 / PER_SECOND):
                producer.send(topic=topic, value=f"{count[0]}", partition=count[0] % PARTITIONS)
                count[0] += 1

    thread = threading.Thread(target=write, daemon=True)
    thread.start()
    try:
        yield count
    finally:
        stopping.set()
        thread.join(PATIENCE_SECONDS)
    assert not thread.is_alive(), "the writer did not come to an end"


def moved(bootstrap: str, topic: str, count: int, movers: list[Mover]) -> list[list[int]]:
    """By partition what a reader of committed records finds: so many, and whatever comes within two seconds more."""
    found: list[list[int]] = [[] for _ in range(PARTITIONS)]
    deadline, has_rested = time.monotonic() + PATIENCE_SECONDS, False
    with Consumer(topics=[topic], bootstrap=bootstrap) as consumer:
        while True:
            is_all = sum(map(len, found)) >= count
            messages = consumer.poll(timeout=2.0)
            for message in messages:
                found[message.partition].append(int(message.value or b"-1"))
            if messages:
                deadline = time.monotonic() + PATIENCE_SECONDS  # They come nearer; after many rounds there is a lot to catch up with.
            if is_all and not messages:
                return found
            if not has_rested and time.monotonic() > deadline - PATIENCE_SECONDS / 2:
                has_rested = True
                movers[0].rest()
            for mover in movers:
                mover.look_after()
            assert time.monotonic() < deadline, f"{[len(each) for each in found]} of {count} came\n{story(bootstrap, movers)}"


def story(bootstrap: str, movers: list[Mover]) -> str:
    """What an operator would look at."""
    asked = [["transactions", "list"], *(["transactions", "describe", f"mover-{number}"] for number in range(2))]
    asked += [["groups", "describe", "movers"], ["groups", "members", "movers"], ["transactions", "list", "--hanging"]]
    told = [penstock(*each, "--bootstrap", bootstrap) for each in asked]
    careful = LibraryConsumer({"bootstrap.servers": bootstrap, "group.id": "movers", "isolation.level": "read_committed"})
    for partition in range(PARTITIONS):
        try:
            (place,) = careful.committed([TopicPartition("from", partition)], timeout=3)
            told.append(Ended(0, f"from-{partition} is stable: {place}", ""))
        except KafkaException as failure:
            told.append(Ended(1, "", f"from-{partition} is not stable: {failure}"))
    careful.close()
    return "\n".join([*(ended.out + ended.err for ended in told), *(f"{mover.words} {mover.says()}" for mover in movers)])


@both
def test_each_record_has_its_effect_once_whoever_dies(tmp_path: Path, rounds: int) -> None:
    rng = random.Random(f"movers {rounds}")
    with Cluster(tmp_path, settings=SETTINGS) as cluster:
        needs_announced(cluster.members[0].bootstrap, "transactions")
        source, target = (librdkafka.make_topic(cluster.bootstrap, name, PARTITIONS, **SAFE) for name in ("from", "to"))
        movers = [Mover(cluster, number, source, target, rng) for number in range(2)]
        try:
            with writing(cluster.bootstrap, source) as count:
                for kind in drawn(rng, ["mover", "mover", "node", "pause"], rounds):
                    time.sleep(rng.uniform(0.2, 1.5))
                    strike(kind, rng, cluster, movers)
                    cluster.wait_until_full(source, target)
                    for mover in movers:
                        mover.look_after()
            found = moved(cluster.bootstrap, target, count[0], movers)
        finally:
            for mover in movers:
                mover.kill()
        print(f"{count[0]} records, {[mover.lives for mover in movers]} lives of movers, who said {[mover.words for mover in movers]}")
        assert found == [list(range(partition, count[0], PARTITIONS)) for partition in range(PARTITIONS)]
        assert count[0] > rounds * 20
        assert cluster.complaints() == []


def strike(kind: str, rng: random.Random, cluster: Cluster, movers: list[Mover]) -> None:
    if kind == "mover":
        victim = rng.choice(movers)
        victim.kill()
        victim.start()
        return
    node = cluster.random_member(rng)
    if kind == "node":
        node.kill()
        time.sleep(0.3)
        node.start()
    else:
        node.pause()
        time.sleep(STOPPED_SECONDS)
        node.go_on()
