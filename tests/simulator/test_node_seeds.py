"""A whole node in simulated worlds: whatever the seed, it keeps its promises, and the seed alone tells what happens.

`make test` runs sixty worlds, `make soak` five thousand more; `penstock simulate --seed N` replays one.
"""

import os
import subprocess
import sys

import pytest

from penstock.simulator.run import run_seed

CHUNK = 10
IN_SUITE = 60
IN_SOAK = 5_000
pytestmark = pytest.mark.timeout(600)


def check_promises(first: int) -> None:
    for seed in range(first, first + CHUNK):
        violations = run_seed(seed).violations
        assert not violations, f"penstock simulate --seed {seed}: {violations[0]}"


@pytest.mark.parametrize("first", range(0, IN_SUITE, CHUNK))
def test_a_node_keeps_its_promises_in_every_world(first: int) -> None:
    check_promises(first)


@pytest.mark.soak
@pytest.mark.parametrize("first", range(IN_SUITE, IN_SUITE + IN_SOAK, CHUNK))
def test_a_node_keeps_its_promises_in_many_more_worlds(first: int) -> None:
    check_promises(first)


@pytest.mark.parametrize("seed", [44, *(pytest.param(seed, marks=pytest.mark.soak) for seed in (3, 250))])
def test_a_seed_is_one_story_in_every_process(seed: int) -> None:
    script = f"from penstock.simulator.run import run_seed; print(run_seed({seed}).trace_hash)"

    def elsewhere(hash_seed: str) -> str:
        """In a process that has done nothing else. Here much has happened before, and strings have other hashes."""
        environment = os.environ | {"PYTHONHASHSEED": hash_seed, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
        command = [sys.executable, "-W", "ignore", "-c", script]
        return subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout.strip()

    assert elsewhere("1") == run_seed(seed).trace_hash
