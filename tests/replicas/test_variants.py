"""Every replication that is broken on purpose is caught, by the scene made for it or by the seeds; as it is, it passes all scenes."""

from collections.abc import Callable

import pytest
from replicas.scenarios import OTHERS, SCENARIOS

from penstock.errors import BrokenPromise
from penstock.simulator.knobs import replaced
from penstock.simulator.replicas.judging import Violation
from penstock.simulator.replicas.run import run_seed
from penstock.simulator.replicas.variants import VARIANTS

SEEDS_MAX = 400

BY_SCENE_ALONE = (
    "lets-a-flush-vouch-after-a-cut",
    "hears-followers-of-other-leaders",
    "serves-followers-of-other-leaders",
    "takes-a-no-for-the-last-word",
    "lets-an-earlier-life-in",
    "cuts-once-and-by-the-leaders-word-alone",
)
# Where the seeds caught one last: tried first, to save time.
CAUGHT_LAST = {"forgets-whom-it-proposed": (252,), "lets-in-before-its-epoch-begins": (228,)}


@pytest.mark.invariant(
    "replication.acked-is-kept",
    "replication.last-replica-leads",
    "replication.old-leader-acks-nothing",
    "replication.logs-agree",
    "replication.in-sync-has-committed",
    "replication.truncate-by-epoch",
    "replication.end-offset-never-back",
)
@pytest.mark.parametrize("variant", SCENARIOS)
def test_replication_passes_the_scene(variant: str) -> None:
    SCENARIOS[variant]()


@pytest.mark.invariant("replication.acked-is-kept", "replication.old-leader-acks-nothing")
@pytest.mark.parametrize("scenario", OTHERS, ids=lambda scenario: scenario.__name__)
def test_replication_passes_scenes_that_no_variant_is_made_for(scenario: Callable[[], None]) -> None:
    scenario()


@pytest.mark.parametrize("variant", SCENARIOS)
def test_broken_replication_fails_in_its_scene(variant: str) -> None:
    with replaced(VARIANTS[variant]()), pytest.raises((AssertionError, Violation, BrokenPromise)):
        SCENARIOS[variant]()


@pytest.mark.parametrize("variant", [variant for variant in VARIANTS if variant not in BY_SCENE_ALONE])
def test_broken_replication_is_caught_by_the_seeds(variant: str) -> None:
    seeds = [*CAUGHT_LAST.get(variant, ()), *range(SEEDS_MAX)]
    assert any(run_seed(seed, variant=variant).violation for seed in seeds), f"no seed below {SEEDS_MAX} finds that it {variant}"


def test_no_variant_goes_untried() -> None:
    assert [name for name in BY_SCENE_ALONE if name not in SCENARIOS] == []
    assert [name for name in SCENARIOS if name not in VARIANTS] == []
