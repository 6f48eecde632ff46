"""A report of how far a copy is that comes late: when the copy is gone, and its node makes another one of the same partition.

The leader's epoch tells the copies apart; a new one costs nobody who waits at a leader that stays.
"""

import pytest
from clusters.scene import Scene
from clusters.test_moves import WHERE, files_of, reassign

from penstock.errors import ErrorCode
from penstock.partition.partition import Partition

pytestmark = pytest.mark.invariant("replication.acked-is-kept")

FLUSH_S = 0.2
LATE_S = 1.0


def copy_at(scene: Scene, node: int) -> Partition | None:
    return scene.node(node).partitions.find(WHERE.topic, WHERE.partition)


def test_what_a_dropped_copy_had_does_not_count_for_the_next_one() -> None:
    with Scene() as scene:
        topic_id = scene.create(replicas=2)
        old, leader = sorted(scene.in_sync()), scene.leads()
        new = ({1, 2, 3} - set(old)).pop()
        for number in range(20):
            scene.produce(b"%d" % number)
        scene.slow_disk(new, FLUSH_S)
        reassign(scene, [new, *old])
        scene.until(lambda: (copy := copy_at(scene, new)) is not None and copy.log.end_offset == 20)
        scene.slow_link(new, leader, LATE_S)
        scene.until(lambda: (copy := copy_at(scene, new)) is not None and copy.log.flushed_end == 20)
        scene.cut(leader, new, ways="out")  # The next copy gets nothing for now.
        reassign(scene, None)
        scene.until(lambda: not files_of(scene, new, topic_id))
        reassign(scene, [new, *old])
        scene.run_for(2 * LATE_S)
        assert scene.in_sync() == set(old)
        scene.heal()
        scene.slow_link(new, leader, 0)
        scene.until(lambda: scene.in_sync() == {1, 2, 3})
        scene.kill(leader)
        scene.until(lambda: scene.leader() not in (None, leader))
        scene.check()


def test_a_produce_that_waits_is_not_refused_because_another_replica_leaves() -> None:
    """Its leader stays, and its batch too: a producer without sequences would write it twice."""
    with Scene(("controller", "broker", "broker", "broker"), replica_lag_ms=20_000) as scene:
        scene.create()
        leader, (stays, _) = scene.leads(), scene.followers()
        scene.cut(leader, stays)  # In sync still, so it is waited for.
        asked = scene.begin_at(leader, b"waits")
        scene.run_for(0.3)
        reassign(scene, [leader, stays])
        scene.run_for(0.1)
        scene.heal()
        scene.until(asked.done)
        assert asked.result() == ErrorCode.NONE
        assert scene.leads() == leader
        assert list(scene.read().values()) == [b"waits"]
