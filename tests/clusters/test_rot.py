"""Bytes that change on a disk while nodes run: they are mended from an in-sync replica, or another replica leads. Readers only wait."""

from contextlib import suppress
from typing import Any

import pytest
from clusters.scene import CLIENT, LEADER_ONLY, TOPIC, Scene
from clusters.test_moves import reassign

from penstock.broker.partitions import topic_directory
from penstock.errors import ErrorCode, ReadFailed
from penstock.simulator.workloads.line import LineLost
from penstock.vocabulary import TopicPartition
from penstock.wire.api_keys import ApiKey
from penstock.wire.batches import Record, encode_batch, read_header

pytestmark = pytest.mark.invariant("replication.damage-mended")

VALUES = [b"%02d" % number + b"x" * 300 for number in range(30)]
SEGMENTS = {"segment_bytes": 2048}
OFTEN = {"scrub_interval_ms": 2_000}
NEVER = {"scrub_rate": 0}


class Rotten:
    """A topic of some closed segments, one of which rots on a node."""

    def __init__(self, scene: Scene, **config: Any) -> None:
        self.scene = scene
        self.is_compacted = "cleanup_policy" in config
        self.topic_id = scene.create(**SEGMENTS, **config)
        for value in VALUES:
            self.produce(value)
        scene.until(lambda: all(self.end_at(node) == len(VALUES) for node in scene.in_sync()))

    def produce(self, value: bytes) -> None:
        """Compaction leaves every fifth, and the last with each other key."""
        key = value[:2] if int(value[:2]) % 5 == 0 else value[1:2]
        batch = bytes(encode_batch([Record(key=key, value=value, timestamp_ms=self.scene.world.hosts[CLIENT].wall.ms())]))
        offset = self.scene.do(lambda client: client.produce(TOPIC, 0, batch)).base_offset
        if not self.is_compacted:
            self.scene.note(TopicPartition(TOPIC, 0), offset, (value,))

    def check(self) -> None:
        """All is well now. That logs did not agree while one of them had rotted is no finding."""
        findings = self.scene.notebook.findings
        findings[:] = [finding for finding in findings if finding.rule != "logs agree"]
        self.scene.check()

    def end_at(self, node: int) -> int:
        partition = self.scene.node(node).partitions.find(TOPIC, 0)
        return -1 if partition is None else int(partition.high_watermark)

    def path(self, node: int, place: int) -> str:
        directory = topic_directory(self.topic_id, 0)  # type: ignore[arg-type]
        disk = self.scene.world.hosts[self.scene.host(node)].disk
        return [path for path in disk.files() if path.startswith(directory + "/") and path.endswith(".log")][place]

    def rot(self, node: int, place: int = 1) -> tuple[str, bytes]:
        """In the second batch of a segment; returns its path and what it was before."""
        disk, path = self.scene.world.hosts[self.scene.host(node)].disk, self.path(node, place)
        before = disk.flushed(path)
        disk.rot(path, read_header(before).size + 100)
        return path, before

    def spoil(self, node: int, place: int = 1) -> tuple[str, bytes]:
        """As `rot`: a bad sector in the second batch."""
        disk, path = self.scene.world.hosts[self.scene.host(node)].disk, self.path(node, place)
        before = disk.flushed(path)
        disk.spoil(path, read_header(before).size + 100)
        return path, before

    def is_bad(self, node: int, path: str) -> bool:
        disk = self.scene.world.hosts[self.scene.host(node)].disk
        try:
            disk.read_at(disk.open(path), 0, 1 << 20)
        except ReadFailed:
            return True
        return False

    def is_mended(self, node: int, path: str, before: bytes) -> bool:
        return self.scene.world.hosts[self.scene.host(node)].disk.flushed(path) == before


def base_of(path: str) -> int:
    return int(path.rsplit("/", 1)[-1].removesuffix(".log"))


def says(scene: Scene, words: str) -> bool:
    return any(words in line for line in scene.reports.lines)


def test_a_reader_gets_everything_though_a_segment_of_the_leader_has_rotted() -> None:
    with Scene(**NEVER) as scene:
        rotten, leader = Rotten(scene), scene.leads()
        path, before = rotten.rot(leader)
        assert list(scene.read().values()) == VALUES
        assert rotten.is_mended(leader, path, before)
        assert scene.leads() == leader and scene.in_sync() == {1, 2, 3}
        rotten.check()


@pytest.mark.parametrize("place", [0, -1], ids=["the first segment", "the one that is written to"])
def test_any_segment_is_mended(place: int) -> None:
    with Scene(**NEVER) as scene:
        rotten, leader = Rotten(scene), scene.leads()
        path, before = rotten.rot(leader, place)
        assert list(scene.read().values()) == VALUES
        assert rotten.is_mended(leader, path, before)
        scene.produce(b"more")
        rotten.check()


def test_a_new_replica_gets_everything_from_a_leader_that_has_rotted() -> None:
    with Scene(**NEVER) as scene:
        rotten = Rotten(scene, replicas=2)
        old, leader = sorted(scene.in_sync()), scene.leads()
        (new,) = {1, 2, 3} - set(old)
        rotten.rot(leader)
        reassign(scene, [new, leader])
        scene.until(lambda: scene.in_sync() == {new, leader})
        assert list(scene.read().values()) == VALUES
        rotten.check()


def test_the_scrubber_finds_what_no_reader_asks_for() -> None:
    with Scene(**OFTEN) as scene:
        rotten = Rotten(scene)
        follower, leader = scene.followers()[0], scene.leads()
        spoiled = [(node, *rotten.rot(node, place)) for node, place in ((follower, 0), (leader, 2))]
        scene.until(lambda: all(rotten.is_mended(*each) for each in spoiled))
        assert scene.node(follower).metrics.damage_mended == scene.node(leader).metrics.damage_mended == 1
        assert scene.in_sync() == {1, 2, 3}
        rotten.check()


def test_a_reader_gets_everything_though_a_sector_of_the_leader_cannot_be_read() -> None:
    with Scene(**NEVER) as scene:
        rotten, leader = Rotten(scene), scene.leads()
        path, _ = rotten.spoil(leader)
        assert rotten.is_bad(leader, path)
        assert list(scene.read().values()) == VALUES
        assert not rotten.is_bad(leader, path)
        assert scene.leads() == leader and scene.in_sync() == {1, 2, 3}
        rotten.check()


def test_the_scrubber_finds_sectors_that_cannot_be_read_and_goes_on_after_them() -> None:
    with Scene(**OFTEN) as scene:
        rotten, leader = Rotten(scene), scene.leads()
        bad, _ = rotten.spoil(leader, 0)
        spoiled = rotten.rot(leader, 2)
        scene.until(lambda: not rotten.is_bad(leader, bad) and rotten.is_mended(leader, *spoiled))
        rotten.check()


@pytest.mark.parametrize("how", ["a flipped bit", "a sector that cannot be read"])
def test_a_lookup_by_time_has_damage_mended(how: str) -> None:
    with Scene(**NEVER) as scene:
        rotten, leader = Rotten(scene), scene.leads()
        where = TopicPartition(TOPIC, 0)
        path, _ = rotten.rot(leader) if how == "a flipped bit" else rotten.spoil(leader)
        wanted = base_of(path) + 2
        time_ms = scene.do(lambda client: client.list_offsets({where: 0}))[where].timestamp_ms
        while scene.do(lambda client, time_ms=time_ms: client.list_offsets({where: time_ms}))[where].offset < wanted:
            time_ms += 1
        assert scene.node(leader).metrics.damage_mended == 1
        rotten.check()


def test_a_cut_has_damage_mended_that_it_meets() -> None:
    """A former leader has a record that its successor never had, after a segment that has rotted meanwhile."""
    with Scene(("controller", "broker", "broker"), replica_lag_ms=2_000, **NEVER) as scene:
        rotten = Rotten(scene, replicas=2, min_insync_replicas=1)
        first, second = scene.leads(), scene.followers()[0]
        scene.cut(first, second)
        scene.cut(first, 1)
        scene.produce_at(first, b"never committed", acks=LEADER_ONLY)
        scene.until(lambda: scene.leader() == second)
        rotten.rot(first, -1)
        scene.heal()
        scene.until(lambda: scene.in_sync() == {first, second})
        scene.produce(b"more")
        assert scene.node(first).metrics.damage_mended == 1
        rotten.check()


def all_compacted(scene: Scene, rotten: Rotten, *nodes: int) -> list[bytes]:
    """Waits until compaction has been at work everywhere; returns what is left."""
    scene.until(lambda: all("-" in rotten.path(node, 0).rsplit("/", 1)[-1] for node in nodes))
    scene.run_for(100)
    return list(scene.read().values())


def test_compacted_copies_that_are_damaged_in_different_places_mend_each_other() -> None:
    with Scene(cleaner_backoff_ms=200, **NEVER) as scene:
        rotten = Rotten(scene, cleanup_policy="compact", min_cleanable_dirty_ratio=0.0)
        before, leader = all_compacted(scene, rotten, 1, 2, 3), scene.leads()
        for place, node in enumerate([leader, *scene.followers()]):
            scene.world.hosts[scene.host(node)].disk.rot(rotten.path(node, place), 100)
        assert list(scene.read().values()) == before
        assert scene.leads() == leader and scene.in_sync() == {1, 2, 3}
        scene.kill(leader)
        scene.until(lambda: scene.leader() not in (None, leader))
        assert list(scene.read().values()) == before
        scene.start(leader)
        scene.until(lambda: scene.in_sync() == {1, 2, 3})
        rotten.check()


def test_a_source_that_is_away_is_waited_for() -> None:
    """Nobody else could lead meanwhile: the copy has everything but one batch."""
    with Scene(("controller", "broker", "broker"), replica_lag_ms=10_000, **NEVER) as scene:
        rotten = Rotten(scene, replicas=2)
        leader, other = scene.leads(), scene.followers()[0]
        path, before = rotten.rot(leader)
        scene.kill(other)
        assert fetch_code(scene, leader, base_of(path) + 1) == ErrorCode.KAFKA_STORAGE_ERROR
        for _ in range(60):
            scene.run_for(1)
            assert scene.leader() == leader
        scene.start(other)
        scene.until(lambda: scene.in_sync() == {2, 3})
        assert list(scene.read().values()) == VALUES
        assert rotten.is_mended(leader, path, before)
        rotten.check()


def test_a_full_disk_is_no_reason_to_give_a_copy_up() -> None:
    with Scene(**NEVER) as scene:
        rotten, leader = Rotten(scene), scene.leads()
        path, before = rotten.rot(leader)
        disk = scene.world.hosts[scene.host(leader)].disk
        capacity_bytes = disk.capacity_bytes
        disk.capacity_bytes = sum(len(disk.snapshot(each)) for each in disk.files()) + 600  # Less than a segment.
        assert fetch_code(scene, leader, base_of(path) + 1) == ErrorCode.KAFKA_STORAGE_ERROR
        for _ in range(60):
            scene.run_for(1)
            assert not says(scene, "is fetched anew")
        disk.capacity_bytes = capacity_bytes
        scene.until(lambda: scene.leader() == leader, within=400.0)  # It may lead again, and is the preferred leader.
        assert list(scene.read().values()) == VALUES
        assert rotten.is_mended(leader, path, before)
        rotten.check()


def test_readers_come_again_while_others_are_in_sync_and_no_controller_answers() -> None:
    with Scene(("controller", "broker", "broker", "broker"), **NEVER) as scene:
        rotten, leader = Rotten(scene), scene.leads()
        path, _ = rotten.rot(leader)
        scene.kill(1)
        scene.cut(leader, *scene.followers())
        for _ in range(60):
            assert fetch_code(scene, leader, base_of(path) + 1) == ErrorCode.KAFKA_STORAGE_ERROR
            scene.run_for(1)
        scene.heal()
        scene.start(1)
        assert list(scene.read().values()) == VALUES
        rotten.check()


def test_another_replica_leads_if_none_answers_in_time() -> None:
    with Scene(replica_lag_ms=60_000, **NEVER) as scene:
        rotten, leader = Rotten(scene), scene.leads()
        path, _ = rotten.rot(leader)
        scene.cut(leader, *scene.followers())
        assert fetch_code(scene, leader, base_of(path) + 1) == ErrorCode.KAFKA_STORAGE_ERROR, "come again"
        scene.until(lambda: scene.leader() not in (None, leader), within=60.0)
        scene.heal()
        assert list(scene.read().values()) == VALUES
        scene.until(lambda: scene.in_sync() == {1, 2, 3})
        rotten.check()


def fetch_code(scene: Scene, node: int, offset: int) -> int:
    """What this node answers to a consumer's fetch of one batch."""
    row = {"partition": 0, "current_leader_epoch": -1, "fetch_offset": offset, "log_start_offset": -1, "partition_max_bytes": 1}
    body = {
        "replica_id": -1, "max_wait_ms": 0, "min_bytes": 0, "max_bytes": 1, "isolation_level": 0, "session_id": 0, "session_epoch": -1,
        "topics": [{"topic": TOPIC, "partitions": [row]}], "forgotten_topics_data": [], "rack_id": "",
    }  # fmt: skip
    return int(scene.ask_at(node, ApiKey.FETCH, 11, body).responses[0].partitions[0].error_code)


def test_damage_that_is_met_while_the_end_is_cut_off_does_not_keep_the_copy_out() -> None:
    with Scene(**NEVER) as scene:
        topic_id = scene.create(index_interval_bytes=1 << 20)
        for value in VALUES:
            scene.produce(value)
        first = scene.leads()
        scene.until(lambda: copy_end(scene, first) == len(VALUES))
        scene.cut(first)
        with suppress(LineLost):
            scene.produce_at(first, b"nobody else has it", acks=LEADER_ONLY)
        scene.until(lambda: scene.leader() not in (None, first))
        disk = scene.world.hosts[scene.host(first)].disk
        (path,) = [path for path in disk.files() if topic_id.hex() in path and path.endswith(".log")]
        disk.rot(path, read_header(disk.flushed(path)).size + 100)
        scene.heal()
        scene.until(lambda: scene.in_sync() == {1, 2, 3}, within=60.0)
        assert list(scene.read().values()) == VALUES
        assert scene.node(first).metrics.damage_mended == 1
        findings = scene.notebook.findings
        findings[:] = [finding for finding in findings if finding.rule != "logs agree"]
        scene.check()


def test_where_there_is_no_other_copy_readers_are_told_and_can_read_on_after_the_place() -> None:
    with Scene(("controller", "broker"), **OFTEN) as scene:
        rotten = Rotten(scene, replicas=1)
        path, _ = rotten.rot(2)
        scene.until(lambda: says(scene, "no other replica is in sync to mend it from"))
        base = base_of(path)
        codes = [fetch_code(scene, 2, offset) for offset in range(len(VALUES))]
        assert codes.count(ErrorCode.CORRUPT_MESSAGE) >= 1
        assert codes[base + 1] == ErrorCode.CORRUPT_MESSAGE
        assert codes[base] == codes[base + 2] == codes[-1] == ErrorCode.NONE
        assert scene.produce(b"more") == len(VALUES)


def test_a_late_report_of_the_damaged_copy_does_not_count_for_the_new_one() -> None:
    """The damaged copy had everything. What it told its leader arrives when the controller counts on it no longer."""
    late_s = 1.0
    with Scene(("controller", "broker", "broker", "broker"), replica_lag_ms=60_000, **NEVER) as scene:
        rotten = Rotten(scene)
        leader, follower = scene.leads(), scene.followers()[0]
        scene.slow_link(follower, leader, late_s)
        scene.produce_at(leader, b"last", acks=LEADER_ONLY)
        scene.until(lambda: copy_end(scene, follower) == len(VALUES) + 1)
        node, process = scene.node(follower), scene.world.hosts[scene.host(follower)].process
        partition = node.partitions.find(TOPIC, 0)
        assert partition is not None and process is not None
        scene.world.loop.call_soon(node.damaged_copies.found, partition, context=process.context.copy())
        scene.until(lambda: follower not in scene.in_sync())
        scene.until(lambda: copy_end(scene, follower) == 0)
        assert follower not in scene.in_sync()
        scene.slow_link(follower, leader, 0)
        scene.until(lambda: scene.in_sync() == {2, 3, 4})
        rotten.check()


def copy_end(scene: Scene, node: int) -> int:
    partition = scene.node(node).partitions.find(TOPIC, 0)
    return -1 if partition is None else int(partition.log.end_offset)
