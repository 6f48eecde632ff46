"""The power goes while a node compacts: the last value of each key that was acknowledged is there when it comes back."""

import os
import random
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from confluent_kafka import KafkaError, Message
from system import librdkafka
from system.harness import Node
from system.lazy_disk import LazyDisk, power_cut
from system.lazy_tree import Cut
from tiers import pick
from waiting import PATIENCE_MS, PATIENCE_S, paced, until

pytestmark = [pytest.mark.paired, pytest.mark.timeout(900), pytest.mark.needs("fuse"), pytest.mark.invariant("log.compaction-keeps-last")]

ROUNDS = int(os.environ.get("PENSTOCK_ROUNDS", pick(test=2, slow=5)))
SOAK_ROUNDS = int(os.environ.get("PENSTOCK_ROUNDS", "20"))
both = pytest.mark.parametrize("rounds", [ROUNDS, pytest.param(SOAK_ROUNDS, marks=[pytest.mark.soak, pytest.mark.timeout(1_800)])])

SETTINGS = {
    "checkpoint.interval.bytes": 16 * 1024, "log.cleaner.backoff.ms": 10, "disk.free.bytes.min": 0, "offsets.topic.num.partitions": 1,
}  # fmt: skip
COMPACTED = {"cleanup_policy": "compact", "segment_bytes": 16 * 1024, "min_cleanable_dirty_ratio": 0.05}
KEYS = 25
TURNS_PER_SECOND = 100


class LastWords:
    """What was acknowledged last of each key: offset and value."""

    def __init__(self) -> None:
        self.by_key: dict[bytes, tuple[int, bytes]] = {}
        self.refused: list[str] = []

    def note(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self.refused.append(str(error))
            return
        key, place = bytes(message.key() or b""), (int(message.offset() or 0), bytes(message.value() or b""))
        self.by_key[key] = max(place, self.by_key.get(key, place))


@contextmanager
def writing_keys(bootstrap: str, topic: str) -> Iterator[LastWords]:
    last, stopping = LastWords(), threading.Event()

    def write() -> None:
        sender = librdkafka.producer(bootstrap, enable_idempotence=True, linger_ms=2, delivery_timeout_ms=PATIENCE_MS)
        number = 0
        for _ in paced(TURNS_PER_SECOND, stopping):
            for _ in range(5):
                number += 1
                sender.produce(topic, key=b"key-%d" % (number % KEYS), value=b"%d:" % number + b"." * 200, on_delivery=last.note)
            sender.poll(0)
        assert sender.flush(PATIENCE_S) == 0

    thread = threading.Thread(target=write, daemon=True)
    thread.start()
    try:
        yield last
    finally:
        stopping.set()
        thread.join()
    assert last.refused == [], last.refused[0]


@pytest.mark.repeats
@both
@pytest.mark.parametrize("how", list(Cut))
def test_the_last_of_each_key_survives_power_cuts_during_compaction(tmp_path: Path, how: Cut, rounds: int) -> None:
    rng = random.Random(f"{how} {rounds}")
    with LazyDisk(tmp_path / "disk") as disk, Node(disk.path / "data", log=tmp_path / "node.log", settings=SETTINGS) as node:
        topic = librdkafka.make_topic(node.bootstrap, "kept", **COMPACTED)
        with writing_keys(node.bootstrap, topic) as last:
            for seed in range(rounds):
                until(lambda: is_compacted(disk), "the node compacts")
                power_cut(node, disk, how, seed=seed, at_write=rng.randint(10, 200))
                node.start()
        assert node.complaints() == []
        messages = librdkafka.read_to_end(node.bootstrap, topic)
        found = {bytes(message.key() or b""): (message.offset(), bytes(message.value() or b"")) for message in messages}
        assert found == last.by_key
        assert len(found) == KEYS
        assert is_compacted(disk)


def is_compacted(disk: LazyDisk) -> bool:
    return any("-" in path.name for path in (disk.path / "data" / "topics").rglob("*.log"))
