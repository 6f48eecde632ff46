"""Many seeds, side by side: each in a process of its own, since one run keeps one core busy."""

import traceback
from collections import Counter
from collections.abc import Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context

from penstock.simulator.checkers import Violation
from penstock.simulator.clusters.run import run_cluster_seed
from penstock.simulator.run import Report, run_seed
from penstock.simulator.workloads.notebook import NOWHERE

_SEEDS_AT_A_TIME = 4


def run_many(
    seeds: Iterable[int], *, variant: str | None = None, jobs: int = 2, is_cluster: bool = False, has_queues: bool = False
) -> Iterator[Report]:
    """The reports in the order of the seeds, each as soon as it and all before it are there."""
    work = partial(report_of, variant=variant, is_cluster=is_cluster, has_queues=has_queues)
    if jobs == 1:
        yield from map(work, seeds)
        return
    with ProcessPoolExecutor(jobs, mp_context=get_context("spawn")) as pool:
        yield from pool.map(work, seeds, chunksize=_SEEDS_AT_A_TIME)


def report_of(seed: int, *, variant: str | None = None, is_cluster: bool = False, has_queues: bool = False) -> Report:
    """Of one world; if the simulator itself breaks, that is a finding about this seed, and the others go on."""
    try:
        return (run_cluster_seed if is_cluster else run_seed)(seed, variant=variant, has_queues=has_queues)
    except Exception:
        story = traceback.format_exc(limit=-3)
        return Report(seed, "", [Violation("the simulator holds", NOWHERE, story)], Counter())
