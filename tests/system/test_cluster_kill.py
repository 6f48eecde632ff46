"""Nodes of a cluster die under load: what was acknowledged is there, once, in order, and the same on every replica.

Replication factor 3, min.insync.replicas 2, acks=all; the producers and the reader outlive the nodes. One node at a time is killed, or
made to stand still, and comes back before the next. PENSTOCK_ROUNDS sets how often.
"""

import os
import random
from contextlib import ExitStack
from pathlib import Path

import pytest
from system import librdkafka
from system.clusters import Cluster, Member, drawn, until
from system.diary import check, writing
from system.reading_along import reading_along
from system.replica_logs import check_replicas_agree
from system.writers import with_aiokafka, with_kafka_python, writing_with
from tiers import pick
from waiting import pause_at_random

pytestmark = [pytest.mark.paired, pytest.mark.timeout(900)]

ROUNDS = int(os.environ.get("PENSTOCK_ROUNDS", pick(test=3, slow=10)))
SOAK_ROUNDS = int(os.environ.get("PENSTOCK_ROUNDS", "50"))
both = pytest.mark.parametrize("rounds", [ROUNDS, pytest.param(SOAK_ROUNDS, marks=[pytest.mark.soak, pytest.mark.timeout(3_600)])])

PARTITIONS = 6
SAFE = {"replicas": 3, "min_insync_replicas": 2}
# Small segments and frequent checkpoints, so that a kill also meets a roll or a checkpoint half done.
SETTINGS = {"checkpoint.interval.bytes": 16 * 1024, "offsets.topic.num.partitions": 1}
SEGMENT_BYTES = 32 * 1024
PER_SECOND = pick(test=300, slow=1_500)
OF_EACH_PER_SECOND = 100  # Of three clients side by side.


def blow(cluster: Cluster, victim: Member, kind: str, rng: random.Random) -> None:
    """Kills the node, or makes it stand still until the others lead instead of it; it runs again when this returns."""
    if kind == "kill":
        victim.kill()
        pause_at_random(rng, 0, 0.6)
        victim.start()
    else:
        victim.pause()
        until(lambda: victim.node_id not in cluster.view().brokers, "its session is over")
        victim.go_on()


@pytest.mark.repeats
@both
def test_a_cluster_loses_nothing_when_nodes_die(tmp_path: Path, rounds: int) -> None:
    rng = random.Random(f"nodes die {rounds}")
    with Cluster(tmp_path, settings=SETTINGS) as cluster:
        topic = librdkafka.make_topic(cluster.bootstrap, "load", PARTITIONS, segment_bytes=SEGMENT_BYTES, **SAFE)
        with (
            writing(cluster.bootstrap, topic, PARTITIONS, writer="w", is_idempotent=True, per_second=PER_SECOND) as diary,
            reading_along(cluster.bootstrap, diary) as reader,
        ):
            for kind in drawn(rng, ["kill", "kill", "pause"], rounds):
                diary.wait_for_more(50)
                pause_at_random(rng, 0, 0.4)
                blow(cluster, cluster.random_member(rng), kind, rng)
                cluster.wait_until_full(topic)
            until(lambda: reader.count() >= rounds * 50, "the reader reads along")
        assert check(cluster.bootstrap, diary) == diary.sent
        assert len(diary.answered_at) == diary.sent >= rounds * 50
        assert reader.check(diary) >= rounds * 50
        cluster.wait_until_full(topic)
        assert check_replicas_agree(topic, cluster.log_directories(topic)) > 0
        assert cluster.complaints() == []


@pytest.mark.repeats
@pytest.mark.parametrize("rounds", [pick(test=2, slow=4), pytest.param(20, marks=[pytest.mark.soak, pytest.mark.timeout(3_600)])])
def test_several_nodes_may_die_at_once_and_come_back_in_any_order(tmp_path: Path, rounds: int) -> None:
    """Nothing is taken meanwhile, and nothing is lost: whoever has everything must be waited for."""
    rng = random.Random(f"several {rounds}")
    with Cluster(tmp_path, settings=SETTINGS) as cluster:
        topic = librdkafka.make_topic(cluster.bootstrap, "load", PARTITIONS, segment_bytes=SEGMENT_BYTES, **SAFE)
        with writing(cluster.bootstrap, topic, PARTITIONS, writer="w", is_idempotent=True, per_second=PER_SECOND) as diary:
            for number in range(rounds):
                diary.wait_for_more(50)
                victims = rng.sample(cluster.members, 2 + number % 2)
                for victim in victims:
                    victim.kill()
                    pause_at_random(rng, 0, rng.choice([0, 0, 0.8]))
                for victim in rng.sample(victims, len(victims)):
                    victim.spawn()
                    pause_at_random(rng, 0, rng.choice([0, 0.5, 1.5]))
                for victim in victims:
                    victim.wait_until_ready()
                cluster.wait_until_full(topic)
        assert check(cluster.bootstrap, diary) == diary.sent
        cluster.wait_until_full(topic)
        assert check_replicas_agree(topic, cluster.log_directories(topic)) > 0
        assert cluster.complaints() == []


@pytest.mark.repeats
def test_a_node_that_lost_its_disk_is_filled_again_under_load(tmp_path: Path) -> None:
    with Cluster(tmp_path, settings=SETTINGS) as cluster:
        topic = librdkafka.make_topic(cluster.bootstrap, "load", PARTITIONS, segment_bytes=SEGMENT_BYTES, **SAFE)
        cluster.wait_until_full(topic)
        with writing(cluster.bootstrap, topic, PARTITIONS, writer="w", is_idempotent=True, per_second=PER_SECOND) as diary:
            diary.wait_for_more(300)
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
            pace = {"per_second": OF_EACH_PER_SECOND}
            diaries = [load.enter_context(writing(where, "confluent", PARTITIONS, writer="c", is_idempotent=True, **pace))]
            for name, write in libraries.items():
                diaries.append(load.enter_context(writing_with(write, where, name, PARTITIONS, writer=name, **pace)))
            for diary in diaries:
                diary.wait_for_more(50)
            blow(cluster, cluster.controller(), "kill", random.Random("three libraries"))
            cluster.wait_until_full(*topics)
            for diary in diaries:
                diary.wait_for_more(1)
        for diary in diaries:
            assert check(cluster.bootstrap, diary) == diary.sent
        assert cluster.complaints() == []
