"""One seed, one history: in another process, with another hash seed, under power cuts, resets and stalls.

The workload is a small log server and its clients, so that a run also shows what the world is for: the server that flushes before it
acknowledges never loses an acknowledged line, and the one that does not is caught.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from line_log import Diary, LogServer, send_lines

from penstock.simulator.disk_faults import DiskFaults
from penstock.simulator.links import LinkQuality
from penstock.simulator.world import World

ROOT = Path(__file__).parents[2]
CLIENTS = 3


def run(seed: int, *, flushes: bool = True, seconds: float = 5.0) -> tuple[str, set[bytes], Diary]:
    """Returns the trace hash, the acknowledged lines that are missing at the end, and the diary."""
    diary = Diary()
    faults = DiskFaults(cold_read=0.2, slow_sync=0.01)
    with World(seed, disk_faults=faults, link_quality=LinkQuality(reset=0.002, split=0.2)) as world:
        server = LogServer(flushes=flushes)
        world.start("node", server.serve)
        for index in range(CLIENTS):
            world.start(f"client-{index}", lambda env, index=index: send_lines(env, f"client-{index}", diary))  # type: ignore[misc]
        for _ in range(int(seconds)):
            world.run_for(world.rng.random() * 2)
            world.power_cut("node")
            world.start("node", server.serve)
            if world.rng.random() < 0.5:
                world.network.stall("node", f"client-{world.rng.randrange(CLIENTS)}", world.rng.random())
        world.run_for(1)
        assert world.complaints() == []
        kept = set(world.host("node").disk.snapshot("log").splitlines(keepends=True))
        return world.trace_hash(), diary.acknowledged - kept, diary


def hash_in_another_process(seed: int, hash_seed: str) -> str:
    environment = {**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT / 'tests'}"}
    done = subprocess.run([sys.executable, __file__, str(seed)], env=environment, capture_output=True, text=True, check=True)
    return done.stdout.strip()


@pytest.mark.parametrize("seed", [1, 2])
def test_another_process_with_another_hash_seed_gives_the_same_trace_hash(seed: int) -> None:
    here, _, diary = run(seed)
    assert diary.acknowledged
    assert {hash_in_another_process(seed, hash_seed) for hash_seed in ("0", "1", "12345")} == {here}


def test_other_seeds_give_other_traces() -> None:
    assert len({run(seed, seconds=1)[0] for seed in range(5)}) == 5


def test_acknowledged_lines_survive_power_cuts_when_flushed_first() -> None:
    for seed in range(8):
        _, missing, diary = run(seed)
        assert len(diary.acknowledged) > 30
        assert missing == set()


def test_a_server_that_acknowledges_before_the_flush_is_caught() -> None:
    assert any(run(seed, flushes=False)[1] for seed in range(5))


if __name__ == "__main__":
    print(run(int(sys.argv[1]))[0])
