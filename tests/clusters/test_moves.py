"""Replicas that come, go and are replaced: what a node holds follows from the image, whatever it missed of how that came about."""

from typing import Any

import pytest
from clusters.scene import TOPIC, Scene

from penstock.broker import quorum_snapshots
from penstock.broker.partitions import topic_directory
from penstock.errors import ErrorCode
from penstock.peers.client import Client
from penstock.peers.fetching import whole_batches
from penstock.vocabulary import TopicId, TopicPartition
from penstock.wire.api_keys import ApiKey

WHERE = TopicPartition(TOPIC, 0)


def reassign(cluster: Scene, replicas: list[int] | None, topic: str = TOPIC) -> None:
    """None: gives up what is under way."""

    async def ask(client: Client) -> Any:
        connection = await client.router.any_node(client.router.deadline(10.0))
        rows = [{"partition_index": 0, "replicas": replicas}]
        return await connection.call(
            ApiKey.ALTER_PARTITION_REASSIGNMENTS, {"timeout_ms": 5_000, "topics": [{"name": topic, "partitions": rows}]}, timeout_s=10.0
        )

    answer = cluster.do(ask)
    assert answer.error_code == 0 and answer.responses[0].partitions[0].error_code == 0, answer


def files_of(cluster: Scene, node: int, topic_id: bytes) -> list[str]:
    return cluster.world.hosts[cluster.host(node)].disk.list(topic_directory(TopicId(topic_id), 0))


def test_a_replica_that_is_moved_takes_its_records_along_and_leaves_no_files() -> None:
    with Scene(replication_throttle=20_000) as cluster:
        topic_id = cluster.create(replicas=2)
        state = cluster.cluster.state(TOPIC, 0)
        assert state is not None
        old, new = [int(node) for node in state.replicas], next(node for node in (1, 2, 3) if node not in state.replicas)
        for number in range(30):
            cluster.produce(b"%d" % number * 500)
        assert files_of(cluster, old[0], topic_id)
        reassign(cluster, [old[1], new])
        cluster.until(lambda: cluster.in_sync() == {old[1], new} and not files_of(cluster, old[0], topic_id))
        cluster.produce(b"after")
        cluster.check()


def test_a_replica_that_was_moved_away_while_its_node_was_down_goes_when_that_is_back() -> None:
    with Scene() as cluster:
        topic_id = cluster.create(replicas=2)
        state = cluster.cluster.state(TOPIC, 0)
        assert state is not None
        old, new = [int(node) for node in state.replicas], next(node for node in (1, 2, 3) if node not in state.replicas)
        cluster.produce(b"a")
        cluster.kill(old[0])
        cluster.until(lambda: cluster.leader() == old[1])
        reassign(cluster, [old[1], new])
        cluster.until(lambda: cluster.in_sync() == {old[1], new})
        assert files_of(cluster, old[0], topic_id)
        cluster.start(old[0])
        cluster.until(lambda: not files_of(cluster, old[0], topic_id))
        cluster.check()


def test_a_damaged_replica_is_fetched_anew_and_what_was_there_is_put_aside() -> None:
    with Scene() as cluster:
        topic_id = cluster.create(min_insync_replicas=1)
        for number in range(20):
            cluster.produce(b"%d" % number * 50)
        hurt = cluster.followers()[0]
        cluster.stop(hurt)
        disk = cluster.world.hosts[cluster.host(hurt)].disk
        directory = topic_directory(TopicId(topic_id), 0)
        disk.unlink(f"{directory}/{0:020}.log")
        cluster.produce(b"meanwhile")
        cluster.start(hurt)
        cluster.until(lambda: cluster.in_sync() == {1, 2, 3})
        assert disk.list(directory + ".damaged")
        assert any("is fetched anew" in line for line in cluster.reports.lines)
        cluster.check()


def test_a_node_that_missed_much_is_given_what_holds_now(monkeypatch: Any) -> None:
    """Its part of the metadata log is gone at the others: it gets their snapshot, and acts on what that says."""
    monkeypatch.setattr(quorum_snapshots, "SNAPSHOT_EVERY_BYTES", 500)
    with Scene(offsets_topic_num_partitions=1) as cluster:
        gone_id = cluster.create("gone")
        kept_id = cluster.create()
        cluster.produce(b"a")
        away = cluster.followers()[0]
        assert cluster.world.hosts[cluster.host(away)].disk.list(topic_directory(TopicId(gone_id), 0))
        cluster.cut(away)
        cluster.until(lambda: away not in cluster.in_sync())
        cluster.do(lambda client: client.delete_topic("gone"))
        for number in range(30):
            cluster.do(lambda client, number=number: client.create_topic(f"t{number}", partitions=2, replication_factor=2))
        cluster.produce(b"b")
        cluster.heal()
        cluster.until_available()
        node = cluster.node(away)
        assert "gone" not in node.image.topics and len(node.image.topics) >= 31
        cluster.until(lambda: not cluster.world.hosts[cluster.host(away)].disk.list(topic_directory(TopicId(gone_id), 0)))
        assert node.partitions.find_by_id(TopicId(kept_id), 0) is not None
        held = sum(away in state.replicas for _, _, state in node.image.each_partition())
        assert len(node.partitions) == held
        cluster.check()


def test_offsets_of_a_deleted_topic_are_forgotten_where_none_of_it_was_held() -> None:
    with Scene(offsets_topic_num_partitions=1, offsets_replication_factor=1) as cluster:
        cluster.create(replicas=1)
        cluster.produce(b"a")
        cluster.do(lambda client: client.commit_offsets("g", {WHERE: 1}))
        coordinator = cluster.leads("__consumer_offsets")
        elsewhere = next(node for node in (1, 2, 3) if node != coordinator)
        reassign(cluster, [elsewhere])
        cluster.until(lambda: cluster.leader() == elsewhere)
        assert cluster.node(coordinator).partitions.find(*WHERE) is None
        assert WHERE in cluster.do(lambda client: client.committed_offsets("g"))
        cluster.do(lambda client: client.delete_topic(TOPIC))
        cluster.until(lambda: WHERE not in cluster.do(lambda client: client.committed_offsets("g")))
        cluster.promised.clear()


def fetched(cluster: Scene, node: int, rack: str) -> Any:
    """The row that this very node answers to a consumer in that rack."""
    body = {
        "max_wait_ms": 0, "min_bytes": 0, "max_bytes": 1 << 20, "rack_id": rack, "session_id": 0, "session_epoch": -1,
        "topics": [{"topic": TOPIC, "partitions": [{"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1 << 20}]}],
        "forgotten_topics_data": [],
    }  # fmt: skip
    return cluster.ask_at(node, ApiKey.FETCH, 12, body).responses[0].partitions[0]


def test_a_consumer_reads_from_the_replica_in_its_rack() -> None:
    with Scene(replica_selector="rack") as cluster:
        cluster.create()
        leader, other = cluster.leads(), cluster.followers()[0]
        cluster.produce(b"a", b"b")
        cluster.run_for(2)  # The follower hears of the watermark when it next asks.
        row = fetched(cluster, leader, "")
        assert row.preferred_read_replica == -1 and row.records
        row = fetched(cluster, leader, f"rack-{other}")
        assert (row.preferred_read_replica, bool(row.records)) == (other, False)
        row = fetched(cluster, other, f"rack-{other}")
        assert [header.record_count for header, _ in whole_batches(row.records)] == [2]


def test_a_follower_answers_only_readers_that_mean_it() -> None:
    """One without a rack takes it for the leader, and must hear that it is not."""
    with Scene() as cluster:
        cluster.create()
        leader, other = cluster.leads(), cluster.followers()[0]
        cluster.produce(b"a", b"b")
        cluster.run_for(2)
        assert fetched(cluster, other, "").error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        row = fetched(cluster, other, "any")
        assert (row.error_code, [header.record_count for header, _ in whole_batches(row.records)]) == (ErrorCode.NONE, [2])
        row = fetched(cluster, leader, "any")
        assert row.preferred_read_replica == -1 and row.records


def test_a_throttle_holds_back_no_replica_that_was_there_before() -> None:
    with Scene(replication_throttle=1) as cluster:
        cluster.create(min_insync_replicas=1)
        away = cluster.followers()[0]
        cluster.kill(away)
        cluster.until(lambda: away not in cluster.in_sync())
        for number in range(20):
            cluster.produce(b"%d" % number * 500)
        cluster.start(away)
        cluster.until(lambda: away in cluster.in_sync())
        cluster.check()


class HalfRemoved:
    """The disk fails while a replica that was moved away is being removed: its checkpoints and first records are gone, others are left."""

    def __init__(self, cluster: Scene, node: int, topic_id: bytes) -> None:
        self.disk = cluster.world.hosts[cluster.host(node)].disk
        self.directory = topic_directory(TopicId(topic_id), 0)
        self.is_met = False
        self.disk.fail_next_unlink_where(self._fails)

    def _fails(self, path: str) -> bool:
        folder = path.rpartition("/")[0]
        if folder.removesuffix(".dropped") == self.directory:
            left = self.disk.list(folder)
            segments = [name for name in left if name.endswith(".log")]
            is_first_gone = f"{0:020}.log" not in left
            self.is_met = is_first_gone and len(segments) > 1 and not any(name.startswith("checkpoint") for name in left)
        return self.is_met


@pytest.mark.invariant("replication.damaged-copy-not-trusted")
def test_what_is_left_of_a_replica_that_was_being_removed_is_never_opened_again() -> None:
    with Scene(("controller", "broker", "broker", "broker"), scrub_rate=0) as cluster:
        topic_id = cluster.create(replicas=2, segment_bytes=2048, min_insync_replicas=1)
        leader, old = cluster.leads(), cluster.followers()[0]
        (new,) = {2, 3, 4} - {leader, old}
        for number in range(30):
            cluster.produce(b"%d" % number * 150)
        cluster.run_for(5)
        half = HalfRemoved(cluster, old, topic_id)
        reassign(cluster, [leader, new])
        cluster.until(lambda: half.is_met)
        cluster.kill(old)
        cluster.until(lambda: cluster.in_sync() == {leader, new})
        reassign(cluster, [leader, old])
        cluster.run_for(1)
        cluster.start(old)
        cluster.until(lambda: cluster.in_sync() == {leader, old})
        cluster.stop(leader)
        cluster.until(lambda: cluster.leader() == old)
        assert len(cluster.read()) == 30
        cluster.until(lambda: half.disk.list(topic_directory(TopicId(topic_id))) == ["0"])
        cluster.check()


@pytest.mark.invariant("replication.damaged-copy-not-trusted")
def test_a_copy_that_has_lost_its_first_records_does_not_join_although_nothing_else_tells() -> None:
    """Neither a checkpoint nor its known end is left. Its leader knows that there were records before."""
    with Scene(scrub_rate=0) as cluster:
        topic_id = cluster.create(segment_bytes=2048, min_insync_replicas=1)
        follower = cluster.followers()[0]
        for number in range(30):
            cluster.produce(b"%d" % number * 150)
        cluster.run_for(5)
        cluster.kill(follower)
        cluster.until(lambda: follower not in cluster.in_sync())
        disk, directory = cluster.world.hosts[cluster.host(follower)].disk, topic_directory(TopicId(topic_id), 0)
        names = disk.list(directory)
        for name in [name for name in names if name.startswith(("checkpoint", f"{0:020}."))]:
            disk.lose(f"{directory}/{name}")
        disk.lose("node/known-ends")
        cluster.start(follower)
        cluster.until(lambda: follower in cluster.in_sync())
        partition = cluster.node(follower).partitions.find(TOPIC, 0)
        assert partition is not None and partition.log.start_offset == 0
        cluster.check()


@pytest.mark.invariant("replication.damaged-copy-not-trusted")
@pytest.mark.parametrize("operation", [1, 2, 4, 7, 10, 12, 13])
def test_a_replica_whose_removal_ended_with_the_power_and_that_is_moved_back_has_everything(operation: int) -> None:
    with Scene(("controller", "broker", "broker", "broker"), scrub_rate=0) as cluster:
        cluster.create(replicas=2, segment_bytes=2048, min_insync_replicas=1)
        leader, old = cluster.leads(), cluster.followers()[0]
        (new,) = {2, 3, 4} - {leader, old}
        for number in range(20):
            cluster.produce(b"%d" % number * 150)
        cluster.run_for(5)
        reassign(cluster, [leader, new])
        cluster.until(lambda: cluster.node(old).partitions.find(TOPIC, 0) is None)
        cluster.world.hosts[cluster.host(old)].disk.crash_at(operation)
        cluster.run_for(1)
        cluster.power_cut(old)
        cluster.until(lambda: cluster.in_sync() == {leader, new})
        reassign(cluster, [leader, old])
        cluster.start(old)
        cluster.until(lambda: cluster.in_sync() == {leader, old})
        cluster.stop(leader)
        cluster.until(lambda: cluster.leader() == old)
        assert len(cluster.read()) == 20
        cluster.check()
