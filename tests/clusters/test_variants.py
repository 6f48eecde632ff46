"""Every cluster that is broken on purpose is caught, by the worlds of the suite or by a scenario made for it: the checkers bite."""

from collections.abc import Callable

import pytest
from clusters import test_deleted_records as deleted_records
from clusters import test_full_disks as full_disks
from clusters import test_late_writes as late_writes
from clusters import test_scenarios as scenarios

from penstock.simulator.clusters.run import run_cluster_seed
from penstock.simulator.clusters.variants import VARIANTS
from penstock.simulator.knobs import replaced
from penstock.simulator.loop import Stuck

SEEDS_MAX = 30

# Where it was caught last, in the shortest world that does: tried first, to save time. When the draw of seeds has changed, all others are
# tried as well.
CAUGHT_LAST: dict[str, tuple[int, ...]] = {
    "acknowledges-before-its-followers-have-it": (3,),
    "acknowledges-before-the-flush": (21,),
    "reports-before-its-flush": (12,),
    "tells-its-end-before-it-knows-it": (3,),
    "truncates-by-its-watermark": (3,),
}

# What no seed of the suite is sure to meet, and the scenario that does.
CAUGHT_BY: dict[str, Callable[[], None]] = {
    "lets-replicas-join-that-still-have-deleted-records": (
        deleted_records.test_a_replica_joins_only_when_it_has_deleted_what_clients_know_to_be_deleted
    ),
    "shrinks-the-set-without-the-controller": scenarios.test_a_change_of_the_set_that_is_late_is_not_counted_on,
    "leads-on-when-another-was-chosen": scenarios.test_a_leader_that_sleeps_wakes_as_nobody,
    "elects-whoever-is-up": scenarios.test_nobody_but_an_operator_elects_uncleanly,
    "takes-everybody-for-eligible": scenarios.test_the_last_replica_standing_keeps_what_was_acknowledged,
    "trusts-a-disk-that-was-put-in-since": scenarios.test_an_empty_disk_does_not_lead_though_it_bears_the_name_of_one_that_had_everything,
    "leads-on-with-a-full-disk": full_disks.test_another_replica_leads_before_a_disk_is_so_full_that_it_refuses,
    "places-new-partitions-on-full-disks": full_disks.test_new_topics_avoid_a_full_disk_as_long_as_others_are_enough,
    "gives-up-no-reserve": full_disks.test_a_node_with_a_completely_full_disk_can_be_drained,
    "copies-into-the-reserve": full_disks.test_copies_of_clients_records_leave_the_reserve_alone,
    "begins-groups-anew-where-their-partition-is-led": scenarios.test_groups_go_on_with_another_coordinator,
    "appends-though-the-transaction-has-ended-since": late_writes.test_late_batches_are_not_appended,
    "holds-offsets-though-the-transaction-has-ended-since": late_writes.test_late_offsets_are_not_held,
}

pytestmark = pytest.mark.timeout(900)


@pytest.mark.parametrize("variant", [variant for variant in VARIANTS if variant not in CAUGHT_BY])
def test_a_broken_cluster_is_caught_by_the_worlds(variant: str) -> None:
    seeds = [*CAUGHT_LAST.get(variant, ()), *range(SEEDS_MAX)]
    assert any(run_cluster_seed(seed, variant=variant).violations for seed in seeds), f"no seed finds that the cluster {variant}"


@pytest.mark.parametrize("variant", CAUGHT_BY)
def test_a_broken_cluster_is_caught_by_a_scenario(variant: str) -> None:
    with pytest.raises((AssertionError, KeyError, Stuck, pytest.fail.Exception)), replaced(VARIANTS[variant]()):
        CAUGHT_BY[variant]()


def test_every_scenario_that_catches_something_is_one_of_the_suite() -> None:
    modules = {module.__name__: module for module in (scenarios, late_writes, deleted_records, full_disks)}
    assert all(getattr(modules[scenario.__module__], scenario.__name__) is scenario for scenario in CAUGHT_BY.values())


def test_a_variant_is_gone_when_its_run_is_over() -> None:
    before = run_cluster_seed(3).trace_hash
    run_cluster_seed(3, variant="acknowledges-before-the-flush")
    assert run_cluster_seed(3).trace_hash == before
