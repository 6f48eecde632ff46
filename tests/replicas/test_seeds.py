"""Replicas in drawn worlds: whatever the seed, they keep their promises, and the seed alone tells what happens.

`make test` runs five hundred stories, `make soak` fifty thousand.
"""

import os
import subprocess
import sys
from collections import Counter

import pytest

from penstock.simulator.replicas.plan import AMBUSHES, FAULTS
from penstock.simulator.replicas.run import run_seed

pytestmark = pytest.mark.invariant(
    "replication.acked-is-kept",
    "replication.last-replica-leads",
    "replication.old-leader-acks-nothing",
    "replication.logs-agree",
    "replication.in-sync-has-committed",
    "replication.truncate-by-epoch",
    "replication.end-offset-never-back",
)

CHUNK = 100
FIRST = 300  # So many are sure to meet everything.
IN_SUITE = 500
IN_SOAK = 50_000


def check_seeds(seeds: range) -> Counter[str]:
    seen: Counter[str] = Counter()
    for seed in seeds:
        report = run_seed(seed)
        assert report.violation is None, f"seed {seed}: {report.violation}"
        seen += report.statistics
    return seen


@pytest.mark.parametrize("first", range(FIRST, IN_SUITE, CHUNK))
def test_every_seed_keeps_the_promises(first: int) -> None:
    seen = check_seeds(range(first, first + CHUNK))
    assert seen["records acknowledged"] > CHUNK
    assert seen["leader epochs"] > CHUNK / 2
    assert seen["versions"] > seen["leader epochs"]


@pytest.mark.soak(stays="tests/replicas/test_seeds.py::test_every_seed_keeps_the_promises")
@pytest.mark.timeout(900)
@pytest.mark.parametrize("first", range(IN_SUITE, IN_SOAK, CHUNK * 10))
def test_every_seed_keeps_the_promises_for_long(first: int) -> None:
    check_seeds(range(first, first + CHUNK * 10))


def test_every_kind_of_trouble_comes_to_the_first() -> None:
    seen = check_seeds(range(FIRST))
    assert [kind for kind in FAULTS if not seen[f"struck: {kind}"]] == []
    assert [kind for kind in AMBUSHES if not seen[f"struck: ambush {kind}"]] == []


def test_a_seed_tells_the_same_story_in_another_process() -> None:
    seeds = (7, 42, 242)
    script = f"from penstock.simulator.replicas.run import run_seed; print([run_seed(seed).trace for seed in {seeds}])"
    environment = os.environ | {"PYTHONHASHSEED": "99", "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    command = [sys.executable, "-W", "ignore", "-c", script]
    told = subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout
    assert told.strip() == str([run_seed(seed).trace for seed in seeds])
