"""`penstock simulate`: whole worlds from seeds. One seed is replayed with its story; many are run side by side and judged."""

import os
import sys
import time
from collections import Counter

import click

from penstock.cli.faults import DID_NOT_WORK
from penstock.simulator.clusters.run import CLUSTER_VARIANTS, run_cluster_seed
from penstock.simulator.many import run_many
from penstock.simulator.queue_variants import QUEUE_VARIANTS
from penstock.simulator.run import Report, run_seed
from penstock.simulator.share_variants import SHARE_VARIANTS
from penstock.simulator.variants import VARIANTS

SHOWN_MAX = 20  # A broken world is broken everywhere: more of the same helps nobody.
_TOLD_EVERY_SEEDS = 100  # Where nobody watches the line move.


@click.command()
@click.option("--seed", type=click.IntRange(0), help="Replay this one world and tell its story.")
@click.option("--seeds", "count", type=click.IntRange(1), help="Run this many worlds and tell which broke a promise.")
@click.option("--first", type=click.IntRange(0), default=0, show_default=True, help="With --seeds: where to begin.")
@click.option("--jobs", type=click.IntRange(1), default=os.cpu_count() or 1, show_default=True, help="With --seeds: worlds at a time.")
@click.option("--cluster", "is_cluster", is_flag=True, help="Whole clusters: one to six nodes, replicas, elections.")
@click.option("--queues", "has_queues", is_flag=True, help="Work queues, and nothing else: senders, workers, dead letters.")
@click.option("--variant", metavar="NAME", help="A node with a planted defect, to see that it is caught; 'list' names them.")
@click.option("--trace", "with_trace", is_flag=True, help="With --seed: every event as well.")
def simulate(
    *, seed: int | None, count: int | None, first: int, jobs: int, is_cluster: bool, has_queues: bool, variant: str | None,
    with_trace: bool,
) -> int:  # fmt: skip
    """Run a node in a simulated world: virtual time, failing links, a disk that loses what was not flushed.

    A world follows from its seed alone: the same seed gives the same trace hash in every process. Exit code 1 means that a
    promise was broken.

    \b
      penstock simulate --seed 42
      penstock simulate --seeds 500
      penstock simulate --seeds 5000 --first 100000 --jobs 2
      penstock simulate --seeds 50 --variant acknowledges-before-the-flush
      penstock simulate --cluster --seeds 30
      penstock simulate --queues --seeds 200
    """
    variants = QUEUE_VARIANTS | SHARE_VARIANTS if has_queues else CLUSTER_VARIANTS if is_cluster else VARIANTS
    if variant == "list":
        click.echo("\n".join(variants))
        return 0
    if variant is not None and variant not in variants:
        raise click.UsageError(f"there is no variant {variant!r}; --variant list names them")
    if (seed is None) == (count is None):
        raise click.UsageError("say either --seed N for one world or --seeds N for many")
    if seed is not None:
        run = run_cluster_seed if is_cluster else run_seed
        return _tell(run(seed, variant=variant, record=with_trace, has_queues=has_queues))
    return _run_many(range(first, first + (count or 0)), jobs, variant, is_cluster=is_cluster, has_queues=has_queues)


def _tell(report: Report) -> int:
    for line in [*(report.trace or ()), *report.story]:
        click.echo(line)
    for name, number in sorted(report.statistics.items()):
        click.echo(f"{number:12}  {name}")
    _tell_violations(report)
    click.echo(f"seed {report.seed}  trace {report.trace_hash}  {_verdict(len(report.violations))}")
    return DID_NOT_WORK if report.violations else 0


def _run_many(seeds: range, jobs: int, variant: str | None, *, is_cluster: bool, has_queues: bool) -> int:
    progress, numbers, broken = Progress(len(seeds)), Counter[str](), 0
    for report in run_many(seeds, variant=variant, jobs=jobs, is_cluster=is_cluster, has_queues=has_queues):
        numbers.update(report.statistics)
        if report.violations:
            broken += 1
            progress.clear()
            _tell_violations(report)
            kind = (" --cluster" if is_cluster else "") + (" --queues" if has_queues else "")
            again = f"penstock simulate{kind} --seed {report.seed}" + (f" --variant {variant}" if variant else "")
            click.echo(f"seed {report.seed} broke a promise; replay it: {again}")
        progress.one_more(broken)
    progress.clear()
    click.echo(
        f"{len(seeds)} worlds in {progress.seconds():.0f} s: {numbers['records acknowledged']:,} records acknowledged, "
        f"{numbers['messages lent']:,} messages lent, "
        f"{numbers['faults']:,} faults, {numbers['starts of the node']:,} starts; {_verdict(broken)}"
    )
    return DID_NOT_WORK if broken else 0


class Progress:
    """A line on standard error that moves; where that is no terminal, a line now and then."""

    def __init__(self, worlds: int) -> None:
        self._worlds = worlds
        self._done = 0
        self._began = time.monotonic()
        self._is_watched = sys.stderr.isatty()

    def seconds(self) -> float:
        return time.monotonic() - self._began

    def one_more(self, broken: int) -> None:
        self._done += 1
        if self._is_watched or self._done % _TOLD_EVERY_SEEDS == 0:
            told = f"{self._done:,} of {self._worlds:,} worlds, {self._done / self.seconds():.1f} a second; {_verdict(broken)}"
            click.echo(f"\r\033[K{told}" if self._is_watched else told, nl=not self._is_watched, err=True)

    def clear(self) -> None:
        if self._is_watched:
            click.echo("\r\033[K", nl=False, err=True)


def _tell_violations(report: Report) -> None:
    for violation in report.violations[:SHOWN_MAX]:
        click.echo(f"BROKEN  seed {report.seed}: {violation}")


def _verdict(broken: int) -> str:
    return "every promise was kept" if broken == 0 else f"{broken} broken"
