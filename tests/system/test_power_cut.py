"""The power goes under load: what was acknowledged is there when it comes back.

Unlike kill -9, which keeps the page cache, this loses every byte and name that was not flushed, or keeps some of them torn or scattered.
The last test shows that the loss is real: without a flush before the acknowledgement the same cut loses records.
"""

import os
import random
from collections.abc import Iterator
from pathlib import Path

import pytest
from system import librdkafka
from system.diary import Diary, check, missing, writing
from system.harness import Node
from system.lazy_disk import LazyDisk, power_cut
from system.lazy_tree import Cut
from tiers import pick

pytestmark = [pytest.mark.paired, pytest.mark.timeout(900), pytest.mark.needs("fuse")]

ROUNDS = int(os.environ.get("PENSTOCK_ROUNDS", pick(test=2, slow=6)))
SOAK_ROUNDS = int(os.environ.get("PENSTOCK_ROUNDS", "20"))
both = pytest.mark.parametrize("rounds", [ROUNDS, pytest.param(SOAK_ROUNDS, marks=[pytest.mark.soak, pytest.mark.timeout(1_800)])])

PARTITIONS = 4
PER_SECOND = 2_000
# Small files and frequent checkpoints, so that a cut also meets a roll or a checkpoint half done.
SETTINGS = {"checkpoint.interval.bytes": 16 * 1024, "offsets.topic.num.partitions": 1}
SEGMENT_BYTES = 32 * 1024


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[LazyDisk]:
    with LazyDisk(tmp_path / "disk") as disk:
        yield disk


@pytest.fixture
def node(disk: LazyDisk, tmp_path: Path) -> Iterator[Node]:
    with Node(disk.path / "data", log=tmp_path / "node.log", settings=SETTINGS) as node:
        yield node


@pytest.mark.invariant("log.ack-after-flush")
@pytest.mark.repeats
@both
@pytest.mark.parametrize("how", list(Cut))
def test_what_was_acknowledged_survives_the_power_cut(node: Node, disk: LazyDisk, how: Cut, rounds: int) -> None:
    rng = random.Random(f"{how} {rounds}")
    topic = librdkafka.make_topic(node.bootstrap, "load", PARTITIONS, segment_bytes=SEGMENT_BYTES)
    with writing(node.bootstrap, topic, PARTITIONS, writer="w", is_idempotent=True, per_second=PER_SECOND) as diary:
        for seed in range(rounds):
            power_cut(node, disk, how, seed=seed, at_write=rng.randint(10, 200))
            node.start()
    assert check(node.bootstrap, diary) == diary.sent > 0
    assert node.complaints() == []


@pytest.mark.repeats
@both
def test_a_plain_producer_loses_nothing_either_with_a_slow_disk(node: Node, disk: LazyDisk, rounds: int) -> None:
    """A flush that takes its time is a window in which records are written, not yet safe, and must not be acknowledged."""
    disk.sync_takes(ms=30)
    topic = librdkafka.make_topic(node.bootstrap, "load", PARTITIONS)
    with writing(node.bootstrap, topic, PARTITIONS, writer="w", is_idempotent=False, per_second=PER_SECOND) as diary:
        for seed in range(rounds):
            power_cut(node, disk, list(Cut)[seed % 3], seed=seed, at_write=random.Random(seed).randint(10, 100))
            node.start()
    assert missing(node.bootstrap, diary) == 0
    assert len(diary.acknowledged) > 0


@pytest.mark.repeats
@both
def test_the_power_may_go_at_any_write_of_a_start(node: Node, disk: LazyDisk, rounds: int) -> None:
    """Recovery itself writes (truncations, checkpoints, markers): a cut in the middle of it is one more crash, nothing special."""
    topic = librdkafka.make_topic(node.bootstrap, "load", PARTITIONS, segment_bytes=SEGMENT_BYTES)
    with writing(node.bootstrap, topic, PARTITIONS, writer="w", is_idempotent=True, per_second=PER_SECOND) as diary:
        for seed in range(rounds):
            power_cut(node, disk, Cut.TEAR, seed=seed, at_write=100)
            for write in range(1, 5):
                node.spawn()
                power_cut(node, disk, Cut.SCATTER, seed=write, at_write=write, or_when=node.has_said_ready)
            node.start()
    assert check(node.bootstrap, diary) == diary.sent


def test_topics_survive_the_power_cut_and_deleted_ones_stay_deleted(node: Node, disk: LazyDisk) -> None:
    for number in range(5):
        librdkafka.make_topic(node.bootstrap, f"kept-{number}", partitions=2)
        librdkafka.make_topic(node.bootstrap, f"gone-{number}")
        librdkafka.admin(node.bootstrap).delete_topics([f"gone-{number}"])[f"gone-{number}"].result(30)
    power_cut(node, disk, Cut.DROP, seed=0)
    node.start()
    assert sorted(librdkafka.topic_list(node.bootstrap)) == [f"kept-{number}" for number in range(5)]


@pytest.mark.invariant("log.names-durable-first")
def test_a_data_directory_several_levels_deep_survives_with_its_parents(disk: LazyDisk, tmp_path: Path) -> None:
    with Node(disk.path / "srv" / "penstock" / "data", log=tmp_path / "node.log") as node:
        librdkafka.make_topic(node.bootstrap, "kept")
        power_cut(node, disk, Cut.DROP, seed=0)
        node.start()
        assert list(librdkafka.topic_list(node.bootstrap)) == ["kept"]


def test_a_stopped_node_needs_no_luck(node: Node, disk: LazyDisk) -> None:
    """After a clean stop everything is flushed, also what the topic did not ask to flush."""
    diary = unsafe_load(node)
    assert node.stop() == 0
    disk.cut()
    disk.restore()
    node.start()
    assert missing(node.bootstrap, diary) == 0


@pytest.mark.invariant("log.ack-after-flush")
def test_without_a_flush_before_the_acknowledgement_the_same_cut_loses_records(node: Node, disk: LazyDisk) -> None:
    diary = unsafe_load(node)
    power_cut(node, disk, Cut.DROP, seed=0)
    node.start()
    lost = missing(node.bootstrap, diary)
    assert lost > 0, "the power cut lost nothing, so the other tests here show nothing"


def unsafe_load(node: Node) -> Diary:
    topic = librdkafka.make_topic(node.bootstrap, "unsafe", PARTITIONS, flush="os")
    diary = Diary("w", topic, PARTITIONS, is_idempotent=False)
    messages = [{"value": diary.value(number), "partition": number % PARTITIONS} for number in range(1_000)]
    for message in librdkafka.produce_all(node.bootstrap, topic, messages, acks="all"):
        diary.note(int(message.value().split(b":")[1]), None, message)
    return diary
