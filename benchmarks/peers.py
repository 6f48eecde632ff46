"""`make bench-peers`: the same steps against Apache Kafka in the same run, for each flush mode of both.

Every step is measured in turns, A-B-A-B: each subject once, then each once again, and the medians are compared. Kafka gets a longer
warm-up first, because a JVM that has just started is not what anybody runs.
"""

import argparse
import sys
from contextlib import ExitStack
from pathlib import Path

from benchmarks.figures import Goal, Measure, Ratio
from benchmarks.kafka import peer
from benchmarks.processes import Broker, Command
from benchmarks.report import Report, arguments_of, working_directory
from benchmarks.run import ACK, INTERVAL, OS, QUICK
from benchmarks.steps import IDLE_MEMORY, START, Plan, idle_partitions, start_up
from benchmarks.subjects import FLUSH_ACK, FLUSH_INTERVAL, FLUSH_OS, ROOT, Subject, penstock

KAFKA, KAFKA_FLUSH = "Kafka", "Kafka flush.messages=1"
KAFKA_WARM_UP = Plan(warm_up_s=0.0, seconds=2.0)

SAFE, FAST = Ratio(ACK, KAFKA), Ratio(OS, KAFKA)
SAFE_AND_SAFE = Ratio(ACK, KAFKA_FLUSH)


def goals() -> list[Goal]:
    sizes = ("16 KB", "64 KB", "900 KB")
    return [
        *(Goal(Measure(f"produce {size} batches", "msg/s"), SAFE, 1.0, True) for size in sizes),
        Goal(Measure("one record, 50 in flight", "requests/s"), SAFE, 1.0, True),
        *(Goal(Measure(f"fetch {size} batches", "msg/s"), SAFE, 0.8, True) for size in sizes),
        *(Goal(Measure(f"produce {size} batches", "msg/s"), FAST, 2.0, True) for size in sizes),
        Goal(START, SAFE, 0.25, False),
        Goal(IDLE_MEMORY, SAFE, 0.25, False),
    ]


def main() -> None:
    arguments = arguments_of(__doc__, [("--rounds", {"type": int, "default": 2, "help": "turns of each subject per step"})])
    try:
        libraries = peer.install(ROOT / ".cache")
    except peer.PeerMissing as missing:
        sys.exit(f"bench-peers: {missing}")
    plan = QUICK if arguments.quick else Plan()
    with working_directory(arguments.data_dir) as directory:
        report = Report(f"Penstock beside Apache Kafka {peer.VERSION}", directory)

        def kafka(data_dir: Path) -> Command:
            return peer.command(libraries, data_dir)

        report.take(ACK, start_up(penstock, directory, plan))
        report.take(KAFKA, start_up(kafka, directory, plan))
        _take_turns(report, directory, kafka(directory / "kafka"), plan, arguments)
        report.take(ACK, idle_partitions(penstock(directory / "idle-penstock"), plan))
        report.take(KAFKA, idle_partitions(kafka(directory / "idle-kafka"), plan))
    report.sections += [report.figures.goals_table(goals()), "", report.figures.table([SAFE, FAST, SAFE_AND_SAFE])]
    report.write(arguments)


def _take_turns(report: Report, directory: Path, kafka: Command, plan: Plan, arguments: argparse.Namespace) -> None:
    with ExitStack() as running:
        node = running.enter_context(Broker(penstock(directory / "penstock")))
        other = running.enter_context(Broker(kafka))
        subjects = [
            Subject(ACK, node, FLUSH_ACK),
            Subject(KAFKA, other),
            Subject(OS, node, FLUSH_OS),
            Subject(KAFKA_FLUSH, other, {"flush.messages": "1"}),
            Subject(INTERVAL, node, FLUSH_INTERVAL),
        ]
        for step in [] if arguments.quick else KAFKA_WARM_UP.steps():
            for _ in step(Subject(KAFKA, other)):
                pass
        for step in plan.steps():
            for _ in range(arguments.rounds):
                for subject in subjects:
                    report.take(subject.name, step(subject))
        for name, broker in ((ACK, node), (KAFKA, other)):
            report.take(name, iter([(Measure("memory, highest under load", "MB"), broker.memory_peak_bytes() / 1e6)]))


if __name__ == "__main__":
    main()
