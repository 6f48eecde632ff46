"""Operators in simulated cluster worlds: who moves partitions, adds partitions and nodes, and changes the voters, while faults strike.

`make test` runs some short worlds of each, `make test-slow` more; the worlds of test_seeds.py have such operators by chance. Broken
clusters are caught by worlds that were not made for the defect.
"""

from collections import Counter
from functools import cache

import pytest

from penstock.simulator.clusters.delivery_menu import with_deliveries
from penstock.simulator.clusters.machining import FORGOTTEN_RULE
from penstock.simulator.clusters.menu import draw_cluster
from penstock.simulator.clusters.move_variants import MOVE_VARIANTS
from penstock.simulator.clusters.move_watching import END_RULE, EPOCH_RULE, JOIN_RULE
from penstock.simulator.clusters.moves_menu import GROW, JOIN, KINDS, MOVE, VOTE, with_moves
from penstock.simulator.clusters.moves_reckoning import GROWTH_RULE, NODES_RULE, PLACE_RULE
from penstock.simulator.clusters.moving import LEAD_RULE
from penstock.simulator.clusters.run import draw_menu, run_cluster_seed
from penstock.simulator.run import Report

SEEDS_MAX = 60
# Of the first 120 those that take least time and together complete every operation, and each of them also while a fault is there.
SHORT = (12, 23, 44, 46, 71, 75, 82, 83)
# 27, 34 and 95 found something once: tests/clusters/test_few_replicas.py, and readings of the simulator's own that were too strict.
IN_SLOW = (27, 34, *range(80, 104))
OPERATIONS = (
    "move", "move begun again", "move given up", "lead", "lead: order", "preferred election", "throttle set", "throttle taken back",
    "partitions added", "node added", "node drained", "node forgotten", "node forgotten too early", "node added again", "node replaced",
    "voter added", "voter removed",
)  # fmt: skip
pytestmark = [
    pytest.mark.timeout(600),
    pytest.mark.invariant(
        "replication.moves-end-as-asked",
        "replication.returning-copy-is-new",
        "replication.added-partitions-stay",
        "replication.nodes-come-and-go",
        "controller.reassignment-keeps-copies",
    ),
]

# Which rule catches which defect, and the seed that was quickest. When the draw of seeds has changed, others are tried as well.
CAUGHT = {
    ("adds-partitions-with-one-replica", GROWTH_RULE): 2,
    ("begins-no-epoch-when-a-replica-leaves", EPOCH_RULE): 75,
    ("counts-what-a-replica-reported-before-it-left", JOIN_RULE): 67,
    ("drops-a-replica-when-a-move-is-given-up", PLACE_RULE): 28,
    ("ends-moves-before-the-new-replicas-are-in-sync", END_RULE): 68,
    ("forgets-nodes-that-hold-replicas", FORGOTTEN_RULE): 12,
    ("keeps-nodes-that-were-forgotten", NODES_RULE): 12,
    ("says-that-it-elected-whom-it-did-not", LEAD_RULE): 75,
}


@cache
def report(seed: int) -> Report:
    return run_cluster_seed(seed)


def operators(seed: int) -> set[str]:
    return {client.kind for client in draw_menu(seed).clients} & set(KINDS)


def check(seed: int) -> None:
    violations = report(seed).violations
    assert not violations, f"penstock simulate --cluster --seed {seed}: {violations[0]}"


@pytest.mark.parametrize("seed", SHORT)
def test_a_cluster_is_what_its_operators_asked_for(seed: int) -> None:
    check(seed)


@pytest.mark.slow(stays="tests/clusters/test_moving_worlds.py::test_a_cluster_is_what_its_operators_asked_for")
@pytest.mark.parametrize("seed", IN_SLOW)
def test_a_cluster_is_what_its_operators_asked_for_in_more_worlds(seed: int) -> None:
    check(seed)


def test_every_operation_is_completed_and_overlaps_a_fault() -> None:
    counts: Counter[str] = Counter()
    for seed in SHORT:
        counts.update(report(seed).statistics)
    idle = [name for name in OPERATIONS if not counts[f"op {name} completed"] or not counts[f"op {name} overlapped a fault"]]
    assert not idle, f"no short world completes these while a fault is there: {idle}"


def test_every_operator_is_drawn_and_the_rest_of_a_menu_stays_what_it_was() -> None:
    drawn = Counter(kind for seed in range(200) for kind in operators(seed))
    assert all(drawn[kind] >= 10 for kind in (MOVE, GROW, JOIN, VOTE)), drawn
    for seed in range(50):
        plain = with_deliveries(draw_cluster(seed))
        moved = with_moves(plain)
        assert moved.topics[: len(plain.topics)] == plain.topics
        assert moved.clients[: len(plain.clients)] == plain.clients
        assert moved.nodes == plain.nodes
        assert moved == plain or {client.kind for client in moved.clients} & set(KINDS)


@pytest.mark.parametrize(("variant", "rule"), CAUGHT)
def test_broken_moves_are_caught(variant: str, rule: str) -> None:
    seeds = [CAUGHT[variant, rule], *range(SEEDS_MAX)]
    caught = (any(found.rule == rule for found in run_cluster_seed(seed, variant=variant).violations) for seed in seeds)
    assert any(caught), f"no seed below {SEEDS_MAX} finds by {rule!r} that the cluster {variant}"


def test_every_defect_has_its_turn() -> None:
    assert {variant for variant, _ in CAUGHT} == set(MOVE_VARIANTS)
