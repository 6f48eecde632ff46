"""Many stories of cores, one after the other: see core_seeds.py."""

import sys

from penstock.simulator.core_seeds import tell_many
from penstock.simulator.cores.run import run_seed
from penstock.simulator.cores.variants import VARIANTS

if __name__ == "__main__":
    sys.exit(tell_many("cores", run_seed, VARIANTS))
