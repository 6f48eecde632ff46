"""Nodes of a cluster die under load: what was acknowledged is there, once, in order, and the same on every replica.

Replication factor 3, min.insync.replicas 2, acks=all; the producers and the reader outlive the nodes. One node at a time is killed, or
made to stand still, and comes back before the next. PENSTOCK_ROUNDS sets how often.
"""

import os
import random
import time
from contextlib import ExitStack
from pathlib import Path

import pytest
from system import librdkafka
from system.clusters import Cluster, Member, drawn, until
from system.diary import Diary, check, writing
from system.reading_along import reading_along
from system.replica_logs import check_replicas_agree
from system.writers import with_aiokafka, with_kafka_python, writing_with

pytestmark = pytest.mark.paired

ROUNDS = int(os.environ.get("PENSTOCK_ROUNDS", "10"))
SOAK_ROUNDS = int(os.environ.get("PENSTOCK_ROUNDS", "50"))
both = pytest.mark.parametrize("rounds", [ROUNDS, pytest.param(SOAK_ROUNDS, marks=[pytest.mark.soak, pytest.mark.timeout(3_600)])])

PARTITIONS = 6
SAFE = {"replicas": 3, "min_insync_replicas": 2}
# Nodes are missed sooner than by default, so that a round is short; small segments, so that a kill also meets a roll.
SETTINGS = {
    "broker.session.timeout.ms": 1_000, "broker.heartbeat.interval.ms": 150, "checkpoint.interval.bytes": 256 * 1024,
    "replica.lag.time.max.ms": 3_000,
}  # fmt: skip
SEGMENT_BYTES = 1 << 20
STOPPED_SECONDS = 1.5  # Longer than a session, so that whoever led must find out that others lead now.


def blow(victim: Member, kind: str) -> None:
    """Kills the node, or makes it stand still for longer than its session; it runs again when this returns."""
    if kind == "kill":
        victim.kill()
        time.sleep(0.3)
        victim.start()
    elif kind == "pause":
        victim.pause()
        time.sleep(STOPPED_SECONDS)
        victim.go_on()
    else:
        assert victim.stop() == 0
        victim.start()


def slots_with_an_answer(diary: Diary, begin: float, end: float) -> float:
    """The share of tenths of a second in which something was acknowledged."""
    answered = {int((moment - begin) * 10) for moment in diary.answered_at if begin <= moment < end}
    return len(answered) / max(1, int((end - begin) * 10))


@both
def test_a_cluster_loses_nothing_when_nodes_die(tmp_path: Path, rounds: int) -> None:
    rng = random.Random(f"nodes die {rounds}")
    with Cluster(tmp_path, settings=SETTINGS) as cluster:
        topic = librdkafka.make_topic(cluster.bootstrap, "load", PARTITIONS, segment_bytes=SEGMENT_BYTES, **SAFE)
        with (
            writing(cluster.bootstrap, topic, PARTITIONS, writer="w", is_idempotent=True, per_second=1_500) as diary,
            reading_along(cluster.bootstrap, diary) as reader,
        ):
            begin = time.monotonic()
            for kind in drawn(rng, ["kill", "kill", "pause"], rounds):
                time.sleep(rng.uniform(0.1, 0.5))
                blow(cluster.random_member(rng), kind)
                cluster.wait_until_full(topic)
            share = slots_with_an_answer(diary, begin, time.monotonic())
        print(f"{share:.0%} of 100 ms slots had an acknowledged record")
        assert check(cluster.bootstrap, diary) == diary.sent
        assert len(diary.answered_at) == diary.sent > rounds * 100
        assert reader.check(diary) > rounds * 100
        cluster.wait_until_full(topic)
        assert check_replicas_agree(topic, cluster.log_directories(topic)) > 0
        assert cluster.complaints() == []


@pytest.mark.parametrize("rounds", [2, pytest.param(20, marks=[pytest.mark.soak, pytest.mark.timeout(3_600)])])
def test_several_nodes_may_die_at_once_and_come_back_in_any_order(tmp_path: Path, rounds: int) -> None:
    """Nothing is taken meanwhile, and nothing is lost: whoever has everything must be waited for."""
    rng = random.Random(f"several {rounds}")
    with Cluster(tmp_path, settings=SETTINGS) as cluster:
        topic = librdkafka.make_topic(cluster.bootstrap, "load", PARTITIONS, segment_bytes=SEGMENT_BYTES, **SAFE)
        with writing(cluster.bootstrap, topic, PARTITIONS, writer="w", is_idempotent=True, per_second=1_000) as diary:
            for number in range(rounds):
                answered = len(diary.acknowledged)
                until(lambda answered=answered: len(diary.acknowledged) > answered + 200, "the load runs")
                victims = rng.sample(cluster.members, 2 + number % 2)
                for victim in victims:
                    victim.kill()
                    time.sleep(rng.choice([0, 0, 0.8]))
                for victim in rng.sample(victims, len(victims)):
                    victim.spawn()
                    time.sleep(rng.choice([0, 0.5, 1.5]))
                for victim in victims:
                    victim.wait_until_ready()
                cluster.wait_until_full(topic)
        assert check(cluster.bootstrap, diary) == diary.sent
        cluster.wait_until_full(topic)
        assert check_replicas_agree(topic, cluster.log_directories(topic)) > 0
        assert cluster.complaints() == []


def test_a_node_that_lost_its_disk_is_filled_again_under_load(tmp_path: Path) -> None:
    with Cluster(tmp_path, settings=SETTINGS) as cluster:
        topic = librdkafka.make_topic(cluster.bootstrap, "load", PARTITIONS, segment_bytes=SEGMENT_BYTES, **SAFE)
        cluster.wait_until_full(topic)
        with writing(cluster.bootstrap, topic, PARTITIONS, writer="w", is_idempotent=True, per_second=1_000) as diary:
            until(lambda: len(diary.acknowledged) > 1_000, "the load runs")
            victim = cluster.leader_of(topic)
            victim.kill()
            victim.lose_disk()
            victim.start()
            cluster.wait_until_full(topic)
        assert check(cluster.bootstrap, diary) == diary.sent
        cluster.wait_until_full(topic)
        assert check_replicas_agree(topic, cluster.log_directories(topic)) > 0
        assert cluster.complaints() == []


def test_writers_of_three_libraries_outlive_a_leader(tmp_path: Path) -> None:
    libraries = {"kafka-python": with_kafka_python, "aiokafka": with_aiokafka}
    with Cluster(tmp_path, settings=SETTINGS) as cluster:
        where = cluster.bootstrap
        topics = [librdkafka.make_topic(where, name, PARTITIONS, **SAFE) for name in ("confluent", *libraries)]
        with ExitStack() as load:
            diaries = [load.enter_context(writing(where, "confluent", PARTITIONS, writer="c", is_idempotent=True, per_second=300))]
            for name, write in libraries.items():
                diaries.append(load.enter_context(writing_with(write, where, name, PARTITIONS, writer=name, per_second=200)))
            until(lambda: all(len(diary.acknowledged) > 100 for diary in diaries), "all of them write")
            blow(cluster.controller(), "kill")
            cluster.wait_until_full(*topics)
            before = [len(diary.acknowledged) for diary in diaries]
            until(lambda: all(len(diary.acknowledged) > count for diary, count in zip(diaries, before, strict=True)), "all go on")
        for diary in diaries:
            assert check(cluster.bootstrap, diary) == diary.sent
        assert cluster.complaints() == []
