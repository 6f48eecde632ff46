"""What is measured, one step at a time: each makes its own topic, loads it, and deletes it.

A step yields (measure, value) pairs. The measures' names are the same for every broker, so that rows line up.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from benchmarks.figures import Measure
from benchmarks.load import frames
from benchmarks.load.connection import Connection
from benchmarks.processes import Broker, Command, settle
from benchmarks.subjects import Subject

BATCH_BYTES = (16 << 10, 64 << 10, 900_000)
PARTITIONS = 6
ONE_RECORD_SHAPES = ((1, 1), (10, 5), (100, 5))  # Connections, requests in flight on each.
RATES = (1_000, 5_000)
ACTIVE_PARTITIONS = ((6, 6), (100, 10), (1_000, 10))  # Partitions, connections; every request carries one record to each of its share.
IDLE_PARTITIONS = 2_000
_PARTITIONS_PER_REQUEST = 100

START = Measure("start to first reply", "s")
IDLE_MEMORY = Measure("memory, idle", "MB")

Pairs = Iterator[tuple[Measure, float]]
Step = Callable[[Subject], Pairs]


@dataclass(frozen=True, slots=True)
class Plan:
    """How long to measure. Ratios need seconds; a smoke test does not."""

    warm_up_s: float = 1.0
    seconds: float = 4.0
    idle_s: float = 5.0
    starts: int = 3

    def steps(self) -> list[Step]:
        return [
            *(self._batches(size) for size in BATCH_BYTES),
            *(self._one_record(connections, depth) for connections, depth in ONE_RECORD_SHAPES),
            *(self._end_to_end(rate) for rate in RATES),
            *(self._active(partitions, connections) for partitions, connections in ACTIVE_PARTITIONS),
        ]

    def _batches(self, size: int) -> Step:
        title = f"{size // 1000 if size % 1024 else size // 1024} KB batches"

        def step(subject: Subject) -> Pairs:
            with _topic(subject, PARTITIONS) as topic:
                produced = self._load(subject, "produce", topic, batch_bytes=size)
                yield from _throughput(f"produce {title}", produced)
                yield Measure(f"produce {title}, p99", "ms"), produced["p99_s"] * 1e3
                settle()
                yield from _throughput(f"fetch {title}", self._load(subject, "fetch", topic, batch_bytes=size))

        return step

    def _one_record(self, connections: int, depth: int) -> Step:
        title = f"one record, {connections * depth} in flight"

        def step(subject: Subject) -> Pairs:
            with _topic(subject, PARTITIONS) as topic:
                answer = self._load(subject, "produce", topic, connections=connections, depth=depth)
                yield Measure(title, "requests/s"), answer["requests_per_s"]
                yield from _quantiles(title, answer, "p50", "p99")
                yield from _shares(title, answer)

        return step

    def _end_to_end(self, rate: int) -> Step:
        title = f"end to end at {rate:,}/s"

        def step(subject: Subject) -> Pairs:
            with _topic(subject, 1) as topic:
                answer = self._load(subject, "end-to-end", topic, rate=rate)
                yield from _quantiles(title, answer, "p50", "p99", "p99.9")
                yield from _shares(title, answer)

        return step

    def _active(self, partitions: int, connections: int) -> Step:
        title = f"acks=all, {partitions:,} active partitions"

        def step(subject: Subject) -> Pairs:
            with _topic(subject, partitions) as topic:
                _prime(subject.broker.port, topic, partitions)
                share = partitions // connections
                shape = {"partitions": partitions, "partitions_per_request": share, "connections": connections, "depth": 1}
                answer = self._load(subject, "produce", topic, **shape)
                yield from _quantiles(title, answer, "p50", "p99")
                yield Measure(title, "records/s"), answer["records_per_s"]
                yield from _shares(title, answer)

        return step

    def _load(self, subject: Subject, kind: str, topic: str, **options: int) -> dict[str, float]:
        return subject.load(kind, topic, warm_up_s=self.warm_up_s, seconds=self.seconds, **options)


def start_up(make_command: Callable[[Path], Command], directory: Path, plan: Plan) -> Pairs:
    """On an empty directory, several times; then the memory of the last one after a few idle seconds."""
    for number in range(plan.starts):
        command = make_command(directory / f"start-{number}")
        with Broker(command) as broker:
            yield START, broker.start_s
            if number == plan.starts - 1:
                time.sleep(plan.idle_s)
                yield IDLE_MEMORY, broker.memory_bytes() / 1e6
        broker.delete_data()


def idle_partitions(command: Command, plan: Plan) -> Pairs:
    """Many partitions that hold one record each and are left alone: what they cost, and what a start with them costs."""
    title = f"{IDLE_PARTITIONS:,} idle partitions"
    with Broker(command) as broker:
        subject = Subject(command.name, broker)
        began = time.perf_counter()
        subject.admin().create("idle", IDLE_PARTITIONS, {})
        yield Measure(f"{title}, created in", "s"), time.perf_counter() - began
        _write_one_record_to_each(broker.port, "idle", IDLE_PARTITIONS)
        time.sleep(plan.idle_s)
        began, cpu_began = time.perf_counter(), broker.cpu_s()
        time.sleep(plan.idle_s)
        yield Measure(f"{title}, CPU", "% of a core"), 100 * (broker.cpu_s() - cpu_began) / (time.perf_counter() - began)
        yield Measure(f"{title}, open", "files"), broker.open_files()
        yield Measure(f"{title}, memory", "MB"), broker.memory_bytes() / 1e6
        yield Measure(f"{title}, stop", "s"), broker.stop()
    began = time.perf_counter()
    with Broker(command) as broker:
        yield Measure(f"{title}, start to first reply", "s"), broker.start_s
        Subject(command.name, broker).admin().end_offsets("idle", IDLE_PARTITIONS)
        yield Measure(f"{title}, start until all answer", "s"), time.perf_counter() - began
        yield Measure(f"{title}, open after start", "files"), broker.open_files()
    broker.delete_data()


@contextmanager
def _topic(subject: Subject, partitions: int) -> Iterator[str]:
    topic = f"bench-{time.monotonic_ns()}"
    admin = subject.admin()
    admin.create(topic, partitions, subject.topic_configs)
    settle()
    try:
        yield topic
    finally:
        admin.delete(topic)
        admin.close()


def _throughput(title: str, answer: dict[str, float]) -> Pairs:
    yield Measure(title, "msg/s"), answer["records_per_s"]
    yield Measure(title, "MB/s"), answer["bytes_per_s"] / 1e6
    yield from _shares(title, answer)


def _quantiles(title: str, answer: dict[str, float], *names: str) -> Pairs:
    for name in names:
        yield Measure(f"{title}, {name}", "ms"), answer[f"{name.replace('.', '')}_s"] * 1e3


def _shares(title: str, answer: dict[str, float]) -> Pairs:
    yield Measure(title, GENERATOR_CPU), 100 * answer["generator_cpu"]
    yield Measure(title, BROKER_CPU), 100 * answer["broker_cpu"]


GENERATOR_CPU = "% of a core, generator"
BROKER_CPU = "% of a core, broker"
CPU_A_ROW = "µs of CPU a row"  # And whose.


def _prime(port: int, topic: str, partitions: int) -> None:
    """The first record of a partition may cost more than others, and may cost it later: Kafka's epoch files, for one, are flushed
    behind its back and hold up what comes next. So each partition is written to twice, with a moment between, before the clock starts.
    """
    _write_one_record_to_each(port, topic, partitions)
    time.sleep(1.0)
    _write_one_record_to_each(port, topic, partitions)


def _write_one_record_to_each(port: int, topic: str, partitions: int) -> None:
    connection = Connection("127.0.0.1", port, receive_bytes=1 << 20)
    batch = frames.one_batch(1, time.time_ns() // 1_000_000)
    for first in range(0, partitions, _PARTITIONS_PER_REQUEST):
        group = range(first, min(partitions, first + _PARTITIONS_PER_REQUEST))
        frames.check_produced(connection.ask(frames.produce(topic, group, batch, correlation_id=0)), topic, len(group), 0)
    connection.close()
