"""Worlds whose nodes learn late, and in which topics are made again: promises are kept, and planted defects are caught."""

from collections import Counter

import pytest

from penstock.simulator.clusters.delivery_menu import with_deliveries
from penstock.simulator.clusters.lag_menu import REMADE_KINDS, with_lag
from penstock.simulator.clusters.lag_variants import LAG_VARIANTS
from penstock.simulator.clusters.menu import draw_cluster
from penstock.simulator.clusters.run import draw_menu, run_cluster_seed

SEEDS = range(200)
# Short ones, which together have every kind of user, with lags and without.
SHORT = (11, 37, 46)
pytestmark = [
    pytest.mark.timeout(600),
    pytest.mark.invariant(
        "controller.absent-is-not-deleted",
        "controller.topic-made-again-is-new",
        "transactions.all-or-nothing",
        "node.recreated-topic-is-new",
    ),
]

# Which rule catches which defect, and the seed that was quickest. When the draw of seeds has changed, others are tried as well.
CAUGHT = {
    ("keeps-ledgers-that-it-has-not-heard-of", "a share group gets all of a topic made again"): 77,
    ("removes-files-of-topics-that-it-does-not-know-yet", "in the calm everything is available"): 13,
    ("takes-a-topic-that-it-does-not-know-for-deleted", "what was committed is readable"): 54,
    ("takes-receipts-of-an-earlier-queue", "a queue made again gives what it was sent"): 46,
    ("tells-offsets-of-an-earlier-topic", "a topic made again is new"): 11,
}
SEEDS_MAX = 60


def test_every_kind_of_user_is_drawn_with_lags_and_without() -> None:
    kinds = Counter((client.kind, bool(menu.lags)) for menu in map(draw_menu, SEEDS) for client in menu.clients)
    assert all(kinds[kind, is_lagged] for kind in REMADE_KINDS for is_lagged in (True, False))
    assert {menu.is_quiet for menu in map(draw_menu, SEEDS)} == {True, False}


def test_other_seeds_stay_what_they_were() -> None:
    menus = [(before, with_lag(before)) for before in map(with_deliveries, map(draw_cluster, SEEDS))]
    untouched = [(before, after) for before, after in menus if before == after]
    assert len(untouched) > len(SEEDS) // 2
    assert all(after.clients[: len(before.clients)] == before.clients for before, after in menus)


@pytest.mark.parametrize("seed", SHORT)
def test_topics_that_are_made_again_keep_their_promises(seed: int) -> None:
    report = run_cluster_seed(seed)
    assert not report.violations, f"penstock simulate --cluster --seed {seed}: {report.violations[0]}"
    users = [client.kind.split()[-1] for client in draw_menu(seed).clients if client.kind in REMADE_KINDS]
    assert users
    assert all(report.statistics[f"op topic made again under a {user} begun"] for user in users)


def test_short_worlds_have_every_kind_of_user() -> None:
    assert {client.kind for seed in SHORT for client in draw_menu(seed).clients} >= set(REMADE_KINDS)


@pytest.mark.parametrize(("variant", "rule"), CAUGHT)
def test_a_cluster_that_takes_absence_for_evidence_is_caught(variant: str, rule: str) -> None:
    seeds = [CAUGHT[variant, rule], *range(SEEDS_MAX)]
    caught = (any(found.rule == rule for found in run_cluster_seed(seed, variant=variant).violations) for seed in seeds)
    assert any(caught), f"no seed below {SEEDS_MAX} finds by {rule!r} that the cluster {variant}"


def test_every_defect_has_its_turn() -> None:
    assert {variant for variant, _ in CAUGHT} == set(LAG_VARIANTS)
