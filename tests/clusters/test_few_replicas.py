"""Partitions with fewer replicas in sync than min.insync.replicas asks for, and partitions with fewer replicas at all."""

from clusters.scene import LEADER_ONLY, Scene
from clusters.test_moves import reassign

from penstock.errors import ErrorCode


def test_too_few_replicas_in_sync_refuse_acks_all_before_anything_is_appended() -> None:
    with Scene() as scene:
        scene.create(replicas=2, min_insync_replicas=2)
        scene.produce(b"a")
        leader = scene.leads()
        scene.kill(scene.followers()[0])
        scene.until(lambda: scene.in_sync() == {leader})
        assert scene.produce_at(leader, b"b") == ErrorCode.NOT_ENOUGH_REPLICAS
        end = scene.cluster.partition(scene.host(leader), "orders").log.end_offset  # type: ignore[union-attr]
        assert end == 1
        assert scene.produce_at(leader, b"c", acks=LEADER_ONLY) == ErrorCode.NONE


def test_a_move_to_fewer_replicas_than_must_be_in_sync_stops_no_producer() -> None:
    with Scene() as scene:
        scene.create(replicas=2, min_insync_replicas=2)
        scene.produce(b"a")
        stays = scene.leads()
        reassign(scene, [stays])
        scene.until(lambda: scene.in_sync() == {stays})
        assert scene.produce_at(stays, b"b") == ErrorCode.NONE
        scene.check()
