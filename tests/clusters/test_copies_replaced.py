"""When a copy of a partition is given up for another: only when the controller has said that it no longer
counts on it. Nothing that can be read is cut off."""

from contextlib import suppress

import pytest
from clusters.scene import LEADER_ONLY, TOPIC, Scene
from clusters.test_damaged_copies import RECORDS, disk_of, harm, says, written
from clusters.test_moves import reassign
from clusters.test_rot import NEVER, OFTEN, VALUES, Rotten, copy_end

from penstock.broker.housekeeping import KNOWN_ENDS_SECONDS
from penstock.broker.partitions import topic_directory
from penstock.cluster.commands import DamagedCopy, DistrustCopies
from penstock.errors import ErrorCode
from penstock.partition.partition import Partition
from penstock.simulator.workloads.line import LineLost
from penstock.vocabulary import LeaderEpoch, NodeId, Offset, TopicId
from penstock.wire.batches import read_header

pytestmark = pytest.mark.invariant("replication.damaged-copy-not-trusted")

BROKERS = ("controller", "broker", "broker", "broker")
LATE_SECONDS = 3.0


def held_by(scene: Scene, node: int) -> Partition:
    partition = scene.node(node).partitions.find(TOPIC, 0)
    assert partition is not None
    return partition


def find_damage(scene: Scene, node: int) -> None:
    process = scene.world.hosts[scene.host(node)].process
    assert process is not None
    scene.world.loop.call_soon(scene.node(node).damaged_copies.found, held_by(scene, node), context=process.context.copy())


def write_known_ends(scene: Scene, node: int, seconds: float) -> None:
    """As the node does every two seconds; this once the disk takes long."""
    process, known_ends = scene.world.hosts[scene.host(node)].process, scene.node(node).partitions.known_ends
    assert process is not None

    def begin() -> None:
        known_ends.raise_to(TopicId(b"another topic..."), 0, Offset(1))
        scene.node(node).spawn(known_ends.save())

    scene.slow_disk(node, seconds)
    scene.world.loop.call_soon(begin, context=process.context.copy())
    scene.run_for(0.001)
    scene.slow_disk(node, 0)


def test_a_copy_is_kept_until_the_controller_has_answered() -> None:
    """The node's image says that nobody counts on its copy; the controller has decided otherwise, and the node hears of that late."""
    with Scene(BROKERS, session_timeout_ms=30_000, replica_lag_ms=20_000, **NEVER) as scene:
        Rotten(scene, replicas=2, min_insync_replicas=1)
        leader, (late,) = scene.leads(), scene.followers()
        (extra,) = {2, 3, 4} - {leader, late}
        scene.stop(late)
        scene.until(lambda: late not in scene.in_sync())
        scene.produce(b"while it was away")
        scene.slow_link(late, leader, 0.6)
        scene.start(late)
        scene.until(lambda: scene.cluster.node(scene.host(late)) is not None)
        scene.until(lambda: copy_end(scene, late) == len(VALUES) + 1)
        scene.slow_link(1, late, LATE_SECONDS)
        scene.slow_link(late, 1, LATE_SECONDS)
        began = scene.world.loop.time()
        scene.cut(extra, leader)
        reassign(scene, [leader, late, extra])  # The node hears of this change when it has found damage.
        scene.until(lambda: late in scene.in_sync(), within=LATE_SECONDS)
        scene.slow_link(late, leader, 0)
        scene.run_for(began + LATE_SECONDS - 0.2 - scene.world.loop.time())
        find_damage(scene, late)
        damaged = held_by(scene, late)
        for _ in range(100):
            scene.run_for(0.05)
            assert not damaged.is_deleted or late not in scene.in_sync(), "the controller counts on a copy that is gone"
        scene.slow_link(1, late, 0)
        scene.slow_link(late, 1, 0)
        scene.heal()
        scene.until(lambda: scene.in_sync() == {leader, late, extra}, within=60.0)
        assert damaged.is_deleted, "it was replaced in the end"


def test_a_copy_that_is_elected_while_it_is_put_aside_stays_in_its_place() -> None:
    with Scene(("controller", "broker", "broker"), session_timeout_ms=2_000) as scene:
        topic_id = written(scene, replicas=2)
        damaged, good = scene.leads(), scene.followers()[0]
        scene.kill(2, 3)
        harm(scene, damaged, topic_id, "a flipped bit in the last batch but one")
        scene.start(damaged)
        scene.until(lambda: scene.cluster.serves(scene.host(damaged)))
        scene.until(lambda: scene.leader() is None and damaged not in scene.in_sync())
        scene.run_for(3)
        copy, known_ends = held_by(scene, damaged), scene.node(damaged).partitions.known_ends
        write_known_ends(scene, damaged, 30.0)
        scene.start(good)
        scene.until(lambda: scene.leader() == good)
        scene.until(lambda: known_ends.of(copy.topic_id, 0) == 0)  # It is being forgotten, before the files are put aside.
        scene.kill(good)
        scene.until(lambda: scene.leader() is None)
        assert not copy.is_deleted
        scene.elect_unclean()
        scene.run_for(60)
        assert list(scene.read().values()) == [b"%d" % number for number in range(RECORDS - 2)]


@pytest.mark.parametrize("restarts", [False, True])
def test_a_follower_that_must_cut_and_finds_damage_there_is_in_sync_again(*, restarts: bool) -> None:
    with Scene(**OFTEN) as scene:
        rotten, first = Rotten(scene), scene.leads()
        scene.run_for(3)
        path = rotten.path(first, -1)
        second = read_header(disk_of(scene, first).flushed(path)).size
        scene.cut(first)
        with suppress(LineLost):
            scene.produce_at(first, b"nobody else has it", acks=LEADER_ONLY)
        scene.until(lambda: scene.leader() not in (None, first))
        disk_of(scene, first).rot(path, second + 100)
        if restarts:
            scene.kill(first)
        scene.heal()
        if restarts:
            scene.start(first)
        scene.until(lambda: scene.in_sync() == {1, 2, 3}, within=120.0)
        rotten.check()


def test_a_copy_is_put_aside_rather_than_cut_below_what_was_committed() -> None:
    with Scene(("controller", "broker", "broker")) as scene:
        topic_id = written(scene, replicas=2)
        damaged, whole = scene.leads(), scene.followers()[0]
        scene.kill(2, 3)
        harm(scene, damaged, topic_id, "a flipped bit in the last batch")
        scene.start(damaged)
        scene.until(lambda: scene.leader() is None and damaged not in scene.in_sync())
        scene.elect_unclean()
        scene.until(lambda: says(scene, "records below offset 10 are lost"))
        scene.produce(b"more")
        directory = topic_directory(topic_id, 0)  # type: ignore[arg-type]
        before = disk_of(scene, whole).flushed(f"{directory}/{0:020d}.log")
        scene.start(whole)
        scene.until(lambda: scene.in_sync() == {2, 3})
        assert disk_of(scene, whole).flushed(f"{directory}.damaged/{0:020d}.log") == before
        assert list(scene.read().values())[-1] == b"more"


def test_a_copy_that_was_put_aside_mends_the_one_that_leads() -> None:
    """They are damaged in different places, so together they have everything."""
    with Scene(("controller", "broker", "broker"), **NEVER) as scene:
        rotten = Rotten(scene, replicas=2)
        scene.run_for(2 * KNOWN_ENDS_SECONDS)
        short, old = scene.leads(), scene.followers()[0]
        scene.kill(2, 3)
        disk, path = disk_of(scene, short), rotten.path(short, -1)
        content = disk.snapshot(path)
        disk.restore(path, content[: -read_header(content).size])
        rotten.rot(old)
        scene.start(2, 3)
        scene.until(lambda: says(scene, "is fetched anew"))
        assert list(scene.read().values()) == VALUES
        scene.until(lambda: scene.in_sync() == {2, 3})
        rotten.check()


def test_a_copy_that_has_lost_only_its_end_goes_on_from_there() -> None:
    with Scene(("controller", "broker", "broker")) as scene:
        topic_id = written(scene, replicas=2)
        damaged, good = scene.leads(), scene.followers()[0]
        scene.kill(2, 3)
        harm(scene, damaged, topic_id, "a missing last batch")
        scene.start(damaged, good)
        scene.until(lambda: says(scene, f"is fetched from offset {RECORDS - 1} on from node {good}"))
        scene.until(lambda: scene.in_sync() == {2, 3})
        directory = topic_directory(topic_id, 0)  # type: ignore[arg-type]
        assert disk_of(scene, damaged).list(directory + ".damaged") == []
        scene.check()


@pytest.mark.parametrize("last", [2, 3], ids=["one that has most", "the empty one"])
def test_where_every_copy_has_lost_something_the_longest_goes_on(last: int) -> None:
    with Scene(accepted_losses="orders-0") as scene:
        topic_id = written(scene)
        scene.kill(1, 2, 3)
        harm(scene, 1, topic_id, "a flipped bit in the last batch")
        harm(scene, 2, topic_id, "a flipped bit in the last batch")
        harm(scene, 3, topic_id, "a missing directory")
        scene.start(*[node for node in (1, 2, 3) if node != last])
        scene.run_for(10)
        scene.start(last)
        scene.until(lambda: scene.in_sync() == {1, 2, 3}, within=60.0)
        assert list(scene.read().values()) == [b"%d" % number for number in range(RECORDS - 1)]


def test_what_a_node_says_late_of_a_copy_does_not_count_for_the_next_one() -> None:
    with Scene(("controller", "broker", "broker"), replica_lag_ms=20_000, session_timeout_ms=2_000) as scene:
        topic_id = written(scene, replicas=2, min_insync_replicas=1)
        damaged, good = scene.leads(), scene.followers()[0]
        scene.kill(2, 3)
        harm(scene, damaged, topic_id, "a flipped bit in the last batch but one")
        scene.start(damaged)
        scene.until(lambda: scene.cluster.serves(scene.host(damaged)) and scene.leader() is None)
        state = scene.cluster.state(TOPIC, 0)
        assert state is not None
        copy = DamagedCopy(TopicId(topic_id), 0, LeaderEpoch(state.leader_epoch - 1))
        scene.start(good)
        scene.until(lambda: scene.in_sync() == {2, 3})
        node, process, answers = scene.node(damaged), scene.world.hosts[scene.host(damaged)].process, []
        assert process is not None

        async def say() -> None:
            answers.append(await node.submit(DistrustCopies(NodeId(damaged), node.membership.node_epoch, (copy,))))

        scene.world.loop.call_soon(lambda: node.spawn(say()), context=process.context.copy())
        scene.until(lambda: answers)
        assert scene.in_sync() == {2, 3}
        ((refusal,),) = answers
        assert refusal.code is ErrorCode.FENCED_LEADER_EPOCH
