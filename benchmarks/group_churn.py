"""Who pauses when members come and go? One group per protocol, confluent-kafka's consumers, records on every partition all the time.

A member joins or leaves every few seconds. Of each such change a partition's pause is the longest time within the following seconds
in which nobody read a record of it; the partition moved if another member read it afterwards than before. Under the new protocol, as under
the classic cooperative one, only partitions that change hands should pause; under the eager one everything does. The protocols take turns
on one node in one run, with the same load. A pause has two parts that no broker can shorten: records come every `--every-ms`, and a
member polls.
"""

import argparse
import shutil
import statistics
import tempfile
import threading
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from benchmarks.machine import described, header
from benchmarks.processes import Broker
from benchmarks.subjects import penstock
from benchmarks.tables import ms, quantile, table

TOPIC = "load"
POLL_S = 0.02
CLASSIC: dict[str, str | int] = {"group.protocol": "classic", "session.timeout.ms": 10_000}
PROTOCOLS: dict[str, dict[str, str | int]] = {
    "classic, eager (range)": CLASSIC | {"partition.assignment.strategy": "range"},
    "classic, cooperative": CLASSIC | {"partition.assignment.strategy": "cooperative-sticky"},
    "new (consumer)": {"group.protocol": "consumer"},
}


@dataclass
class Readings:
    """Of each partition who read it and when, in order of time."""

    by_partition: dict[int, list[tuple[float, str]]] = field(default_factory=lambda: defaultdict(list))

    def note(self, partition: int, member: str) -> None:
        self.by_partition[partition].append((time.perf_counter(), member))

    def pause(self, partition: int, begin: float, end: float) -> tuple[float, bool]:
        """The longest time without a record between two moments, and whether the partition has another reader after it."""
        readings = self.by_partition[partition]
        before = [member for at, member in readings if at < begin]
        inside = [(at, member) for at, member in readings if begin <= at < end]
        moments = [begin, *(at for at, _ in inside), end]
        longest = max(later - earlier for earlier, later in pairwise(moments))
        return longest, not before or not inside or before[-1] != inside[-1][1]


class Member(threading.Thread):
    def __init__(self, name: str, options: dict[str, str | int], readings: Readings) -> None:
        super().__init__(name=name, daemon=True)
        self._options = options
        self._readings = readings
        self._is_leaving = threading.Event()
        self.start()

    def run(self) -> None:
        consumer = Consumer(self._options)
        consumer.subscribe([TOPIC])
        while not self._is_leaving.is_set():
            for message in consumer.consume(500, POLL_S):
                if message.error() is None:
                    self._readings.note(message.partition(), self.name)
        consumer.close()

    def leave(self) -> None:
        self._is_leaving.set()
        self.join()


@contextmanager
def records(port: int, partitions: int, every_s: float) -> Iterator[None]:
    """A record on each partition at every tick."""
    ended = threading.Event()

    def send() -> None:
        producer = Producer({"bootstrap.servers": f"127.0.0.1:{port}", "linger.ms": 1, "acks": 1})
        due = time.perf_counter()
        while not ended.wait(max(0.0, due - time.perf_counter())):
            for partition in range(partitions):
                producer.produce(TOPIC, b"x", partition=partition)
            producer.poll(0)
            due += every_s
        producer.flush()

    sender = threading.Thread(target=send, daemon=True)
    sender.start()
    try:
        yield
    finally:
        ended.set()
        sender.join()


def churned(port: int, protocol: str, options: argparse.Namespace) -> tuple[list[float], list[float]]:
    """The pauses of partitions that moved and of those that stayed, over all changes."""
    readings = Readings()
    common: dict[str, str | int] = {"bootstrap.servers": f"127.0.0.1:{port}", "group.id": protocol, "auto.offset.reset": "latest"}
    names = iter(f"m{at}" for at in range(10_000))

    def join() -> Member:
        return Member(next(names), common | PROTOCOLS[protocol], readings)

    members = [join() for _ in range(options.members)]
    time.sleep(options.settle_s * 2)
    moved, stayed = [], []
    for change in range(options.changes):
        begin = time.perf_counter()
        if change % 2:
            members.pop(0).leave()
        else:
            members.append(join())
        time.sleep(max(0.0, begin + options.settle_s - time.perf_counter()))
        for partition in range(options.partitions):
            longest, has_moved = readings.pause(partition, begin, begin + options.settle_s)
            (moved if has_moved else stayed).append(longest)
    for member in members:
        member.leave()
    return moved, stayed


def row(protocol: str, kind: str, pauses: list[float], changes: int) -> list[str]:
    if not pauses:
        return [f"{protocol}: {kind}", "0", "-", "-", "-"]
    ordered = sorted(pauses)
    figures = [ms(value) for value in (statistics.median(ordered), quantile(ordered, 0.99), ordered[-1])]
    return [f"{protocol}: {kind}", f"{len(ordered) / changes:.1f}", *figures]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--partitions", type=int, default=24)
    parser.add_argument("--members", type=int, default=4)
    parser.add_argument("--changes", type=int, default=10)
    parser.add_argument("--settle-s", type=float, default=8.0, help="between two changes; heartbeats of the new protocol are 5 s apart")
    parser.add_argument("--every-ms", type=float, default=50.0)
    options = parser.parse_args()
    directory = Path(tempfile.mkdtemp(prefix="group-churn-"))
    rows = []
    print(header("Pauses when members of a group change", described(directory, "longest pause of each partition after a change")))
    try:
        with Broker(penstock(directory / "data")) as broker:
            admin = AdminClient({"bootstrap.servers": f"127.0.0.1:{broker.port}"})
            admin.create_topics([NewTopic(TOPIC, options.partitions, 1)])[TOPIC].result(30)
            with records(broker.port, options.partitions, options.every_ms / 1_000):
                for protocol in PROTOCOLS:
                    moved, stayed = churned(broker.port, protocol, options)
                    rows += [row(protocol, "moved", moved, options.changes), row(protocol, "stayed", stayed, options.changes)]
    finally:
        shutil.rmtree(directory, ignore_errors=True)
    print(table(["partitions", "per change", "pause ms p50", "p99", "worst"], rows))


if __name__ == "__main__":
    main()
