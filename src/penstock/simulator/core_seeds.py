"""What the simulators of cores alone share: the report of one seed, and the telling of many.

    python -m penstock.simulator.cores [--first N] [--seeds N] [--variant NAME]
    python -m penstock.simulator.replicas [--first N] [--seeds N] [--variant NAME]

Prints each violation with its seed, and at the end what the worlds met and how long it took. Exit code 1 means that a promise was broken.
"""

import argparse
import time
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Protocol


@dataclass(slots=True)
class Report:
    seed: int
    violation: str | None
    trace: int
    steps: int
    statistics: Counter[str] = field(default_factory=Counter)


class RunSeed(Protocol):
    def __call__(self, seed: int, *, variant: str | None = None) -> Report: ...


def tell_many(name: str, run_seed: RunSeed, variants: Iterable[str]) -> int:
    """One story after the other, as the command line asks for them; the exit code."""
    told = f"{name.capitalize()} in worlds drawn from seeds."
    parser = argparse.ArgumentParser(prog=f"python -m penstock.simulator.{name}", description=told)
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--seeds", type=int, default=1_000, help="how many")
    parser.add_argument("--variant", choices=sorted(variants), help="with a planted defect")
    asked = parser.parse_args()
    began, steps, broken, seen = time.process_time(), 0, 0, Counter[str]()
    for seed in range(asked.first, asked.first + asked.seeds):
        report = run_seed(seed, variant=asked.variant)
        steps += report.steps
        seen.update(report.statistics)
        if report.violation is not None:
            broken += 1
            print(f"seed {seed}: {report.violation}")
    seconds = time.process_time() - began
    for what, times in sorted(seen.items()):
        print(f"{times:12,}  {what}")
    print(f"{asked.seeds:,} seeds, {broken} broken; {seconds / asked.seeds * 1_000:.1f} ms and {steps / asked.seeds:,.0f} steps a seed, "
          f"{steps / seconds:,.0f} steps a second")  # fmt: skip
    return 1 if broken else 0
