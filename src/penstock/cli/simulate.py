"""`penstock simulate`: whole worlds from seeds. One seed is replayed with its story; many are run side by side and judged."""

import os
import time
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

import click

from penstock.cli.faults import DID_NOT_WORK
from penstock.simulator.run import Report, run_seed

CHUNK = 10  # Seeds handed to a worker at a time: starting one costs more than sending it.


@click.command()
@click.option("--seed", type=click.IntRange(0), help="Replay this one world and tell its story.")
@click.option("--seeds", "count", type=click.IntRange(1), help="Run this many worlds and tell which broke a promise.")
@click.option("--first", type=click.IntRange(0), default=0, show_default=True, help="With --seeds: where to begin.")
@click.option("--jobs", type=click.IntRange(1), default=os.cpu_count() or 1, show_default=True, help="With --seeds: worlds at a time.")
@click.option("--variant", metavar="NAME", help="A node with a planted defect, to see that it is caught.")
@click.option("--trace", "with_trace", is_flag=True, help="With --seed: every event as well.")
def simulate(*, seed: int | None, count: int | None, first: int, jobs: int, variant: str | None, with_trace: bool) -> int:
    """Run a node in a simulated world: virtual time, failing links, a disk that loses what was not flushed.

    A world follows from its seed alone: the same seed gives the same trace hash in every process. Exit code 1 means that a
    promise was broken.

    \b
      penstock simulate --seed 42
      penstock simulate --seeds 500
      penstock simulate --seeds 5000 --first 100000 --jobs 2
    """
    if (seed is None) == (count is None):
        raise click.UsageError("say either --seed N for one world or --seeds N for many")
    if seed is not None:
        return _tell(run_seed(seed, variant=variant, record=with_trace))
    return _run_many(range(first, first + (count or 0)), jobs, variant)


def _tell(report: Report) -> int:
    for line in [*(report.trace or ()), *report.story]:
        click.echo(line)
    for name, number in sorted(report.statistics.items()):
        click.echo(f"{number:12}  {name}")
    _tell_violations(report)
    click.echo(f"seed {report.seed}  trace {report.trace_hash}  {_verdict(len(report.violations))}")
    return DID_NOT_WORK if report.violations else 0


def _run_many(seeds: range, jobs: int, variant: str | None) -> int:
    began, numbers, broken = time.monotonic(), Counter[str](), 0
    with ProcessPoolExecutor(jobs, mp_context=get_context("spawn")) as pool:
        for report in pool.map(_run_one, seeds, [variant] * len(seeds), chunksize=min(CHUNK, max(1, len(seeds) // jobs))):
            numbers.update(report.statistics)
            if report.violations:
                broken += 1
                _tell_violations(report)
                again = f"penstock simulate --seed {report.seed}" + (f" --variant {variant}" if variant else "")
                click.echo(f"seed {report.seed} broke a promise; replay it: {again}")
    seconds = time.monotonic() - began
    click.echo(
        f"{len(seeds)} worlds in {seconds:.0f} s: {numbers['records acknowledged']:,} records acknowledged, {numbers['faults']:,} faults, "
        f"{numbers['starts of the node']:,} starts; {_verdict(broken)}"
    )
    return DID_NOT_WORK if broken else 0


def _run_one(seed: int, variant: str | None) -> Report:
    return run_seed(seed, variant=variant)


def _tell_violations(report: Report) -> None:
    for violation in report.violations:
        click.echo(f"BROKEN  seed {report.seed}: {violation}")


def _verdict(broken: int) -> str:
    return "every promise was kept" if broken == 0 else f"{broken} broken"
