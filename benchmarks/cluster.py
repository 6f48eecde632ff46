"""`make bench-cluster`: three nodes, replication factor 3 beside 1, and beside three nodes of Apache Kafka, in one run.

Every step is measured in turns, A-B-A-B, so that what changes on the machine meanwhile changes for all; medians are compared. All of it
shares this machine's cores and its one disk: ratios are what it can tell, and a cluster on three machines is another thing.
Afterwards the end-to-end latency through librdkafka with linger 5 ms, and a burst of three times the rate that must drain unrefused.
"""

import argparse
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass

from benchmarks.clusters import NODES, ClusterSubject, RunningCluster, penstock_cluster
from benchmarks.figures import Goal, Measure, Ratio
from benchmarks.kafka import peer
from benchmarks.report import Report, arguments_of, working_directory
from benchmarks.steps import BATCH_BYTES, BROKER_CPU, GENERATOR_CPU, Pairs
from benchmarks.subjects import FLUSH_ACK, FLUSH_OS, ROOT

ACK_3, OS_3 = "Penstock RF 3", "Penstock RF 3 os"
ACK_1, OS_1 = "Penstock RF 1", "Penstock RF 1 os"
KAFKA_3, KAFKA_1 = "Kafka RF 3", "Kafka RF 1"
SAFE, FAST, COST, KAFKA_COST = Ratio(ACK_3, KAFKA_3), Ratio(OS_3, KAFKA_3), Ratio(ACK_3, ACK_1), Ratio(KAFKA_3, KAFKA_1)
PARTITIONS = 6
MIN_INSYNC = {"min.insync.replicas": "2"}
ONE_RECORD_SHAPES = ((1, 1), (5, 5))  # Connections to each of three nodes, requests in flight on each.
END_TO_END_RATE = 1_000.0
BURST_RATE = 3_000.0

Step = Callable[[ClusterSubject], Pairs]


@dataclass(frozen=True, slots=True)
class Plan:
    warm_up_s: float = 1.0
    seconds: float = 4.0
    burst_s: float = 600.0

    def steps(self) -> list[Step]:
        return [*(self._batches(size) for size in BATCH_BYTES), *(self._one_record(*shape) for shape in ONE_RECORD_SHAPES)]

    def _batches(self, size: int) -> Step:
        title = f"produce {size // 1000 if size % 1024 else size // 1024} KB batches"

        def step(subject: ClusterSubject) -> Pairs:
            answer = self._produce(subject, batch_bytes=size, connections=1)
            yield Measure(title, "msg/s"), answer["records_per_s"]
            yield Measure(title, "MB/s"), answer["bytes_per_s"] / 1e6
            yield from _p50_p99(title, answer, "")
            yield from _shares(title, answer)

        return step

    def _one_record(self, connections: int, depth: int) -> Step:
        title = f"one record, {NODES * connections * depth} in flight"

        def step(subject: ClusterSubject) -> Pairs:
            answer = self._produce(subject, connections=connections, depth=depth)
            yield Measure(title, "requests/s"), answer["requests_per_s"]
            yield from _p50_p99(title, answer, "")
            yield from _shares(title, answer)

        return step

    def _produce(self, subject: ClusterSubject, **shape: int) -> dict[str, float]:
        with subject.topic(PARTITIONS) as topic:
            return subject.load("produce", topic, partitions=PARTITIONS, warm_up=self.warm_up_s, seconds=self.seconds, **shape)

    def end_to_end(self, subject: ClusterSubject) -> Pairs:
        title = f"librdkafka, linger 5 ms, {END_TO_END_RATE:,.0f}/s"
        with subject.topic(PARTITIONS) as topic:
            answer = subject.through_librdkafka("end-to-end", topic, partitions=PARTITIONS, rate=END_TO_END_RATE, seconds=3 * self.seconds)
            yield from _p50_p99(f"{title}, end to end", answer, "read_")
            yield from _p50_p99(f"{title}, acknowledged", answer, "answer_")

    def burst(self, subject: ClusterSubject) -> Pairs:
        title = f"burst of {3 * BURST_RATE:,.0f}/s for {self.burst_s:.0f} s"
        with subject.topic(PARTITIONS) as topic:
            answer = subject.through_librdkafka("burst", topic, partitions=PARTITIONS, rate=BURST_RATE, seconds=self.burst_s)
            yield Measure(title, "records"), answer["sent"]
            yield Measure(title, "records refused"), answer["refused"]
            yield Measure(f"{title}, behind at its end", "records"), answer["lag_max"]
            yield Measure(f"{title}, drained in", "s"), answer["drained_s"]
            yield from _p50_p99(f"{title}, acknowledged", answer, "answer_")


def goals() -> list[Goal]:
    titles = [f"produce {size} batches" for size in ("16 KB", "64 KB", "900 KB")]
    return [
        *(Goal(Measure(title, "msg/s"), SAFE, 1.0, True) for title in titles),
        *(Goal(Measure(title, "msg/s"), FAST, 1.5, True) for title in titles),
        Goal(Measure("one record, 75 in flight", "requests/s"), SAFE, 1.0, True),
        Goal(Measure("one record, 75 in flight", "requests/s"), FAST, 1.5, True),
    ]


def main() -> None:
    arguments = arguments_of(__doc__, [
        ("--rounds", {"type": int, "default": 2, "help": "turns of each subject per step"}),
        ("--burst-seconds", {"type": float, "default": None, "help": "how long the burst lasts (default: 600, quick: 5)"}),
        ("--without-kafka", {"action": "store_true", "help": "only our own nodes"}),
        ("--burst-only", {"action": "store_true", "help": "only the burst, of our own nodes"}),
    ])  # fmt: skip
    plan = Plan(warm_up_s=0.5, seconds=1.5, burst_s=5.0) if arguments.quick else Plan()
    plan = Plan(plan.warm_up_s, plan.seconds, plan.burst_s if arguments.burst_seconds is None else arguments.burst_seconds)
    with working_directory(arguments.data_dir) as directory:
        report = Report(f"Three nodes beside three of Apache Kafka {peer.VERSION}", directory)
        with ExitStack() as running:
            ours = running.enter_context(RunningCluster("Penstock", penstock_cluster(directory / "ours")))
            subjects = list(_ours(ours))
            if not (arguments.without_kafka or arguments.burst_only):
                try:
                    commands = peer.cluster_commands(peer.install(ROOT / ".cache"), directory / "theirs")
                except peer.PeerMissing as missing:
                    sys.exit(f"bench-cluster: {missing}")
                subjects += _theirs(running.enter_context(RunningCluster("Apache Kafka", commands)))
            if not arguments.burst_only:
                _take_turns(report, plan, subjects, arguments)
            if plan.burst_s:  # Only of ours: it is a question of yes or no, and lasts.
                report.take(ACK_3, plan.burst(subjects[0]))
        report.sections += [] if arguments.burst_only else [report.figures.goals_table(goals()), ""]
        report.sections += [report.figures.table([] if arguments.burst_only else [SAFE, FAST, COST, KAFKA_COST])]
    report.write(arguments)


def _ours(cluster: RunningCluster) -> Iterator[ClusterSubject]:
    yield ClusterSubject(ACK_3, cluster, 3, FLUSH_ACK | MIN_INSYNC)
    yield ClusterSubject(OS_3, cluster, 3, FLUSH_OS | MIN_INSYNC)
    yield ClusterSubject(ACK_1, cluster, 1, FLUSH_ACK)
    yield ClusterSubject(OS_1, cluster, 1, FLUSH_OS)


def _theirs(cluster: RunningCluster) -> Iterator[ClusterSubject]:
    yield ClusterSubject(KAFKA_3, cluster, 3, MIN_INSYNC)
    yield ClusterSubject(KAFKA_1, cluster, 1)


def _take_turns(report: Report, plan: Plan, subjects: list[ClusterSubject], arguments: argparse.Namespace) -> None:
    replicated = [subject for subject in subjects if subject.replicas == NODES]
    if not arguments.quick:  # A JVM that has just started is not what anybody runs.
        for step in Plan(warm_up_s=0.0, seconds=2.0).steps():
            for subject in subjects:
                if subject.name == KAFKA_3:
                    list(step(subject))
    for step in plan.steps():
        for _ in range(arguments.rounds):
            for subject in subjects:
                report.take(subject.name, step(subject))
    for _ in range(arguments.rounds):
        for subject in replicated:
            report.take(subject.name, plan.end_to_end(subject))


def _p50_p99(title: str, answer: dict[str, float], prefix: str) -> Pairs:
    for name in ("p50", "p99"):
        yield Measure(f"{title}, {name}", "ms"), answer[f"{prefix}{name}_s"] * 1e3


def _shares(title: str, answer: dict[str, float]) -> Pairs:
    yield Measure(title, GENERATOR_CPU), 100 * answer["generator_cpu"]
    yield Measure(title, BROKER_CPU), 100 * answer["broker_cpu"]


if __name__ == "__main__":
    main()
