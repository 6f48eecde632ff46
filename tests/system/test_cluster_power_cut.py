"""The power goes in all nodes of a cluster at once, under load: what was acknowledged is there when it comes back.

Replication alone saves nobody here: what no node had flushed is gone everywhere. That is why the acknowledgement waits for the flush.
"""

import os
import random
import signal
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from system import librdkafka
from system.clusters import Cluster
from system.diary import check, writing
from system.lazy_disk import LazyDisk
from system.lazy_tree import Cut
from system.replica_logs import check_replicas_agree
from tiers import pick

pytestmark = [pytest.mark.paired, pytest.mark.timeout(900), pytest.mark.needs("fuse")]

ROUNDS = int(os.environ.get("PENSTOCK_ROUNDS", pick(test=2, slow=4)))
SOAK_ROUNDS = int(os.environ.get("PENSTOCK_ROUNDS", "30"))
both = pytest.mark.parametrize("rounds", [ROUNDS, pytest.param(SOAK_ROUNDS, marks=[pytest.mark.soak, pytest.mark.timeout(3_600)])])

PARTITIONS = 4
SETTINGS = {"checkpoint.interval.bytes": 16 * 1024, "offsets.topic.num.partitions": 1}
SEGMENT_BYTES = 32 * 1024
PER_SECOND = pick(test=400, slow=1_000)


@pytest.fixture
def disks(tmp_path: Path) -> Iterator[list[LazyDisk]]:
    with ExitStack() as mounted:
        yield [mounted.enter_context(LazyDisk(tmp_path / f"disk-{number}")) for number in (1, 2, 3)]


def power_cut(cluster: Cluster, disks: list[LazyDisk], how: Cut, *, seed: int, at_write: int) -> None:
    """The first disk goes at some write, the others the next moment: nodes hang on their dead disks, and can promise nothing any more."""
    disks[0].cut_at_write(at_write, how, seed=seed)
    for number, disk in enumerate(disks[1:], 1):
        disk.cut(how, seed=seed + number)
    for member in cluster.members:
        member.signal(signal.SIGKILL)
    for disk in disks:
        disk.restore()
    for member in cluster.members:
        member.wait()


@pytest.mark.repeats
@both
def test_what_was_acknowledged_survives_a_power_cut_of_all_nodes(tmp_path: Path, disks: list[LazyDisk], rounds: int) -> None:
    rng = random.Random(f"all nodes {rounds}")
    with Cluster(tmp_path / "cluster", settings=SETTINGS, disks=[disk.path for disk in disks]) as cluster:
        topic = librdkafka.make_topic(cluster.bootstrap, "load", PARTITIONS, 3, min_insync_replicas=2, segment_bytes=SEGMENT_BYTES)
        with writing(cluster.bootstrap, topic, PARTITIONS, writer="w", is_idempotent=True, per_second=PER_SECOND) as diary:
            for seed in range(rounds):
                diary.wait_for_more(50)
                power_cut(cluster, disks, list(Cut)[seed % 3], seed=10 * seed, at_write=rng.randint(10, 100))
                cluster.start()
                cluster.wait_until_full(topic)
        assert check(cluster.bootstrap, diary) == diary.sent >= rounds * 50
        assert check_replicas_agree(topic, cluster.log_directories(topic)) > 0
        assert cluster.complaints() == []
