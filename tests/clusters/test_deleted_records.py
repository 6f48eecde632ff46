"""DeleteRecords in a cluster: what was deleted stays deleted, whoever leads next."""

from contextlib import suppress

import pytest
from clusters.scene import LEADER_ONLY, TOPIC, Scene

from penstock.errors import ErrorCode
from penstock.simulator.workloads.line import LineLost
from penstock.wire.api_keys import ApiKey

pytestmark = pytest.mark.invariant("replication.deleted-stays-deleted")

NONE, TIMED_OUT = ErrorCode.NONE, ErrorCode.REQUEST_TIMED_OUT
BEFORE = 7
TIMEOUT_MS = 2_000


def delete(scene: Scene, offset: int = BEFORE) -> tuple[int, int]:
    """Error code and low watermark."""
    rows = [{"partition_index": 0, "offset": offset}]
    answer = scene.ask_at(
        scene.leads(), ApiKey.DELETE_RECORDS, 2, {"topics": [{"name": TOPIC, "partitions": rows}], "timeout_ms": TIMEOUT_MS}
    )
    row = answer.topics[0].partitions[0]
    return row.error_code, row.low_watermark


def written(scene: Scene, **config: object) -> None:
    scene.create(**config)
    for number in range(10):
        scene.produce(b"%d" % number)


def start_at(scene: Scene, node: int) -> int:
    held = scene.node(node).partitions.find(TOPIC, 0)
    assert held is not None
    return held.log.start_offset


@pytest.mark.parametrize("falls", ["killed", "without power"])
def test_what_was_deleted_does_not_come_back_with_the_next_leader(falls: str) -> None:
    with Scene() as scene:
        written(scene)
        leader, followers = scene.leads(), scene.followers()
        assert delete(scene) == (NONE, BEFORE)
        if falls == "killed":
            scene.kill(leader)
        else:
            scene.power_cut(1, 2, 3)
            scene.start(*followers)
        scene.until(lambda: scene.leader() not in (None, leader))
        assert min(scene.read()) == BEFORE


def test_whoever_is_in_sync_and_cannot_be_reached_is_waited_for() -> None:
    with Scene(replica_lag_ms=10_000) as scene:
        written(scene)
        follower = scene.followers()[0]
        scene.cut(follower)
        assert delete(scene) == (TIMED_OUT, -1)
        assert start_at(scene, scene.leads()) == BEFORE, "it goes on"
        scene.until(lambda: follower not in scene.in_sync())
        assert delete(scene) == (NONE, BEFORE)
        scene.heal()
        scene.until(lambda: follower in scene.in_sync())
        scene.until(lambda: start_at(scene, follower) == BEFORE)


def test_it_waits_while_too_few_are_in_sync() -> None:
    """Whoever has left the set then may lead, and has not heard of it."""
    with Scene() as scene:
        written(scene, min_insync_replicas=3)
        away = scene.followers()[0]
        scene.kill(away)
        scene.until(lambda: away not in scene.in_sync())
        assert delete(scene) == (TIMED_OUT, -1)
        scene.start(away)
        scene.until(lambda: away in scene.in_sync())
        assert delete(scene) == (NONE, BEFORE)
        assert [start_at(scene, node) for node in (1, 2, 3)] == [BEFORE] * 3


def test_a_replica_joins_only_when_it_has_deleted_what_clients_know_to_be_deleted() -> None:
    with Scene(replica_lag_ms=3_000) as scene:
        written(scene, min_insync_replicas=1)
        away = scene.followers()[0]
        scene.kill(away)
        scene.until(lambda: away not in scene.in_sync())
        assert delete(scene) == (NONE, BEFORE)
        scene.slow_disk(away, 0.3)  # It has every record, and needs a flush to move its start.
        scene.start(away)
        scene.until(lambda: away in scene.in_sync())
        assert start_at(scene, away) == BEFORE
        scene.kill(away, *scene.followers(), scene.leads())
        scene.start(1, 2, 3)
        scene.until_available()
        assert min(scene.read()) == BEFORE


def test_a_start_that_was_moved_survives_a_cut_of_the_end() -> None:
    """The cut removes the checkpoints, which alone say where the log begins."""
    with Scene() as scene:
        written(scene)
        first = scene.leads()
        assert delete(scene) == (NONE, BEFORE)
        held = scene.node(first).partitions.find(TOPIC, 0)
        assert held is not None
        scene.cut(first)
        with suppress(LineLost):
            scene.produce_at(first, b"nobody else has it", acks=LEADER_ONLY)
        assert held.log.end_offset == 11
        scene.until(lambda: scene.leader() not in (None, first))
        scene.heal()
        scene.until(lambda: held.log.end_offset == 10 and first in scene.in_sync())
        second = scene.leads()
        scene.kill(1, 2, 3)
        scene.start(*[node for node in (1, 2, 3) if node != second])
        scene.until(lambda: scene.leader() not in (None, second))
        assert min(scene.read()) == BEFORE


def test_a_replica_that_catches_up_moves_its_start_as_often_as_its_leader() -> None:
    with Scene(replica_lag_ms=3_000) as scene:
        written(scene, min_insync_replicas=1)
        away = scene.followers()[0]
        scene.kill(away)
        scene.until(lambda: away not in scene.in_sync())
        scene.slow_disk(away, 0.3)
        scene.start(away)
        scene.until(lambda: scene.cluster.partition(scene.host(away), TOPIC, 0) is not None)
        for offset in range(1, BEFORE):
            assert delete(scene, offset) == (NONE, offset)
            scene.run_for(0.1)
        scene.until(lambda: away in scene.in_sync() and start_at(scene, away) == BEFORE - 1)


def test_what_was_deleted_does_not_come_back_on_a_follower_whose_power_fails_while_it_is_cut() -> None:
    """It is in sync, has a record that the next leader never had, and leads next itself."""
    with Scene(("controller", "broker", "broker", "broker"), replica_lag_ms=20_000) as scene:
        written(scene, min_insync_replicas=2)
        first = scene.leads()
        second, cut = scene.followers()
        assert delete(scene) == (NONE, BEFORE)
        scene.run_for(5)
        scene.cut(first, second)
        with suppress(LineLost):
            scene.produce_at(first, b"one follower has it", acks=LEADER_ONLY)
        partition = scene.node(cut).partitions.find(TOPIC, 0)
        assert partition is not None
        scene.until(lambda: partition.log.flushed_end == 11)
        scene.kill(first)
        scene.slow_disk(cut, 0.5)
        scene.until(lambda: partition.log.end_offset == 10)
        scene.run_for(0.55)
        assert scene.node(cut).replica_fetching.is_cutting(partition)
        scene.slow_disk(cut, 0)
        scene.power_cut(cut, second)
        scene.until(lambda: scene.leader() is None)
        scene.start(cut)
        scene.until(lambda: scene.leader() == cut)
        scene.heal()
        scene.start(second, first)
        scene.until(lambda: scene.in_sync() == {2, 3, 4})
        assert min(scene.read()) == BEFORE
