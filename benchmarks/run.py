"""`make bench`: one Penstock node beside the bare loop, in one run.

Each step is measured for every subject before the next step begins, so that what changes on the machine meanwhile changes for all.
The bare loop is the ceiling: it does the least that any Python broker must do (bare_loop.py).
"""

from contextlib import ExitStack
from pathlib import Path

from benchmarks.figures import Measure, Ratio
from benchmarks.inspection import inspection_table
from benchmarks.processes import Broker
from benchmarks.report import Report, arguments_of, working_directory
from benchmarks.steps import Plan, idle_partitions, start_up
from benchmarks.subjects import FLUSH_ACK, FLUSH_INTERVAL, FLUSH_OS, Subject, bare_loop, penstock

ACK, INTERVAL, OS = "Penstock ack", "Penstock interval", "Penstock os"
BARE_FLUSH, BARE = "bare loop, flush", "bare loop"
QUICK = Plan(warm_up_s=0.2, seconds=0.6, idle_s=1.0, starts=1)


def main() -> None:
    arguments = arguments_of(__doc__)
    plan = QUICK if arguments.quick else Plan()
    with working_directory(arguments.data_dir) as directory:
        report = Report("Penstock beside the bare loop", directory)
        report.take(ACK, start_up(penstock, directory, plan))
        _take_turns(report, directory, plan, quick=arguments.quick)
        report.take(ACK, idle_partitions(penstock(directory / "idle"), plan))
    report.sections += [report.figures.table([Ratio(ACK, BARE_FLUSH), Ratio(OS, BARE)])]
    report.sections += ["", "Looking inside batches:", "", inspection_table()]
    report.write(arguments)


def _take_turns(report: Report, directory: Path, plan: Plan, *, quick: bool) -> None:
    with ExitStack() as running:
        node = running.enter_context(Broker(penstock(directory / "penstock")))
        bare_flush = running.enter_context(Broker(bare_loop(directory / "bare-flush", flushes=True)))
        subjects = [Subject(ACK, node, FLUSH_ACK), Subject(BARE_FLUSH, bare_flush)]
        if not quick:
            bare = running.enter_context(Broker(bare_loop(directory / "bare", flushes=False)))
            subjects += [Subject(INTERVAL, node, FLUSH_INTERVAL), Subject(OS, node, FLUSH_OS), Subject(BARE, bare)]
        for step in plan.steps():
            for subject in subjects:
                report.take(subject.name, step(subject))
        report.take(ACK, iter([(Measure("memory, highest under load", "MB"), node.memory_peak_bytes() / 1e6)]))


if __name__ == "__main__":
    main()
