"""Copies that have lost records which were flushed and acknowledged: they neither lead nor count as in sync, and are fetched anew."""

from contextlib import suppress

import pytest
from clusters.scene import BOTH, Scene
from clusters.test_moves import reassign

from penstock.broker.housekeeping import KNOWN_ENDS_SECONDS, ROUND_SECONDS
from penstock.broker.partitions import topic_directory
from penstock.errors import ErrorCode
from penstock.simulator.disk import SimDisk
from penstock.simulator.platter import Loss
from penstock.simulator.workloads.line import LineLost

pytestmark = pytest.mark.invariant("replication.damaged-copy-not-trusted", "replication.acked-is-kept")

RECORDS = 10
HARMS = ["a flipped bit in the last batch", "a missing directory", "a missing last batch"]


def written(scene: Scene, **config: object) -> bytes:
    """Everything is acknowledged, flushed everywhere, and known to be. Some of it is above the checkpoints, which are read at a start."""
    topic_id = scene.create(**config)
    for number in range(RECORDS):
        scene.produce(b"%d" % number)
        if number == RECORDS // 2:
            scene.run_for(2 * ROUND_SECONDS)
    scene.run_for(2 * KNOWN_ENDS_SECONDS)
    return topic_id


def disk_of(scene: Scene, node: int) -> SimDisk:
    return scene.world.hosts[scene.host(node)].disk


def harm(scene: Scene, node: int, topic_id: bytes, how: str) -> None:
    """Does it to the node's copy of partition 0. The node must not run."""
    disk, directory = disk_of(scene, node), topic_directory(topic_id, 0)  # type: ignore[arg-type]
    (path,) = [path for path in disk.files() if path.startswith(directory) and path.endswith(".log")]
    content = disk.snapshot(path)
    if how == "a flipped bit in the last batch but one":
        at = len(content) - len(content) // RECORDS - 1
        disk.restore(path, content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :])
    elif how == "a flipped bit in the last batch":
        disk.restore(path, content[:-1] + bytes([content[-1] ^ 1]))
    elif how == "a missing last batch":
        disk.restore(path, content[: len(content) - len(content) // RECORDS])
    else:
        for each in [path for path in disk.files() if path.startswith(directory)]:
            disk.lose(each)


def says(scene: Scene, words: str) -> bool:
    return any(words in line for line in scene.reports.lines)


@pytest.mark.parametrize("how", HARMS)
@pytest.mark.parametrize("is_leader", [False, True], ids=["a follower's", "the leader's"])
def test_a_damaged_copy_that_comes_back_first_does_not_lead(how: str, *, is_leader: bool) -> None:
    with Scene() as scene:
        topic_id = written(scene)
        damaged = scene.leads() if is_leader else scene.followers()[0]
        others = [node for node in (1, 2, 3) if node != damaged]
        scene.kill(1, 2, 3)
        harm(scene, damaged, topic_id, how)
        scene.start(damaged, others[0])  # Two of three voters: there is a controller.
        scene.until(lambda: says(scene, "is damaged") and damaged not in scene.in_sync())
        scene.start(others[1])
        scene.until(lambda: scene.in_sync() == {1, 2, 3})
        assert list(scene.read().values()) == [b"%d" % number for number in range(RECORDS)]
        scene.check()


@pytest.mark.parametrize("how", HARMS)
def test_a_damaged_copy_waits_for_one_that_has_everything(how: str) -> None:
    """It is the only one that is up, and all the same nothing is read or written before another comes."""
    with Scene(("controller", "broker", "broker")) as scene:
        topic_id = written(scene, replicas=2)
        damaged, good = scene.leads(), scene.followers()[0]
        scene.kill(2, 3)
        harm(scene, damaged, topic_id, how)
        scene.start(damaged)
        scene.until(lambda: scene.cluster.serves(scene.host(damaged)))
        scene.run_for(5.0)
        assert scene.leader() is None
        scene.start(good)
        scene.until(lambda: scene.in_sync() == {2, 3})
        scene.check()


def test_a_damaged_copy_is_put_aside_only_when_the_leader_serves() -> None:
    with Scene(("controller", "broker", "broker")) as scene:
        topic_id = written(scene, replicas=2)
        damaged, good = scene.leads(), scene.followers()[0]
        directory = topic_directory(topic_id, 0)  # type: ignore[arg-type]
        scene.kill(2, 3)
        harm(scene, damaged, topic_id, "a flipped bit in the last batch but one")
        scene.start(damaged)
        scene.until(lambda: scene.cluster.serves(scene.host(damaged)))
        scene.cut(damaged, good)
        scene.start(good)
        scene.until(lambda: scene.leader() == good)
        scene.run_for(5.0)
        assert disk_of(scene, damaged).list(directory + ".damaged") == []
        scene.heal()
        scene.until(lambda: scene.in_sync() == {2, 3})
        assert disk_of(scene, damaged).list(directory + ".damaged") != []
        scene.check()


def test_a_damaged_copy_that_is_elected_uncleanly_goes_on_with_what_it_has() -> None:
    with Scene(("controller", "broker", "broker")) as scene:
        topic_id = written(scene, replicas=2)
        damaged, lost = scene.leads(), scene.followers()[0]
        scene.kill(2, 3)
        harm(scene, damaged, topic_id, "a flipped bit in the last batch")
        scene.start(damaged)
        scene.until(lambda: scene.cluster.serves(scene.host(damaged)))
        scene.until(lambda: scene.leader() is None and damaged not in scene.in_sync())
        scene.elect_unclean()
        scene.until(lambda: says(scene, "records below offset 10 are lost"))
        scene.produce(b"more")
        assert scene.leader() == damaged
        assert list(scene.read().values())[: RECORDS - 1] == [b"%d" % number for number in range(RECORDS - 1)]
        scene.start(lost)
        scene.until(lambda: scene.in_sync() == {2, 3})
        assert says(scene, "so acknowledged records are lost"), "the other one cuts what the new leader does not have"


@pytest.mark.parametrize("how", HARMS)
def test_the_only_copy_stays_readable_and_takes_no_writes(how: str) -> None:
    with Scene(("controller", "broker")) as scene:
        topic_id = written(scene, replicas=1)
        scene.kill(2)
        harm(scene, 2, topic_id, how)
        scene.start(2)
        scene.until(lambda: scene.cluster.serves(scene.host(2)))
        scene.run_for(5.0)
        assert scene.produce_at(2, b"more") == ErrorCode.KAFKA_STORAGE_ERROR
        assert says(scene, "no other replica has every committed record")
        assert says(scene, "acknowledged records are lost here")


def test_an_ordinary_power_cut_of_all_nodes_damages_nothing() -> None:
    with Scene() as scene:
        written(scene)
        with suppress(LineLost):
            scene.produce_at(scene.leads(), b"unflushed", acks=0)
        for loss in (Loss.ALL, Loss.TORN, Loss.SECTORS):
            scene.power_cut(1, 2, 3, loss=loss)
            scene.start(1, 2, 3)
            scene.until_available()
            assert scene.in_sync() == {1, 2, 3}
        assert not says(scene, "damaged")
        scene.check()


def test_a_copy_that_was_dropped_is_not_missed_when_the_partition_comes_back() -> None:
    with Scene() as scene:
        scene.create(replicas=2)
        (extra,) = {1, 2, 3} - scene.in_sync()
        (there,) = scene.in_sync() - {scene.leads()}
        for number in range(RECORDS):
            scene.produce(b"%d" % number)
        scene.run_for(2 * KNOWN_ENDS_SECONDS)
        for replicas in ([scene.leads(), extra], [scene.leads(), there]):
            reassign(scene, replicas)
            scene.until(lambda replicas=replicas: scene.in_sync() == set(replicas))
        scene.kill(there)  # Before the next round notes anything.
        scene.start(there)
        scene.until(lambda: scene.in_sync() == {scene.leads(), there})
        assert not says(scene, "damaged")
        scene.check()


def test_a_voter_that_has_lost_committed_metadata_does_not_vote_and_says_so() -> None:
    with Scene() as scene:
        scene.create(replicas=3)
        scene.run_for(2 * KNOWN_ENDS_SECONDS)
        voter = next(node for node in (1, 2, 3) if node != scene.controller())
        scene.kill(1, 2, 3)
        disk = disk_of(scene, voter)
        (path,) = [path for path in disk.files() if path.startswith("metadata/") and path.endswith(".log")]
        content = disk.snapshot(path)
        disk.restore(path, content[:-1] + bytes([content[-1] ^ 1]))
        scene.start(voter)
        scene.run_for(1.0)
        assert any("the metadata log is damaged" in ending for ending in scene.cluster.processes[scene.host(voter)].endings)
        assert disk.snapshot(path) == content[:-1] + bytes([content[-1] ^ 1]), "nothing was cut off"
        others = [node for node in (1, 2, 3) if node != voter]
        scene.start(*others)
        scene.until(lambda: scene.cluster.controller() in map(scene.host, others))
        scene.until(lambda: scene.leader() in others)
        scene.produce(b"goes on", within=30.0)


@pytest.mark.parametrize("how", HARMS)
def test_the_only_copy_goes_on_with_what_it_has_once_that_is_accepted(how: str) -> None:
    with Scene(("controller", "broker"), accepted_losses="payments-1,orders-0") as scene:
        topic_id = written(scene, replicas=1)
        scene.kill(2)
        harm(scene, 2, topic_id, how)
        scene.start(2)
        scene.until(lambda: says(scene, "records below offset 10 are lost"))
        kept = 0 if how == "a missing directory" else RECORDS - 1
        assert scene.produce(b"more", within=30.0) == kept
        assert list(scene.read().values()) == [*(b"%d" % number for number in range(kept)), b"more"]


def test_what_is_accepted_does_not_hold_where_another_replica_has_everything() -> None:
    with Scene(accepted_losses="orders-0") as scene:
        topic_id = written(scene)
        damaged = scene.leads()
        scene.kill(1, 2, 3)
        harm(scene, damaged, topic_id, "a flipped bit in the last batch but one")
        scene.start(damaged, *[node for node in (1, 2, 3) if node != damaged])
        scene.until(lambda: says(scene, "is fetched anew"))
        scene.until(lambda: scene.in_sync() == {1, 2, 3})
        scene.check()


def test_a_voter_whose_loss_is_accepted_votes_with_what_it_has() -> None:
    with Scene((BOTH,), accepted_losses="metadata") as scene:
        scene.create(replicas=1)
        scene.run_for(2 * KNOWN_ENDS_SECONDS)
        scene.kill(1)
        disk = disk_of(scene, 1)
        (path,) = [path for path in disk.files() if path.startswith("metadata/") and path.endswith(".log")]
        content = disk.snapshot(path)
        disk.restore(path, content[:-1] + bytes([content[-1] ^ 1]))
        scene.start(1)
        scene.until(lambda: scene.cluster.serves(scene.host(1)))


def test_a_copy_that_is_fetched_anew_does_not_meet_the_files_of_the_one_before_it() -> None:
    """The damage is in the last segment but one: the start looked into the last one, too, and the new copy has a segment of that name."""
    with Scene() as scene:
        topic_id = scene.create(segment_bytes=1024)
        for number in range(40):
            scene.produce(b"%d" % number)
        scene.run_for(2 * KNOWN_ENDS_SECONDS)
        follower = scene.followers()[0]
        scene.kill(follower)
        disk, directory = disk_of(scene, follower), topic_directory(topic_id, 0)  # type: ignore[arg-type]
        *_, path, last = sorted(path for path in disk.files() if path.startswith(directory) and path.endswith(".log"))
        for checkpoint in [path for path in disk.files() if path.startswith(f"{directory}/checkpoint")]:
            disk.lose(checkpoint)  # The start reads everything.
        disk.rot(path, len(disk.snapshot(path)) - 1)
        scene.start(follower)
        scene.until(lambda: says(scene, "is fetched anew") and scene.in_sync() == {1, 2, 3})
        assert last in disk.files()
        scene.power_cut(follower)
        scene.start(follower)
        scene.until(lambda: scene.in_sync() == {1, 2, 3})
        assert list(scene.read().values()) == [b"%d" % number for number in range(40)]
