"""Records are moved from topic to topic while movers and nodes of a cluster die: a reader of committed records finds each once, in order.

Two movers share a group; each is killed and started again at random, as are the nodes, one at a time. PENSTOCK_ROUNDS sets how often.
"""

import json
import os
import random
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

import pytest
from announced import needs_announced
from cli.running import Ended, penstock
from confluent_kafka import Consumer as LibraryConsumer
from confluent_kafka import KafkaException, TopicPartition
from system import librdkafka
from system.clusters import Cluster, drawn, until
from tiers import pick
from waiting import ASK_S, PATIENCE_S, paced, pause_at_random
from warm import Warm

from penstock.client import Consumer, Producer

pytestmark = [pytest.mark.paired, pytest.mark.timeout(900)]  # A mover that librdkafka left hanging takes ten seconds to find out.

ROUNDS = int(os.environ.get("PENSTOCK_ROUNDS", pick(test=4, slow=10)))
SOAK_ROUNDS = int(os.environ.get("PENSTOCK_ROUNDS", "200"))
both = pytest.mark.parametrize("rounds", [ROUNDS, pytest.param(SOAK_ROUNDS, marks=[pytest.mark.soak, pytest.mark.timeout(3_600)])])

PROGRAM = Path(__file__).with_name("mover.py")
PARTITIONS = 4
SAFE = {"replicas": 3, "min_insync_replicas": 2}
SETTINGS = {
    "group.initial.rebalance.delay.ms": 0, "group.min.session.timeout.ms": 500,
    "transaction.state.log.num.partitions": 4, "offsets.topic.num.partitions": 4,
}  # fmt: skip
PER_SECOND = pick(test=50, slow=200)
GROUP = "movers"
# Looks at the target in a row that find nothing new: then the group is divided anew, or the test ends.
LOOKS_BEFORE_REST, LOOKS_MAX = int(PATIENCE_S / 4 / ASK_S), int(PATIENCE_S / ASK_S)


@cache
def programs() -> Warm:
    return Warm(str(PROGRAM))


class Mover:
    """One mover, and another after it whenever it ends."""

    def __init__(self, cluster: Cluster, number: int, source: str, target: str, rng: random.Random) -> None:
        self._name = f"mover-{number}"
        options = {
            "bootstrap": cluster.bootstrap, "name": self._name, "group": GROUP, "source": source, "target": target,
            "max_records": rng.choice([20, 200]),
        }  # fmt: skip
        self._bootstrap = cluster.bootstrap
        self._options = json.dumps(options)
        self.lives = 0
        self.words: list[str] = []  # What those said that ended by themselves.
        self._said = cluster.members[0].data_directory.parent / f"mover-{number}.txt"
        self.start()

    def start(self) -> None:
        self.lives += 1
        with self._said.open("w") as said, open(os.devnull, "r+b") as nothing:
            streams = [nothing.fileno(), nothing.fileno(), said.fileno()]
            self._process = programs().start([self._options], streams, os.environ, str(PROGRAM.parent))

    def look_after(self) -> None:
        """Starts another one where this one has come to its end."""
        if self._process.poll() is not None:
            self.words.append(self.says())
            self.start()

    def says(self) -> str:
        """Its last words, and where it stands."""
        said = self._said.stat().st_size
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGUSR1)
            until(lambda: self._said.stat().st_size > said or self._process.poll() is not None, "it says where it stands")
        return self._said.read_text()[-3_000:]

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()

    def rest(self) -> None:
        """Stays away until its session is over and the group is divided anew. A static member that dies between the two steps of a
        cooperative rebalance comes back to what it had in the first: perhaps nothing, while what it gave up is nobody's."""
        self.kill()

        def is_over() -> bool:
            try:
                return self._name not in members_of_group(self._bootstrap)
            except KafkaException:  # Its coordinator may be moving.
                return False

        until(is_over, f"the session of {self._name} is over")


def members_of_group(bootstrap: str) -> list[str | None]:
    asked = librdkafka.admin(bootstrap).describe_consumer_groups([GROUP], request_timeout=PATIENCE_S)[GROUP]
    return [member.group_instance_id for member in asked.result(PATIENCE_S).members]


@contextmanager
def writing(bootstrap: str, topic: str, *, per_second: int) -> Iterator[list[int]]:
    """Numbers into the topic, from a thread, until the block ends. How many, once it has ended."""
    stopping, count = threading.Event(), [0]

    def write() -> None:
        with Producer(bootstrap, settings={"reconnect.backoff.max.ms": 200}) as producer:
            for _ in paced(per_second, stopping):
                producer.send(topic=topic, value=f"{count[0]}", partition=count[0] % PARTITIONS)
                count[0] += 1

    thread = threading.Thread(target=write, daemon=True)
    thread.start()
    try:
        yield count
    finally:
        stopping.set()
        thread.join()


def moved(bootstrap: str, topic: str, count: int, movers: list[Mover]) -> list[list[int]]:
    """What a reader of committed records finds in each partition, once there are so many and the movers have nothing left to move.

    It begins while movers still commit and abort, and must find what one finds that begins when all is over.
    """
    found: list[list[int]] = [[] for _ in range(PARTITIONS)]
    looks = 0  # In a row that found nothing new.
    with Consumer(topics=[topic], bootstrap=bootstrap) as consumer:

        def look() -> int:
            """Returns how many were found, in all."""
            for message in consumer.poll(timeout=ASK_S):
                found[message.partition].append(int(message.value or b"-1"))
            return sum(map(len, found))

        while sum(map(len, found)) < count or not has_moved_all(bootstrap, count):
            before = sum(map(len, found))
            looks = 0 if look() > before else looks + 1
            if looks == LOOKS_BEFORE_REST:
                movers[0].rest()
            for mover in movers:
                mover.look_after()
            assert looks < LOOKS_MAX, f"{[len(each) for each in found]} of {count} came\n{story(bootstrap, movers)}"
        until(lambda: is_settled(bootstrap, topic), "no transaction is open: one of a mover that lost its part ends by abort")
        found_anew = [numbers_in(bootstrap, topic, partition) for partition in range(PARTITIONS)]
        until(lambda: look() >= sum(map(len, found_anew)), lambda: f"it finds as many as one that begins anew, {found} and {found_anew}")
    assert found == found_anew
    return found


def is_settled(bootstrap: str, topic: str) -> bool:
    """Whether all that was written is committed or aborted."""

    def ends(isolation: str) -> list[int]:
        with librdkafka.consumer(bootstrap, isolation_level=isolation) as reader:
            places = [TopicPartition(topic, partition) for partition in range(PARTITIONS)]
            return [reader.get_watermark_offsets(place, timeout=PATIENCE_S)[1] for place in places]

    return ends("read_committed") == ends("read_uncommitted")


def numbers_in(bootstrap: str, topic: str, partition: int) -> list[int]:
    """What a reader of committed records finds up to the end."""
    records = librdkafka.read_to_end(bootstrap, topic, partition, isolation_level="read_committed")
    return [int(record.value() or b"-1") for record in records]


def has_moved_all(bootstrap: str, count: int) -> bool:
    """Whether the movers have committed the end of the source: nothing of it can be moved once more."""
    careful = LibraryConsumer({"bootstrap.servers": bootstrap, "group.id": GROUP, "isolation.level": "read_committed"})
    try:
        places = careful.committed([TopicPartition("from", partition) for partition in range(PARTITIONS)], timeout=PATIENCE_S)
        return sum(max(0, place.offset) for place in places) >= count
    finally:
        careful.close()


def story(bootstrap: str, movers: list[Mover]) -> str:
    """What an operator would look at."""
    asked = [["transactions", "list"], *(["transactions", "describe", f"mover-{number}"] for number in range(2))]
    asked += [["groups", "describe", GROUP], ["groups", "members", GROUP], ["transactions", "list", "--hanging"]]
    told = [penstock(*each, "--bootstrap", bootstrap) for each in asked]
    careful = LibraryConsumer({"bootstrap.servers": bootstrap, "group.id": GROUP, "isolation.level": "read_committed"})
    for partition in range(PARTITIONS):
        try:
            (place,) = careful.committed([TopicPartition("from", partition)], timeout=ASK_S)
            told.append(Ended(0, f"from-{partition} is stable: {place}", ""))
        except KafkaException as failure:
            told.append(Ended(1, "", f"from-{partition} is not stable: {failure}"))
    careful.close()
    return "\n".join([*(ended.out + ended.err for ended in told), *(f"{mover.words} {mover.says()}" for mover in movers)])


@pytest.mark.repeats
@both
def test_each_record_has_its_effect_once_whoever_dies(tmp_path: Path, rounds: int) -> None:
    rng = random.Random(f"movers {rounds}")
    with Cluster(tmp_path, settings=SETTINGS) as cluster:
        needs_announced(cluster.members[0].bootstrap, "transactions")
        source, target = (librdkafka.make_topic(cluster.bootstrap, name, PARTITIONS, **SAFE) for name in ("from", "to"))
        movers = [Mover(cluster, number, source, target, rng) for number in range(2)]
        try:
            with writing(cluster.bootstrap, source, per_second=PER_SECOND) as count:
                for kind in drawn(rng, ["mover", "mover", "node", "pause"], rounds):
                    more = count[0] + 25
                    until(lambda more=more: count[0] >= more, "the load runs")
                    pause_at_random(rng, 0, 1.2)
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
        assert count[0] >= rounds * 25
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
        pause_at_random(rng, 0, 0.6)
        node.start()
    else:
        node.pause()
        until(lambda: node.node_id not in cluster.view().brokers, "its session is over")
        node.go_on()
