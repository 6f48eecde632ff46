"""Many stories of a partition, one after the other: see core_seeds.py."""

import sys

from penstock.simulator.core_seeds import tell_many
from penstock.simulator.replicas.run import run_seed
from penstock.simulator.replicas.variants import VARIANTS

if __name__ == "__main__":
    sys.exit(tell_many("replicas", run_seed, VARIANTS))
