"""`make bench-queues`: how many messages a second do queues carry, and how soon? Beside moto and ElasticMQ, in the same run.

The same raw requests go to all of them. Each shape is measured for every server before the next one begins, so that what changes on the
machine meanwhile changes for all. Penstock answers when a message, a lease and a deletion are flushed to the disk; the others keep all in
memory, except for ElasticMQ on disk, which leaves it to its database. With --alone the foreign ones are left out, and nothing is fetched.
Then: share groups, messages at a fixed rate through each door, and the ledger by itself.
"""

import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from benchmarks import ledger, moto
from benchmarks.elasticmq import peer as elasticmq
from benchmarks.figures import Goal, Measure, Ratio, shown
from benchmarks.flush_probe import FlushProbe
from benchmarks.kafka.peer import PeerMissing
from benchmarks.processes import START_S_MAX, Broker, Command, free_port, settle
from benchmarks.queue_load.talk import answers_http
from benchmarks.report import Report, arguments_of, working_directory
from benchmarks.steps import BROKER_CPU, GENERATOR_CPU, Pairs
from benchmarks.subjects import ROOT, run_generator
from benchmarks.tables import table

PENSTOCK, MOTO, ELASTICMQ, ELASTICMQ_DISK = "Penstock", "moto", "ElasticMQ", "ElasticMQ on disk"
BESIDE_MOTO, BESIDE_ELASTICMQ, BESIDE_DISK = Ratio(PENSTOCK, MOTO), Ratio(PENSTOCK, ELASTICMQ), Ratio(PENSTOCK, ELASTICMQ_DISK)
VERBS = ("send", "receive", "delete", "life")
SHAPES = ((1, 1), (1, 4), (1, 16), (10, 1), (10, 4), (10, 16))  # Messages in a call, connections.
SHARE_SHAPES = ((10, 1), (10, 4), (500, 1), (500, 4))
RATES = (100, 1_000)
P50_MS_MAX, P99_MS_MAX = 10.0, 100.0
FINISHED_JOBS, LOAD_S_MAX = 10_000_000, 5.0
LOAD = "server and generator share the machine; generator on loopback, bodies of 100 characters, one partition"


@dataclass(frozen=True, slots=True)
class Plan:
    warm_up_s: float = 0.3
    seconds: float = 1.0
    pace_s: float = 4.0
    shapes: Sequence[tuple[int, int]] = SHAPES
    share_shapes: Sequence[tuple[int, int]] = SHARE_SHAPES
    rates: Sequence[int] = RATES
    ledger_messages: int = 200_000
    finished_jobs: int = FINISHED_JOBS


QUICK = Plan(0.1, 0.3, 1.0, ((1, 4), (10, 4)), ((500, 1),), (100,), 20_000, 100_000)


@dataclass(frozen=True, slots=True)
class Server:
    name: str
    broker: Broker
    http_port: int

    def load(self, kind: str, *, warm_up_s: float, seconds: float, is_kafka: bool = False, **options: object) -> dict[str, float]:
        flags = [part for name, value in options.items() for part in (f"--{name}", str(value))]
        flags += ["--port", str(self.broker.port if is_kafka else self.http_port), "--broker-pid", str(self.broker.pid)]
        flags += ["--warm-up", str(warm_up_s), "--seconds", str(seconds)]
        return run_generator(f"{self.name}, {kind} {options}", "benchmarks.queue_load", [kind, *flags])


def main() -> None:
    extra: list[tuple[str, dict[str, object]]] = [
        ("--alone", {"action": "store_true", "help": "only Penstock: nothing foreign is fetched or started"}),
        ("--rounds", {"type": int, "default": 2, "help": "turns of each server per shape"}),
        ("--paces", {"type": int, "default": 3, "help": "turns of each door at each fixed rate"}),
    ]
    arguments = arguments_of(__doc__, extra)
    plan = QUICK if arguments.quick else Plan()
    with working_directory(arguments.data_dir) as directory, ExitStack() as running:
        report = Report("Queues" if arguments.alone else "Queues beside moto and ElasticMQ", directory, LOAD)
        servers = [_started_penstock(running, directory)]
        if not arguments.alone:
            servers += _started_peers(running, directory, report)
        for shape in plan.shapes:
            for _ in range(1 if arguments.quick else arguments.rounds):
                for server in servers:
                    report.take(server.name, _rates(server, plan, *shape))
        for rate in plan.rates:
            for _ in range(1 if arguments.quick else arguments.paces):
                for server in servers:
                    report.take(server.name, _pace(server, plan, "sqs", rate, directory))
                for door in ("python", "share"):
                    report.take(PENSTOCK, _pace(servers[0], plan, door, rate, directory))
        for shape in plan.share_shapes:
            report.take(PENSTOCK, _shares(servers[0], plan, *shape))
        report.take(PENSTOCK, iter([(Measure("memory, highest", "MB"), servers[0].broker.memory_peak_bytes() / 1e6)]))
    report.take(PENSTOCK, _ledger(plan))
    _tell(report, plan)
    report.write(arguments)


def goals(plan: Plan) -> list[Goal]:
    """With several connections: over a single one, a server that flushes each answer is measured by its disk."""
    measures = [Measure(_title(verb, *shape), "msg/s") for shape in plan.shapes if shape[1] > 1 for verb in VERBS]
    return [Goal(each, pair, bound, True) for pair, bound in ((BESIDE_MOTO, 10.0), (BESIDE_ELASTICMQ, 1.0)) for each in measures]


def _tell(report: Report, plan: Plan) -> None:
    pairs = [pair for pair in (BESIDE_MOTO, BESIDE_ELASTICMQ, BESIDE_DISK) if pair.base in report.figures.subjects()]
    report.sections += [report.figures.table(pairs), "", promises_table(report, plan)]
    if pairs:
        report.sections += ["", report.figures.goals_table([goal for goal in goals(plan) if goal.ratio in pairs])]


def promises_table(report: Report, plan: Plan) -> str:
    """Goals that are figures, not ratios."""
    wanted = [
        (Measure(f"{door} at {rate:,}/s, {name}", "ms"), bound)
        for rate in plan.rates
        for door in DOORS.values()
        for name, bound in (("p50", P50_MS_MAX), ("p99", P99_MS_MAX))
    ]
    wanted.append((Measure(f"loading {plan.finished_jobs:,} finished jobs", "s"), LOAD_S_MAX))
    rows = []
    for measure, bound in wanted:
        rounds = report.figures.rounds(PENSTOCK, measure)
        value = report.figures.value(PENSTOCK, measure)
        if value is None and rounds:  # They differ tenfold: the worst must meet the goal.
            value = max(rounds)
        verdict = "not measured" if value is None else "met" if value <= bound else "missed"
        rows.append([str(measure), f"≤ {bound:g}", shown(rounds, measure.unit), verdict])
    return table(["", "goal", "reached", ""], rows)


# What is measured


DOORS = {"sqs": "SQS API", "python": "Python client", "share": "share group"}


def _title(verb: str, batch: int, connections: int) -> str:
    what = "one by one" if batch == 1 else f"by {batch}"
    verb = "send, receive and delete" if verb == "life" else verb
    return f"{verb} {what}, {connections} connection{'s' if connections > 1 else ''}"


def _rates(server: Server, plan: Plan, batch: int, connections: int) -> Pairs:
    settle()
    answer = server.load("rates", warm_up_s=plan.warm_up_s, seconds=plan.seconds, batch=batch, connections=connections)
    for verb in VERBS:
        yield Measure(_title(verb, batch, connections), "msg/s"), answer[f"{verb}_per_s"]
    yield from _shares_of_cpu(_title("life", batch, connections), answer["life_generator_cpu"], answer["life_broker_cpu"])


def _pace(server: Server, plan: Plan, door: str, rate: int, directory: Path) -> Pairs:
    with FlushProbe(directory) as probe:
        answer = server.load("pace", warm_up_s=1.0, seconds=plan.pace_s, is_kafka=door == "share", door=door, rate=rate)
    title = f"{DOORS[door]} at {rate:,}/s"
    for name in ("p50", "p99"):
        yield Measure(f"{title}, {name}", "ms"), answer[f"{name}_s"] * 1e3
    if server.name == PENSTOCK:
        yield Measure(f"{title}, bare flush beside it, p99", "ms"), probe.quantile_s(0.99) * 1e3
    yield from _shares_of_cpu(title, answer["generator_cpu"], answer["broker_cpu"])


def _shares(server: Server, plan: Plan, batch: int, connections: int) -> Pairs:
    settle()
    answer = server.load("shares", warm_up_s=0, seconds=plan.seconds, is_kafka=True, batch=batch, connections=connections)
    title = f"share group, take and accept by {batch}, {connections} member{'s' if connections > 1 else ''}"
    yield Measure(title, "msg/s"), answer["life_per_s"]
    yield from _shares_of_cpu(title, answer["life_generator_cpu"], answer["life_broker_cpu"])


def _ledger(plan: Plan) -> Pairs:
    for count in (1, 10, 100):
        taking, settling = ledger.rounds(count, plan.ledger_messages // (10 if count == 1 else 1))
        yield Measure(f"ledger alone, take and settle by {count}", "msg/s"), 1 / (1 / taking + 1 / settling)
    seconds, _ = ledger.finished(plan.finished_jobs, straggler_every=1_000)
    yield Measure(f"loading {plan.finished_jobs:,} finished jobs", "s"), seconds


def _shares_of_cpu(title: str, generator: float, broker: float) -> Pairs:
    yield Measure(title, GENERATOR_CPU), 100 * generator
    yield Measure(title, BROKER_CPU), 100 * broker


# Who is measured


def _started_penstock(running: ExitStack, directory: Path) -> Server:
    port, http_port = free_port(), free_port()
    data_dir = directory / "penstock"
    flags = ["--data-dir", str(data_dir), "--kafka", f"127.0.0.1:{port}", "--http", f"127.0.0.1:{http_port}"]
    broker = Broker(Command(PENSTOCK, [sys.executable, "-m", "penstock", "serve", *flags], port, data_dir))
    return Server(PENSTOCK, running.enter_context(broker), http_port)


def _started_peers(running: ExitStack, directory: Path, report: Report) -> Iterator[Server]:
    """Those that this machine can run; why it cannot run the others goes into the report."""
    try:
        yield _started(running, MOTO, moto.command(moto.install(ROOT / ".cache"), directory / "moto"))
    except PeerMissing as missing:
        report.failures.append(f"{MOTO}: {missing}")
    try:
        libraries = elasticmq.install(ROOT / ".cache")
        for name, is_durable in ((ELASTICMQ, False), (ELASTICMQ_DISK, True)):
            place = directory / name.replace(" ", "-").lower()
            server = _started(running, name, elasticmq.command(libraries, place, is_durable=is_durable))
            for batch in (1, 10):  # A JVM that has just started is not what anybody runs.
                server.load("rates", warm_up_s=1, seconds=1, batch=batch, connections=4)
            yield server
    except PeerMissing as missing:
        report.failures.append(f"{ELASTICMQ}: {missing}")


def _started(running: ExitStack, name: str, command: Command) -> Server:
    broker = running.enter_context(Broker(command, waits=False))
    give_up = time.monotonic() + START_S_MAX
    while not answers_http(command.port):
        if time.monotonic() > give_up:
            raise PeerMissing(f"{name} did not answer in {START_S_MAX:.0f} s; see {broker.log_path}")
        time.sleep(0.05)
    return Server(name, broker, command.port)


if __name__ == "__main__":
    main()
