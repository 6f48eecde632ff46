"""Queues and share groups in simulated worlds, on one node and on clusters: they keep their promises, and broken ones are caught.

`make test` runs some tens of worlds, `make soak` two thousand more; `penstock simulate --queues --seed N` replays one.
"""

import os
import subprocess
import sys

import pytest

from penstock.simulator.clusters.run import run_cluster_seed
from penstock.simulator.queue_rules import QUEUE_RULES
from penstock.simulator.queue_variants import QUEUE_VARIANTS
from penstock.simulator.run import run_seed
from penstock.simulator.share_rules import SHARE_RULES
from penstock.simulator.share_variants import SHARE_VARIANTS

CHUNK = 10
IN_SUITE, IN_SOAK = 30, 1_500
CLUSTERS_IN_SUITE, CLUSTERS_IN_SOAK = 6, 500
SEEDS_MAX = 300
# Each has found something once. When the draw of worlds has changed they find nothing: tests/broker/queues/test_bucket_files.py,
# test_found_by_simulation.py and test_redrives.py, tests/broker/test_housekeeping.py, tests/queues/test_failing.py,
# tests/log/test_flushing.py, test_failed_flush_and_power_cut.py and tests/test_packed.py hold the same in other words.
KEPT = (501_196, 501_613, 502_038, 700_192, 700_365, 903_069, 1_003_135, 1_003_427, 1_003_480)
CLUSTERS_KEPT = (300_194, 300_394, 300_519, 400_104, 600_262, 600_364, 800_595)
CALM = "in the calm queues are emptied"  # Not a rule about what was told, but about what is left.
pytestmark = [
    pytest.mark.invariant(
        "share.one-holder",
        "share.accepted-stays-accepted",
        "share.deliveries-counted",
        "queues.no-message-lost",
        "queues.one-holder",
        "queues.no-early-delivery",
        "queues.deliveries-counted",
        "queues.done-stays-done",
        "queues.body-matches-send",
        "queues.only-holder-settles",
        "queues.lease-numbers-unique",
        "queues.lease-expires",
        "queues.fifo-order",
        "queues.priority-order",
        "queues.pause-purge-rewind",
        "queues.dedup-window",
        "queues.dead-letter-after-limit",
        "queues.dead-letter-once",
        "queues.message-moved-once",
        "queues.lease-durable-first",
        "queues.batched-callers-isolated",
        "queues.undo-only-undelivered",
        "queues.state-survives-failover",
    ),
]

# Which rule catches which defect, and the seed that was quickest. When the draw of seeds has changed, others are tried as well.
CAUGHT = {
    ("answers-before-the-ledger-is-durable", "what is done stays done"): 19,
    ("buries-too-early", "only the failed are buried"): 0,
    ("counts-no-deliveries", "deliveries are counted"): 0,
    ("does-not-pause", "a pause holds"): 45,
    ("does-not-purge", "what is purged is gone"): 12,
    ("does-not-rewind", "what is rewound comes again"): 2,
    ("drops-dead-letters", "no job is lost"): 19,
    ("drops-what-it-sends-back", "no job is lost"): 25,
    ("ends-leases-too-early", "a lease is one worker's"): 7,
    ("finishes-for-others", "what is done stays done"): 1,
    ("forgets-a-bucket-of-delays", CALM): 17,
    ("forgets-ids-at-a-load", "an id is sent once"): 7,
    ("forgets-leases-at-a-load", "what was lent is known"): 4,
    ("gives-dead-letters-other-ids", "ids keep"): 3,
    ("gives-lease-numbers-anew-at-a-load", "lease numbers are once"): 0,
    ("keeps-what-it-sends-back", "a job is finished once"): 25,
    ("keeps-no-order-in-groups", "groups go in order"): 0,
    ("knows-no-priorities", "the urgent go first"): 8,
    ("lends-a-part-to-two", "a lease is one worker's"): 1,
    ("lends-one-message-for-another", "what is lent was sent"): 0,
    ("lets-anybody-settle", "nothing is early"): 54,
    ("lets-delayed-messages-out-early", "delays are kept"): 1,
    ("sends-dead-letters-again", "dead letters are once"): 356,
    ("tells-senders-of-each-others-messages", "what is lent was sent"): 2,
    ("trims-what-is-unfinished", "who holds may settle"): 57,
    ("undoes-what-somebody-has", "deliveries are counted"): 12,
    # Of share groups.
    ("counts-no-share-deliveries", "share deliveries are counted"): 11,
    ("ends-locks-too-early", "a record is one member's"): 11,
    ("forgets-what-a-group-has-done-at-a-load", "what is over stays over"): 3,
    ("takes-a-rejection-for-a-release", "what is over stays over"): 24,
    ("takes-a-release-for-the-end", "no shared record is lost"): 24,
}


def check_promises(first: int, count: int = CHUNK) -> None:
    for seed in range(first, first + count):
        violations = run_seed(seed, has_queues=True).violations
        assert not violations, f"penstock simulate --queues --seed {seed}: {violations[0]}"


def check_clusters(first: int, count: int) -> None:
    for seed in range(first, first + count):
        violations = run_cluster_seed(seed, has_queues=True).violations
        assert not violations, f"penstock simulate --queues --cluster --seed {seed}: {violations[0]}"


@pytest.mark.parametrize("first", range(0, IN_SUITE, CHUNK))
def test_queues_keep_their_promises_in_every_world(first: int) -> None:
    check_promises(first)


def test_queues_of_clusters_keep_their_promises_in_every_world() -> None:
    check_clusters(0, CLUSTERS_IN_SUITE)


@pytest.mark.parametrize("seed", KEPT)
def test_what_was_found_once_is_not_found_again(seed: int) -> None:
    check_promises(seed, 1)


@pytest.mark.parametrize("seed", CLUSTERS_KEPT)
def test_what_a_cluster_has_found_once_is_not_found_again(seed: int) -> None:
    check_clusters(seed, 1)


@pytest.mark.soak(stays="tests/simulator/test_queue_seeds.py::test_queues_keep_their_promises_in_every_world")
@pytest.mark.parametrize("first", range(IN_SUITE, IN_SUITE + IN_SOAK, CHUNK))
def test_queues_keep_their_promises_in_many_more_worlds(first: int) -> None:
    check_promises(first)


@pytest.mark.soak(stays="tests/simulator/test_queue_seeds.py::test_queues_of_clusters_keep_their_promises_in_every_world")
@pytest.mark.parametrize("first", range(CLUSTERS_IN_SUITE, CLUSTERS_IN_SUITE + CLUSTERS_IN_SOAK, 10))
def test_queues_of_clusters_keep_their_promises_in_many_more_worlds(first: int) -> None:
    check_clusters(first, 10)


@pytest.mark.parametrize(("variant", "rule"), CAUGHT)
def test_broken_queues_are_caught(variant: str, rule: str) -> None:
    seeds = [CAUGHT[variant, rule], *range(SEEDS_MAX)]
    caught = (any(found.rule == rule for found in run_seed(seed, variant=variant, has_queues=True).violations) for seed in seeds)
    assert any(caught), f"no seed below {SEEDS_MAX} finds by {rule!r} that the node {variant}"


def test_every_defect_and_every_rule_has_its_turn() -> None:
    assert {variant for variant, _ in CAUGHT} == set(QUEUE_VARIANTS | SHARE_VARIANTS)
    assert {rule for _, rule in CAUGHT} == {*QUEUE_RULES, *SHARE_RULES, CALM}


def test_a_world_of_queues_is_one_story_in_every_process() -> None:
    script = "from penstock.simulator.run import run_seed; print(run_seed(6, has_queues=True).trace_hash)"
    environment = os.environ | {"PYTHONHASHSEED": "5", "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    command = [sys.executable, "-W", "ignore", "-c", script]
    told = subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout
    assert told.strip() == run_seed(6, has_queues=True).trace_hash
