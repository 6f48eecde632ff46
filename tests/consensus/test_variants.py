"""Every core that is broken on purpose is caught, by the scene made for it or by the seeds; the core as it is passes all scenes."""

import pytest
from consensus.scenarios import SCENARIOS

from penstock.errors import BrokenPromise
from penstock.simulator.cores.judging import Violation
from penstock.simulator.cores.run import run_seed
from penstock.simulator.cores.variants import VARIANTS
from penstock.simulator.knobs import replaced

SEEDS_MAX = 2_000

# Where the seeds caught one last: tried first, to save time.
CAUGHT_LAST = {
    "forgets-its-vote": (94,),
    "votes-with-a-disk-that-promised-nothing": (743,),
    "stays-in-office-when-removed": (770,),
    "reads-without-asking-anybody": (22,),
    "reads-by-a-round-that-began-before": (10,),
}
BY_SCENE_ALONE = (
    "changes-voters-before-it-has-committed",
    "changes-several-voters-at-once",
    "takes-a-snapshot-over-what-it-acknowledged",
    "commits-entries-of-older-terms",
    "stands-without-asking-first",
    "hears-candidates-while-it-hears-a-leader",
    "leads-on-without-a-majority",
)


@pytest.mark.invariant(
    "consensus.one-vote-per-term",
    "consensus.leader-completeness",
    "consensus.committed-on-majority",
    "consensus.one-voter-change",
    "consensus.lost-disk-no-vote",
    "consensus.barrier-reads-current",
    "consensus.stable-leadership",
)
@pytest.mark.parametrize("variant", SCENARIOS)
def test_the_core_passes_the_scene(variant: str) -> None:
    SCENARIOS[variant]()


@pytest.mark.parametrize("variant", SCENARIOS)
def test_a_broken_core_fails_in_its_scene(variant: str) -> None:
    with replaced(VARIANTS[variant]()), pytest.raises((AssertionError, Violation, BrokenPromise)):
        SCENARIOS[variant]()


@pytest.mark.parametrize("variant", [variant for variant in VARIANTS if variant not in BY_SCENE_ALONE])
def test_a_broken_core_is_caught_by_the_seeds(variant: str) -> None:
    seeds = [*CAUGHT_LAST.get(variant, ()), *range(SEEDS_MAX)]
    assert any(run_seed(seed, variant=variant).violation for seed in seeds), f"no seed below {SEEDS_MAX} finds that the core {variant}"


def test_no_variant_goes_untried() -> None:
    assert [name for name in BY_SCENE_ALONE if name not in SCENARIOS] == []
    assert [name for name in SCENARIOS if name not in VARIANTS] == []
