"""A seed alone decides what happens: another process tells the same story, where other worlds came before it and strings have other hashes.

That process tells stories of every kind of world, because to start it and to load a node takes longer than a story. It tells them in the
opposite order, so that whatever one world leaves to the next shows.
"""

import json
import os
import subprocess
import sys

import pytest

from penstock.simulator.clusters.run import run_cluster_seed
from penstock.simulator.cores.run import run_seed as run_cores
from penstock.simulator.replicas.run import run_seed as run_replicas
from penstock.simulator.run import run_seed

SHORT = ("node 44", "queues 48", "cluster 2", "cores 1", "cores 17", "cores 58", "replicas 7", "replicas 42", "replicas 242")
LONG = ("node 3", "node 250", "queues 6", "cluster 5")


def story(world: str) -> str | int:
    """The hash of everything that happened, in order."""
    kind, seed = world.split()
    match kind:
        case "node":
            return run_seed(int(seed)).trace_hash
        case "queues":
            return run_seed(int(seed), has_queues=True).trace_hash
        case "cluster":
            return run_cluster_seed(int(seed)).trace_hash
        case "cores":
            return run_cores(int(seed)).trace
        case "replicas":
            return run_replicas(int(seed)).trace
    raise ValueError(f"there is no world of {kind}")


@pytest.mark.invariant("simulator.node-seed-deterministic", "simulator.cluster-seed-deterministic")
@pytest.mark.parametrize("worlds", [SHORT, pytest.param(LONG, marks=pytest.mark.soak)], ids=["short", "long"])
def test_a_seed_is_one_story_in_every_process(worlds: tuple[str, ...]) -> None:
    environment = os.environ | {"PYTHONHASHSEED": "1", "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    command = [sys.executable, "-W", "ignore", __file__, *worlds]
    told = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True).stdout
    assert json.loads(told) == {world: story(world) for world in reversed(worlds)}


if __name__ == "__main__":
    print(json.dumps({world: story(world) for world in sys.argv[1:]}))
