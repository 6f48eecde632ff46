"""Every node that is broken on purpose is caught by the seeds of the suite: the checkers bite."""

import pytest

from penstock.simulator.run import run_seed
from penstock.simulator.variants import VARIANTS

SEEDS_MAX = 500

# Where one that the first few seeds miss was caught last: tried first, to save time. When the draw of seeds has changed, all others are
# tried as well.
CAUGHT_LAST = {
    "answers-before-metadata-is-flushed": (256,),
    "answers-groups-before-the-flush": (99,),
    "believes-every-batch": (7,),
    "believes-the-flush-after-a-failed-one": (11,),
    "claims-to-know-every-end": (4,),
    "commits-offsets-before-the-transaction": (7,),
    "commits-what-was-aborted-over-its-time-out": (7,),
    "compacts-without-flushing-the-copy": (48,),
    "cuts-off-rotten-batches": (24,),
    "drops-offsets-of-committed-transactions": (20,),
    "fences-nobody": (7,),
    "forgets-aborts-of-the-checkpoint": (7,),
    "forgets-open-transactions-of-the-checkpoint": (7,),
    "forgets-producers-of-the-checkpoint": (22,),
    "forgets-what-came-after-the-snapshot": (16,),
    "gives-producer-ids-twice": (25,),
    "hands-out-old-assignments": (45,),
    "keeps-the-first-record-of-a-key": (199,),
    "leaves-half-a-batch-on-a-full-disk": (84,),
    "leaves-no-note-of-a-failed-flush": (11,),
    "leaves-out-markers": (20,),
    "lets-anybody-commit": (35,),
    "lets-members-of-the-past-commit": (224,),
    "never-times-out": (364,),
    "removes-old-segments-before-the-swap-is-durable": (288,),
    "replies-when-ready": (39,),
    "serves-open-transactions": (7,),
    "takes-the-page-cache-for-the-disk": (58,),
    "takes-tombstones-before-their-time": (18,),
    "tells-of-no-aborts": (7,),
    "tells-offsets-that-may-still-change": (118,),
    "trusts-a-stale-index": (15,),
    "verifies-by-the-name-alone": (104,),
}

pytestmark = pytest.mark.timeout(900)  # Some are caught by one seed in a hundred, and the machine may be busy.


@pytest.mark.parametrize("variant", VARIANTS)
def test_a_broken_node_is_caught(variant: str) -> None:
    seeds = [*CAUGHT_LAST.get(variant, ()), *range(SEEDS_MAX)]
    assert any(run_seed(seed, variant=variant).violations for seed in seeds), f"no seed below {SEEDS_MAX} finds that the node {variant}"


def test_a_variant_is_gone_when_its_run_is_over() -> None:
    before = run_seed(3).trace_hash
    assert run_seed(3, variant="acknowledges-before-the-flush").violations
    assert run_seed(3).trace_hash == before


def test_what_is_not_there_cannot_be_replaced() -> None:
    from penstock.log.log import Log
    from penstock.simulator.knobs import replaced

    with pytest.raises(AttributeError, match="has no flushh"), replaced([(Log, "flushh", None)]):
        pass
