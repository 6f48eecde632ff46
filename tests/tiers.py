"""How many seeds, rounds or examples a test runs: few in `make test`, many in `make test-slow`, with the same assertions.

    @pytest.mark.repeats
    @pytest.mark.parametrize("seed", range(pick(test=8, slow=60)))
    def test_…

`repeats` runs the test in both tiers. Without it the many would never run: `make check` finds such a test (scripts/tier_rules.py). For a
test of which nothing stays in `make test` see `@pytest.mark.slow(stays=…)` in conftest.py.
"""

import os

TIER = "PENSTOCK_TIER"  # Set by conftest.py from `--tier`, before any test is imported.


def pick(*, test: int, slow: int) -> int:
    assert 1 <= test <= slow, f"pick(test={test}, slow={slow}): `make test` runs one at least, and `make test-slow` no fewer"
    return slow if os.environ.get(TIER) in ("slow", "soak") else test


def pick_step(*, test: int, slow: int) -> int:
    """The distance between two moments or places that are tried, or the first of them: the smaller, the more there are."""
    assert 1 <= slow <= test, f"pick_step(test={test}, slow={slow}): `make test-slow` goes by smaller steps"
    return slow if os.environ.get(TIER) in ("slow", "soak") else test
