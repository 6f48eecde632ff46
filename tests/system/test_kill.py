"""kill -9 under load: what was acknowledged is there, once, in order, at the offset that was promised.

The producers outlive the node: they retry into the next life of it, so producer state must outlive it too.
PENSTOCK_ROUNDS sets how many lives a test takes.
"""

import os
import random
from pathlib import Path

import pytest
from system import librdkafka
from system.diary import check, writing
from system.harness import Node
from system.raw import Line, fetch_frame
from tiers import pick
from waiting import NEVER_MS, PATIENCE_S, pause_at_random

pytestmark = [pytest.mark.paired, pytest.mark.timeout(900)]

ROUNDS = int(os.environ.get("PENSTOCK_ROUNDS", pick(test=3, slow=6)))
SOAK_ROUNDS = int(os.environ.get("PENSTOCK_ROUNDS", "20"))
both = pytest.mark.parametrize("rounds", [ROUNDS, pytest.param(SOAK_ROUNDS, marks=[pytest.mark.soak, pytest.mark.timeout(1_800)])])

PARTITIONS = 6
# Small files and frequent checkpoints, so that a kill also meets a roll or a checkpoint half done.
SETTINGS = {"checkpoint.interval.bytes": 16 * 1024, "offsets.topic.num.partitions": 1}
SEGMENT_BYTES = 32 * 1024
TOPIC_SETTINGS = {"segment_bytes": SEGMENT_BYTES}
PER_SECOND = 4_000
TOPICS = 20


def node_in(directory: Path) -> Node:
    return Node(directory / "data", settings=SETTINGS)


@pytest.mark.repeats
@both
@pytest.mark.parametrize("is_idempotent", [True, False], ids=["idempotent", "plain"])
def test_a_killed_node_keeps_what_it_acknowledged(tmp_path: Path, rounds: int, is_idempotent: bool) -> None:
    rng = random.Random(rounds)
    with node_in(tmp_path) as node:
        topic = librdkafka.make_topic(node.bootstrap, "load", PARTITIONS, **TOPIC_SETTINGS)
        with writing(node.bootstrap, topic, PARTITIONS, writer="w", is_idempotent=is_idempotent, per_second=PER_SECOND) as diary:
            for _ in range(rounds):
                diary.wait_for_more(100)
                pause_at_random(rng, 0, 0.8)
                node.kill()
                node.start()
            diary.wait_for_more(100)
        assert check(node.bootstrap, diary) >= len(diary.acknowledged) > rounds * 100
        assert node.complaints() == []


@pytest.mark.invariant("log.recovery-restartable")
@pytest.mark.repeats
@both
def test_a_node_that_is_killed_while_it_recovers_recovers_all_the_same(tmp_path: Path, rounds: int) -> None:
    rng = random.Random(rounds)
    with node_in(tmp_path) as node:
        topic = librdkafka.make_topic(node.bootstrap, "load", PARTITIONS, **TOPIC_SETTINGS)
        with writing(node.bootstrap, topic, PARTITIONS, writer="w", is_idempotent=True, per_second=PER_SECOND) as diary:
            for _ in range(rounds):
                diary.wait_for_more(100)
                pause_at_random(rng, 0, 0.5)
                node.kill()
                for _ in range(5):
                    node.spawn()
                    pause_at_random(rng, 0, 0.2)  # A start takes some 0.1 s, on a busy machine more.
                    node.kill()
                node.start()
            diary.wait_for_more(100)
        assert check(node.bootstrap, diary) == diary.sent


@pytest.mark.repeats
@both
def test_a_node_that_is_asked_to_stop_stops_cleanly_under_load(tmp_path: Path, rounds: int) -> None:
    """The control: the same load, with SIGTERM. It waits for no reader that waits for records."""
    with node_in(tmp_path) as node:
        topic = librdkafka.make_topic(node.bootstrap, "load", PARTITIONS, **TOPIC_SETTINGS)
        quiet = librdkafka.make_topic(node.bootstrap, "quiet")
        with writing(node.bootstrap, topic, PARTITIONS, writer="w", is_idempotent=True, per_second=PER_SECOND) as diary:
            for _ in range(rounds):
                with Line((node.host, node.kafka_port)) as reader:
                    reader.send(fetch_frame(quiet, 1, bytes_max=SEGMENT_BYTES, wait_ms=NEVER_MS))
                    diary.wait_for_more(100)
                    assert node.stop() == 0
                    reader.read_frame()  # An answer, or the end of the connection.
                node.start()
            diary.wait_for_more(100)
        assert check(node.bootstrap, diary) == diary.sent
        assert node.complaints() == []


def test_topics_that_were_created_and_deleted_stay_so_after_a_kill(tmp_path: Path) -> None:
    with node_in(tmp_path) as node:
        for number in range(TOPICS):
            librdkafka.make_topic(node.bootstrap, f"kept-{number}", partitions=number % 3 + 1)
            librdkafka.make_topic(node.bootstrap, f"gone-{number}")
            librdkafka.admin(node.bootstrap).delete_topics([f"gone-{number}"])[f"gone-{number}"].result(PATIENCE_S)
        node.kill()
        node.start()
        found = {name: len(topic.partitions) for name, topic in librdkafka.topic_list(node.bootstrap).items()}
        assert found == {f"kept-{number}": number % 3 + 1 for number in range(TOPICS)}


@pytest.mark.invariant("node.one-process-per-directory")
def test_one_data_directory_has_one_node(tmp_path: Path) -> None:
    with node_in(tmp_path) as node:
        second = Node(node.data_directory, log=tmp_path / "second.log")
        second.spawn()
        assert second.wait() != 0
        assert "penstock ready" not in second.said()
        assert str(node.data_directory) in second.said(), "it says which directory is taken"
        assert node.is_alive()
        librdkafka.make_topic(node.bootstrap, "still-serving")
