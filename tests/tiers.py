"""How many seeds, rounds or examples a test runs: few in `make test`, many in `make test-slow`, with the same assertions.

    @pytest.mark.repeats
    @pytest.mark.parametrize("seed", range(pick(test=8, slow=60)))
    def test_…

`repeats` runs the test in both tiers. A file that picks and marks no test so is refused when tests are collected, because its many would
never run. For a test of which nothing stays in `make test` see `@pytest.mark.slow(stays=…)` in conftest.py.
"""

import os
import sys

TIER = "PENSTOCK_TIER"  # Set by conftest.py from `--tier`, before any test is imported.

picking_files: set[str] = set()


def pick(*, test: int, slow: int) -> int:
    picking_files.add(sys._getframe(1).f_globals["__file__"])
    return slow if os.environ.get(TIER) in ("slow", "soak") else test
