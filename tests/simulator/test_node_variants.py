"""Every node that is broken on purpose is caught by the seeds of the suite: the checkers bite."""

import pytest

from penstock.simulator.run import run_seed
from penstock.simulator.variants import VARIANTS

SEEDS_MAX = 500  # Those that the suite runs on the node as it is.
RARE = {"takes-fresh-records-with-old-ones"}  # Needs more luck than five hundred seeds have; soak has more.
pytestmark = pytest.mark.timeout(900)  # Some are caught by one seed in a hundred, and the machine may be busy.


@pytest.mark.parametrize("variant", [variant for variant in VARIANTS if variant not in RARE])
def test_a_broken_node_is_caught(variant: str) -> None:
    is_caught = any(run_seed(seed, variant=variant).violations for seed in range(SEEDS_MAX))
    assert is_caught, f"no seed below {SEEDS_MAX} finds that the node {variant}"


@pytest.mark.soak
@pytest.mark.parametrize("variant", sorted(RARE))
def test_a_node_that_is_rarely_seen_to_be_broken_is_caught_in_the_long_run(variant: str) -> None:
    assert any(run_seed(seed, variant=variant).violations for seed in range(10 * SEEDS_MAX))
