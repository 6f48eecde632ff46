"""A disk that is full or broken: a clear error, never a false acknowledgement, and readers that notice nothing.

Full: writing is refused with an error that clients retry, and goes on by itself when there is room again.
A flush that failed: that log takes no more writes until a restart has verified it; the metadata log's failure stops the node.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import KafkaError, KafkaException, Message
from system import librdkafka
from system.diary import check, writing
from system.harness import Node
from system.lazy_disk import LazyDisk
from system.lazy_tree import Cut
from tiers import pick
from waiting import PATIENCE_MS, PATIENCE_S, until

pytestmark = pytest.mark.needs("fuse")

SETTINGS = {"disk.free.bytes.min": 0, "offsets.topic.num.partitions": 1}
ROUNDS = pick(test=2, slow=3)
STOPPED_ITSELF = 3
RETRIED = {KafkaError.KAFKA_STORAGE_ERROR, KafkaError.NOT_ENOUGH_REPLICAS}  # By the Java client and by librdkafka, if they may.


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[LazyDisk]:
    with LazyDisk(tmp_path / "disk") as disk:
        yield disk


@pytest.fixture
def node(disk: LazyDisk, tmp_path: Path) -> Iterator[Node]:
    with Node(disk.path / "data", log=tmp_path / "node.log", settings=SETTINGS) as node:
        yield node


def send_once(node: Node, topic: str, value: bytes, partition: int = 0) -> KafkaError | None:
    """One try: the error it was answered with, or None when it was acknowledged."""
    answers: list[KafkaError | None] = []

    def note(error: KafkaError | None, message: Message) -> None:
        answers.append(error)

    sender = librdkafka.producer(node.bootstrap, retries=0, message_timeout_ms=PATIENCE_MS, acks="all")
    sender.produce(topic, value, partition=partition, on_delivery=note)
    sender.flush(PATIENCE_S)
    assert len(answers) == 1, "no answer"
    return answers[0]


def send_until_taken(node: Node, topic: str, value: bytes) -> None:
    """The disk has room again; the node notices by itself."""
    until(lambda: send_once(node, topic, value) is None, "the node takes records again", every_s=0.1)


def stored(node: Node, topic: str, partition: int = 0) -> list[bytes | None]:
    return librdkafka.values(librdkafka.read_partition(node.bootstrap, topic, partition))


also = pytest.mark.slow(stays="tests/system/test_disk_full_and_failures.py::test_a_full_disk_is_a_passing_no")


@pytest.mark.invariant("log.disk-full-undoes-append")
@pytest.mark.parametrize("room_bytes", [0, pytest.param(1, marks=also), 60, 61, pytest.param(200, marks=also)])
def test_a_full_disk_is_a_passing_no(node: Node, disk: LazyDisk, room_bytes: int) -> None:
    """Whatever part of the batch still fitted, nothing of it is left."""
    topic = librdkafka.make_topic(node.bootstrap, "orders")
    assert send_once(node, topic, b"before") is None
    disk.room(room_bytes)
    for _ in range(3):
        refused = send_once(node, topic, b"refused" * 100)
        assert refused is not None and refused.code() in RETRIED, refused
    assert stored(node, topic) == [b"before"], "readers go on, and see nothing of what was refused"
    disk.room(None)
    send_until_taken(node, topic, b"after")
    assert stored(node, topic) == [b"before", b"after"]
    node.kill()
    node.start()
    assert stored(node, topic) == [b"before", b"after"]
    assert node.complaints() == []


@pytest.mark.invariant("log.disk-full-undoes-append")
@pytest.mark.repeats
def test_a_producer_that_retries_rides_out_a_full_disk(node: Node, disk: LazyDisk) -> None:
    topic = librdkafka.make_topic(node.bootstrap, "orders", 3, segment_bytes=64 * 1024)
    with writing(node.bootstrap, topic, 3, writer="w", is_idempotent=True, per_second=500) as diary:
        for _ in range(ROUNDS):
            diary.wait_for_more(50)
            before = disk.stats()["refused_writes"]
            disk.room(10_000)
            until(lambda before=before: disk.stats()["refused_writes"] > before, "the disk is full")
            disk.room(None)
        diary.wait_for_more(1)
    assert check(node.bootstrap, diary) == diary.sent
    assert node.complaints() == []


def test_a_topic_cannot_be_made_on_a_full_disk_and_can_be_afterwards(node: Node, disk: LazyDisk) -> None:
    disk.room(0)
    with pytest.raises(KafkaException):
        librdkafka.make_topic(node.bootstrap, "orders")
    disk.room(None)
    if not node.is_alive():  # The metadata log may stop the node rather than guess what is on its disk.
        assert node.wait() == STOPPED_ITSELF
        node.start()
    librdkafka.make_topic(node.bootstrap, "orders")
    send_until_taken(node, "orders", b"x")


def test_writing_stops_while_there_is_still_room_to_breathe(disk: LazyDisk, tmp_path: Path) -> None:
    with Node(disk.path / "data", log=tmp_path / "node.log", settings=SETTINGS | {"disk.free.bytes.min": 64 << 20}) as node:
        topic = librdkafka.make_topic(node.bootstrap, "orders")
        assert send_once(node, topic, b"before") is None
        disk.room(32 << 20)
        (refused,) = until(lambda: {send_once(node, topic, b"x")} - {None}, "the node refuses a record", every_s=0.1)
        assert refused is not None and refused.code() in RETRIED
        assert stored(node, topic)[0] == b"before"
        assert disk.stats()["refused_writes"] == 0, "it did not wait until the disk said no"
        disk.room(None)
        send_until_taken(node, topic, b"again")


@pytest.mark.invariant("log.failed-flush-never-trusted")
def test_a_failed_flush_takes_its_log_out_of_writing_and_never_lies(node: Node, disk: LazyDisk) -> None:
    topic = librdkafka.make_topic(node.bootstrap, "orders", 2)
    for partition in (0, 1):
        assert send_once(node, topic, b"safe", partition) is None
    disk.fail_sync("data/topics/*.log")
    refused = send_once(node, topic, b"not flushed", partition=0)
    assert refused is not None, "acknowledged although the flush failed"
    assert disk.stats()["failed_syncs"] == 1
    for _ in range(3):  # The disk says yes again; it is not believed.
        again = send_once(node, topic, b"later", partition=0)
        assert again is not None and again.code() in (KafkaError.KAFKA_STORAGE_ERROR, KafkaError.NOT_LEADER_FOR_PARTITION)
    assert stored(node, topic, 0)[:1] == [b"safe"], "reads go on"
    assert send_once(node, topic, b"other log", partition=1) is None
    assert stored(node, topic, 1) == [b"safe", b"other log"]
    assert node.complaints() == []


def test_a_restart_makes_a_failed_log_trusted_again(node: Node, disk: LazyDisk) -> None:
    topic = librdkafka.make_topic(node.bootstrap, "orders")
    assert send_once(node, topic, b"safe") is None
    disk.fail_sync("data/topics/*.log")
    assert send_once(node, topic, b"not flushed") is not None
    node.kill()
    disk.cut(Cut.DROP)
    disk.restore()
    node.start()
    assert stored(node, topic) == [b"safe"], "what the failed flush lost was never acknowledged, and is gone"
    assert send_once(node, topic, b"after") is None
    assert stored(node, topic) == [b"safe", b"after"]


@pytest.mark.invariant("node.metadata-flush-failure-stops")
def test_a_failed_flush_of_the_metadata_log_stops_the_node(node: Node, disk: LazyDisk) -> None:
    librdkafka.make_topic(node.bootstrap, "kept")
    disk.fail_sync("data/metadata/*.log")
    with pytest.raises(KafkaException):
        librdkafka.make_topic(node.bootstrap, "uncertain")
    assert node.wait() == STOPPED_ITSELF
    disk.cut(Cut.DROP)
    disk.restore()
    node.start()
    assert "kept" in librdkafka.topic_list(node.bootstrap)
    librdkafka.make_topic(node.bootstrap, "new")
