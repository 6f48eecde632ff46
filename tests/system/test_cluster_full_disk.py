"""A disk fills up in a cluster of processes: producers go on, the node can be drained, and it takes part again when there is room."""

from pathlib import Path

import pytest
from cli.running import penstock
from system import librdkafka
from system.clusters import Cluster, until
from system.diary import check, writing
from system.lazy_disk import LazyDisk

pytestmark = [pytest.mark.paired, pytest.mark.timeout(900), pytest.mark.needs("fuse")]

PARTITIONS = 6
SETTINGS = {"replica.lag.time.max.ms": 2_000, "leader.imbalance.check.interval.seconds": 1, "offsets.topic.num.partitions": 1}


@pytest.mark.invariant("replication.full-disk-hands-over", "node.reserve-for-moves")
def test_producers_go_on_while_a_node_with_a_full_disk_is_drained(tmp_path: Path) -> None:
    with LazyDisk(tmp_path / "disk") as disk:
        disks = [disk.path, tmp_path / "second", tmp_path / "third"]
        with Cluster(tmp_path / "cluster", settings=SETTINGS, disks=disks) as cluster:
            full = cluster.node(1)
            topic = librdkafka.make_topic(cluster.bootstrap, "load", PARTITIONS, 2, min_insync_replicas=1)

            def states() -> list[tuple[int, tuple[int, ...]]]:
                return [(one.leader, one.replicas) for one in cluster.node(2).view().topics[topic].values()]

            with writing(cluster.bootstrap, topic, PARTITIONS, writer="w", is_idempotent=True, per_second=200) as diary:
                diary.wait_for_more(50)
                assert any(leader == 1 for leader, _ in states())
                disk.room(0, gives_back=True)
                until(lambda: all(leader != 1 for leader, _ in states()), "others lead", why=lambda: str(states()))
                diary.wait_for_more(50)
                assert full.metric("penstock_disk_is_short") == 1
                ended = penstock("cluster", "drain", "1", "--execute", "--bootstrap", cluster.bootstrap)
                assert ended.code == 0, ended.out + ended.err
                assert all(1 not in replicas for _, replicas in states())
                disk.room(None)
                until(lambda: full.metric("penstock_disk_is_short") == 0, "there is room again")
                assert full.metric("penstock_disk_reserve_bytes") > 0
                ended = penstock("cluster", "rebalance", "--execute", "--bootstrap", cluster.bootstrap)
                assert ended.code == 0, ended.out + ended.err
                until(lambda: any(leader == 1 for leader, _ in states()), "it leads again", why=lambda: str(states()))
                diary.wait_for_more(50)
            assert check(cluster.bootstrap, diary) == diary.sent
            assert cluster.complaints() == []
