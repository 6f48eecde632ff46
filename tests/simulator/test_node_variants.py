"""Every node that is broken on purpose is caught, by the seeds of the suite or by a scenario made for it: the checkers bite."""

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from broker import test_stable_offsets as stable_offsets
from serving import Serving
from simulator import test_node_scenarios as scenarios

from penstock.simulator.delivery_menu import with_deliveries
from penstock.simulator.knobs import replaced
from penstock.simulator.menu import draw_menu
from penstock.simulator.run import run_seed
from penstock.simulator.variants import VARIANTS

SEEDS_MAX = 500

# Where each was caught last, in the shortest world that does: tried first, to save time. When the draw of seeds has changed, all others are
# tried as well. Seeds change their stories with the node: of one that few seeds catch, several are known.
CAUGHT_LAST = {
    "acknowledges-before-the-flush": (41,),
    "answers-before-metadata-is-flushed": (21, 256),
    "answers-duplicates-with-the-end-of-the-log": (38,),
    "answers-groups-before-the-flush": (99,),
    "appends-duplicates": (38,),
    "believes-every-batch": (76, 7),
    "believes-the-flush-after-a-failed-one": (41, 11),
    "claims-to-know-every-end": (9, 4),
    "commits-offsets-before-the-transaction": (44, 7),
    "commits-what-was-aborted-over-its-time-out": (7,),
    "compacts-without-flushing-the-copy": (101, 48),
    "cuts-off-rotten-batches": (94, 24),
    "drops-offsets-of-committed-transactions": (102, 20),
    "fences-nobody": (7,),
    "forgets-aborts-of-the-checkpoint": (44, 7),
    "forgets-open-transactions-of-the-checkpoint": (102, 7),
    "forgets-producers-at-a-restart": (59,),
    "forgets-producers-of-the-checkpoint": (59, 22),
    "forgets-what-came-after-the-snapshot": (16,),
    "gives-producer-ids-twice": (43, 25),
    "hands-out-old-assignments": (45,),
    "keeps-the-first-record-of-a-key": (41, 199),
    "leaves-deleted-topics-on-the-disk": (17,),
    "leaves-half-a-batch-on-a-full-disk": (95, 84),
    "leaves-names-unflushed": (38,),
    "flushes-what-it-finds-without-writing-it-again": (11,),
    "leaves-out-markers": (20,),
    "lets-anybody-commit": (35,),
    "lets-members-of-the-past-commit": (503, 684, 707, 724, 789, 882),
    "moves-the-watermark-before-the-flush": (59,),
    "never-times-out": (44, 7),
    "removes-old-segments-before-the-swap-is-durable": (48, 101, 359),
    "replies-when-ready": (56, 39),
    "serves-open-transactions": (7,),
    "serves-past-the-watermark": (38,),
    "serves-unchecked-bytes": (24,),
    "takes-batches-after-a-gap": (38,),
    "takes-tombstones-before-their-time": (18,),
    "tells-of-no-aborts": (76, 7),
    "trusts-a-stale-index": (15,),
    "verifies-by-the-name-alone": (104,),
}

# What one that few seeds catch needs to be seen: worlds without such clients are not tried.
SEEN_BY = {
    "lets-members-of-the-past-commit": {"join", "belong"},
    "removes-old-segments-before-the-swap-is-durable": {"keep"},
}


def wants_stable_offsets(directory: Path) -> None:
    async def play() -> None:
        serving = Serving(directory)
        try:
            await stable_offsets.test_whoever_wants_stable_offsets_is_told_to_come_again_for_those_that_are_not(serving, 9)
        finally:
            await serving.close()

    asyncio.run(play())


# What hardly any seed meets, and the scenario that does.
CAUGHT_BY: dict[str, Callable[[Path], None]] = {
    "takes-the-page-cache-for-the-disk": lambda _: (
        scenarios.test_row_1_what_a_killed_node_left_in_the_machines_memory_is_flushed_before_anybody_is_told_of_it()
    ),
    "tells-offsets-that-may-still-change": wants_stable_offsets,
}

pytestmark = pytest.mark.timeout(900)  # Some are caught by one seed in a hundred, and the machine may be busy.


@pytest.mark.parametrize("variant", [variant for variant in VARIANTS if variant not in CAUGHT_BY])
def test_a_broken_node_is_caught(variant: str) -> None:
    caught = (run_seed(seed, variant=variant).violations for seed in seeds_for(variant))
    assert any(caught), f"no seed below {SEEDS_MAX} finds that the node {variant}"


def seeds_for(variant: str) -> Iterator[int]:
    yield from CAUGHT_LAST.get(variant, ())
    wanted = SEEN_BY.get(variant)
    for seed in range(SEEDS_MAX):
        if wanted is None or any(client.kind in wanted for client in with_deliveries(draw_menu(seed)).clients):
            yield seed


@pytest.mark.parametrize("variant", CAUGHT_BY)
def test_a_broken_node_is_caught_by_a_scenario(variant: str, tmp_path: Path) -> None:
    CAUGHT_BY[variant](tmp_path / "whole")
    with pytest.raises(AssertionError), replaced(VARIANTS[variant]()):
        CAUGHT_BY[variant](tmp_path / "broken")


def test_a_variant_is_gone_when_its_run_is_over() -> None:
    (seed, *_) = CAUGHT_LAST["acknowledges-before-the-flush"]
    before = run_seed(seed).trace_hash
    assert run_seed(seed, variant="acknowledges-before-the-flush").violations
    assert run_seed(seed).trace_hash == before


def test_what_is_not_there_cannot_be_replaced() -> None:
    from penstock.log.log import Log

    with pytest.raises(AttributeError, match="has no flushh"), replaced([(Log, "flushh", None)]):
        pass
