"""`make bench-pipeline`: the source and the sink for Spark, beside Spark's own Kafka connector and beside plain loops, in one run.

All of them take turns on the same topic of the same broker, in one Spark session (`local[2]`), first on a Penstock node and then on Apache
Kafka: the format is chosen by one word, and so is the broker. What was not timed before is run once before it is timed.
Without Maven there is neither Kafka nor the connector, and only ours is measured; without Java nothing is.
"""

import argparse
import sys
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path

from benchmarks.figures import Goal, Measure, Ratio
from benchmarks.kafka import connector, peer
from benchmarks.pipeline_spark import Meter, spark_session, why_not
from benchmarks.pipeline_steps import OURS, THEIRS, Bench, Shape, Step
from benchmarks.pipeline_topics import Place
from benchmarks.processes import Broker, settle
from benchmarks.report import Report, arguments_of, working_directory
from benchmarks.subjects import FLUSH_OS, ROOT, LoadFailed, penstock

SOURCE, NARROW, CONNECTOR, LOOP = "penstock", "penstock, two columns", "Spark's connector", "plain loop"
AT_LEAST_ONCE, SPARK_ALONE = "penstock, at least once", "Spark alone"
NODE, KAFKA = "Penstock", "Kafka"
BESIDE_CONNECTOR, BESIDE_LOOP = Ratio(SOURCE, CONNECTOR), Ratio(SOURCE, LOOP)
NARROW_SCHEMA = "value binary, offset long"


@dataclass(frozen=True, slots=True)
class Plan:
    reads: tuple[Shape, ...] = (Shape(100, 1, 5_000_000), Shape(100, 2, 5_000_000), Shape(1_000, 1, 1_000_000), Shape(1_000, 2, 1_000_000))
    writes: tuple[Shape, ...] = (Shape(100, 2, 2_000_000), Shape(1_000, 2, 500_000))
    micro_batches: int = 50
    growth: tuple[int, ...] = (1_000_000, 10_000_000, 50_000_000)
    rounds: int = 3


QUICK = Plan((Shape(100, 2, 200_000),), (Shape(100, 2, 100_000),), 10, (100_000, 400_000), 1)


def goals(plan: Plan, places: list[str]) -> list[Goal]:
    return [Goal(Measure(f"{place}: read {shape}", "rows/s"), BESIDE_CONNECTOR, 1.5, True) for place in places for shape in plan.reads]


def main() -> None:
    wishes = ("--where-possible", {"action": "store_true", "help": "end well where Spark cannot run"})
    arguments = arguments_of(__doc__, [wishes, ("--only", {"choices": ["read", "write", "stream", "growth"], "help": "one part alone"})])
    if reason := why_not():
        print(f"bench-pipeline: {reason}", file=sys.stderr)
        sys.exit(0 if arguments.where_possible else 1)
    plan = QUICK if arguments.quick else Plan()
    with working_directory(arguments.data_dir) as directory, ExitStack() as running:
        report = Report("The pipeline beside Spark's own connector", directory, "broker and Spark (`local[2]`) share the machine")
        jars, libraries = _peers(report)
        brokers = {NODE: running.enter_context(Broker(penstock(directory / "penstock")))}
        if libraries:
            brokers[KAFKA] = running.enter_context(Broker(peer.command(libraries, directory / "kafka")))
        spark = running.enter_context(spark_session(jars))
        for name, broker in brokers.items():
            place = Place(name, broker, FLUSH_OS if name == NODE else {})
            bench = Bench(spark, place, Meter(spark, broker.pid))
            _Run(report, bench, plan, has_connector=bool(jars)).all(arguments, directory)
    report.sections += [f"Spark's Kafka connector {connector.VERSION}, Apache Kafka {peer.VERSION}; rows have 8-byte keys.", ""]
    if jars and arguments.only in (None, "read"):
        report.sections += [report.figures.goals_table(goals(plan, list(brokers))), ""]
    report.sections += [report.figures.table([BESIDE_CONNECTOR, BESIDE_LOOP])]
    report.write(arguments)


def _peers(report: Report) -> tuple[list[Path], Path | None]:
    try:
        return connector.install(ROOT / ".cache"), peer.install(ROOT / ".cache")
    except peer.PeerMissing as missing:
        report.failures.append(str(missing))
        print(f"  only Penstock's own is measured: {missing}", file=sys.stderr)
        return [], None


class _Run:
    """Everything that is measured on one broker."""

    def __init__(self, report: Report, bench: Bench, plan: Plan, *, has_connector: bool) -> None:
        self._report = report
        self._bench = bench
        self._plan = plan
        self._has_connector = has_connector

    def all(self, arguments: argparse.Namespace, directory: Path) -> None:
        if arguments.only in (None, "read"):
            for shape in self._plan.reads:
                self._reads(shape)
        if arguments.only in (None, "write"):
            for shape in self._plan.writes:
                self._writes(shape)
        if arguments.only in (None, "stream"):
            self._streams(directory / f"checkpoints-{self._bench.place.name}")
        if arguments.only in (None, "growth") and self._bench.place.name == NODE:
            self._report.take(SOURCE, self._bench.growth(list(self._plan.growth), partitions=2, value_bytes=100))

    def _reads(self, shape: Shape) -> None:
        bench = self._bench
        with bench.place.filled(partitions=shape.partitions, rows=shape.rows, value_bytes=shape.value_bytes) as topic:
            settle()
            steps: dict[str, Step] = {
                SOURCE: lambda: bench.read(topic, shape, bench.frame(OURS, topic)),
                NARROW: lambda: bench.read(topic, shape, bench.frame(OURS, topic, NARROW_SCHEMA)),
                LOOP: lambda: bench.consume(topic, shape),
            }
            if self._has_connector:
                steps[CONNECTOR] = lambda: bench.read(topic, shape, bench.frame(THEIRS, topic))
            self._take_turns(steps)

    def _writes(self, shape: Shape) -> None:
        bench = self._bench
        steps: dict[str, Step] = {
            SOURCE: lambda: bench.write(shape, OURS, {}),
            AT_LEAST_ONCE: lambda: bench.write(shape, OURS, {"deliver": "at-least-once"}),
            LOOP: lambda: bench.produce(shape),
            SPARK_ALONE: lambda: bench.write(shape, None, {}),
        }
        if self._has_connector:
            steps[CONNECTOR] = lambda: bench.write(shape, THEIRS, {})
        self._take_turns(steps)

    def _streams(self, checkpoints: Path) -> None:
        forms = [(SOURCE, OURS)] + ([(CONNECTOR, THEIRS)] if self._has_connector else [])
        for turn in range(self._plan.rounds):
            for subject, form in forms:
                for sink in (None, form):
                    checkpoint = checkpoints / f"{form}-{sink}-{turn}"
                    self._report.take(subject, self._bench.micro_batches(form, sink, checkpoint, self._plan.micro_batches))

    def _take_turns(self, steps: dict[str, Step]) -> None:
        for step in steps.values():  # Compiles what the JVM compiles; what it fails of, the timed rounds tell.
            with suppress(LoadFailed):
                for _ in step():
                    pass
        for _ in range(self._plan.rounds):
            for subject, step in steps.items():
                self._report.take(subject, step())


if __name__ == "__main__":
    main()
