"""Many stories of a partition, one after the other:

    python -m penstock.simulator.replicas [--first N] [--seeds N] [--variant NAME]

Prints each violation with its seed, and at the end what the worlds met and how long it took. Exit code 1 means that a promise was broken.
"""

import argparse
import sys
import time
from collections import Counter

from penstock.simulator.replicas.run import run_seed
from penstock.simulator.replicas.variants import VARIANTS


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m penstock.simulator.replicas", description="Replicas in worlds drawn from seeds.")
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--seeds", type=int, default=1_000, help="how many")
    parser.add_argument("--variant", choices=sorted(VARIANTS), help="replication with a planted defect")
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


if __name__ == "__main__":
    sys.exit(main())
