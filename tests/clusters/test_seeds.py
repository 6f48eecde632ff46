"""Whole clusters in simulated worlds: whatever the seed, they keep their promises. simulator/test_one_story.py: the seed alone decides.

`make test` runs short worlds, `make test-slow` the first eight of all and those that once found something, `make soak` a thousand more;
`penstock simulate --cluster --seed N` replays one.
"""

import pytest

from penstock.simulator.clusters import aiming, faults
from penstock.simulator.clusters.members import Cluster
from penstock.simulator.clusters.moves_menu import KINDS
from penstock.simulator.clusters.run import ACTORS, draw_menu, draw_trouble, run_cluster_seed
from penstock.simulator.faults import HARMLESS
from penstock.simulator.world import World

CHUNK = 2
IN_SLOW = 8
IN_SOAK = 1_000
# Of the first 80 those that take least time and together meet whatever these meet: every kind of client, of trouble and of end. The longest
# of all takes ten times as long as one of these.
SHORT = (2, 12, 19, 21, 23, 29, 59, 61, 65, 68, 75, 78, 94)
pytestmark = [
    pytest.mark.invariant(
        "groups.consumer-one-owner",
        "groups.consumer-epochs-grow",
        "groups.consumer-all-assigned",
        "groups.coordinator-failover",
        "transactions.all-or-nothing",
        "replication.acked-is-kept",
        "replication.logs-agree",
        "replication.in-sync-has-committed",
        "replication.end-offset-never-back",
        "replication.metadata-images-agree",
        "replication.recovers-in-a-minute",
    ),
]

# Every seed that ever failed, with what it found, and where that is shown by itself.
KEPT: dict[int, tuple[str, str]] = {
    66: (
        "a leader that is cut off goes on telling its clients of an end that others know to be past",
        "tests/simulator/test_checkers.py::test_a_reader_is_held_to_what_it_was_told_itself",
    ),
    534: (
        "the same, with a partition of the nodes in halves",
        "tests/simulator/test_checkers.py::test_a_reader_is_held_to_what_it_was_told_itself",
    ),
    147: (
        "a second disk was lost before the first was made good, and with it the majority of voters",
        "tests/clusters/test_budget.py::test_no_second_disk_is_lost_before_the_first_is_made_good",
    ),
    552: (
        "a disk was lost while the other replica died, before anybody knew: more than min.insync.replicas 1 bears",
        "tests/clusters/test_budget.py::test_a_disk_is_lost_before_anybody_knows_only_where_others_have_everything",
    ),
    286: (
        "what a leader had read for a follower was lost when that asked again meanwhile: of an idle partition it never heard more",
        "tests/clusters/test_found_by_simulation.py::test_a_follower_that_asks_again_during_a_cold_read_hears_of_what_was_read",
    ),
    427: (
        "two replicas lost unflushed records with their power, and the third its disk, unknown to anybody: more than flush=interval bears",
        "tests/clusters/test_budget.py::test_a_disk_is_lost_before_anybody_knows_only_where_others_have_everything",
    ),
    683: (
        "an operator waited for ever for the answer of a controller that had died",
        "tests/clusters/test_budget.py::test_an_operator_asks_another_controller_when_the_one_that_was_asked_has_died",
    ),
    20_145: (
        "a copy that was fetched anew met an open file of the damaged one before it, and the node stopped",
        "tests/clusters/test_damaged_copies.py::test_a_copy_that_is_fetched_anew_does_not_meet_the_files_of_the_one_before_it",
    ),
    20_167: (
        "the same, with other clients",
        "tests/clusters/test_damaged_copies.py::test_a_copy_that_is_fetched_anew_does_not_meet_the_files_of_the_one_before_it",
    ),
}


def check_promises(seeds: range | tuple[int, ...]) -> None:
    for seed in seeds:
        violations = run_cluster_seed(seed).violations
        assert not violations, f"penstock simulate --cluster --seed {seed}: {violations[0]}"


@pytest.mark.parametrize("seed", SHORT)
def test_a_cluster_keeps_its_promises_in_short_worlds(seed: int) -> None:
    check_promises((seed,))


def test_short_worlds_meet_every_kind_of_client_and_of_trouble() -> None:
    menus = [draw_menu(seed) for seed in SHORT]
    # Worlds of queues are drawn apart, and test_lag_worlds.py looks at topics that are made again.
    elsewhere = {kind for kind in ACTORS if kind == "share" or kind.startswith(("queue ", "remake "))}
    elsewhere |= set(KINDS)  # test_moving_worlds.py
    assert {client.kind for menu in menus for client in menu.clients} >= set(ACTORS) - elsewhere
    with World(0) as world:
        cluster = Cluster(world, menus[0].nodes)
        special = [*faults.strikes(cluster), *aiming.strikes(cluster)]
    assert {kind for menu in menus for kind in draw_trouble(menu, special).kinds} >= set(special) | set(HARMLESS)


@pytest.mark.slow(stays="tests/clusters/test_seeds.py::test_a_cluster_keeps_its_promises_in_short_worlds")
@pytest.mark.parametrize("first", range(0, IN_SLOW, CHUNK))
def test_a_cluster_keeps_its_promises_in_every_world(first: int) -> None:
    check_promises(range(first, first + CHUNK))


@pytest.mark.parametrize("seed", [pytest.param(seed, marks=pytest.mark.slow(stays=stays)) for seed, (_, stays) in KEPT.items()])
def test_what_a_world_once_found_does_not_come_back(seed: int) -> None:
    check_promises((seed,))


@pytest.mark.soak(stays="tests/clusters/test_seeds.py::test_a_cluster_keeps_its_promises_in_short_worlds")
@pytest.mark.parametrize("first", range(IN_SLOW, IN_SLOW + IN_SOAK, CHUNK))
def test_a_cluster_keeps_its_promises_in_many_more_worlds(first: int) -> None:
    check_promises(range(first, first + CHUNK))
