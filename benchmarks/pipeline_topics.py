"""Topics for the pipeline's benchmark: filled with an exact number of rows, and read and written by the plainest loops there are.

Rows have a key of 8 bytes and no headers, and lie in uncompressed batches of 64 KB, as busy producers make them.
"""

import itertools
import os
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition

from benchmarks.load import frames
from benchmarks.load.connection import Connection
from benchmarks.load.topics import Admin
from benchmarks.processes import Broker
from benchmarks.subjects import LoadFailed
from penstock.wire.batches import Record, encode_batch

BATCH_BYTES = 64 << 10
RECORD_BYTES = 20  # Key and lengths, roughly.
_REPLY_BYTES = 64 << 10
_PATIENCE_S = 60.0
_numbers = itertools.count()


@dataclass(frozen=True, slots=True)
class Place:
    """A broker, and what its topics must be told so that filling them does not take longer than reading them."""

    name: str
    broker: Broker
    fill_configs: dict[str, str] = field(default_factory=dict)

    @property
    def bootstrap(self) -> str:
        return f"127.0.0.1:{self.broker.port}"

    def admin(self) -> Admin:
        return Admin("127.0.0.1", self.broker.port)

    @contextmanager
    def topic(self, partitions: int, configs: dict[str, str] | None = None) -> Iterator[str]:
        """A topic that is gone afterwards."""
        admin, topic = self.admin(), f"pipeline-{next(_numbers)}"
        admin.create(topic, partitions, configs or {})
        try:
            yield topic
        finally:
            admin.delete(topic)
            admin.close()

    @contextmanager
    def filled(self, *, partitions: int, rows: int, value_bytes: int) -> Iterator[str]:
        with self.topic(partitions, self.fill_configs) as topic:
            fill(self, topic, partitions=partitions, rows=rows, value_bytes=value_bytes)
            yield topic


def fill(place: Place, topic: str, *, partitions: int, rows: int, value_bytes: int) -> None:
    """Adds exactly `rows`, the same number to each partition."""
    if rows % partitions:
        raise ValueError("each partition gets the same number of rows")
    each = rows // partitions
    per_batch = max(1, BATCH_BYTES // (value_bytes + RECORD_BYTES))
    whole = _batch(per_batch, value_bytes)
    connection = Connection("127.0.0.1", place.broker.port, receive_bytes=_REPLY_BYTES)
    admin = place.admin()
    before = sum(admin.end_offsets(topic, partitions))
    try:
        for done in range(0, each, per_batch):
            batch = whole if each - done >= per_batch else _batch(each - done, value_bytes)
            reply = connection.ask(frames.produce(topic, range(partitions), batch, correlation_id=done))
            frames.check_produced(reply, topic, partitions, done)
        if sum(admin.end_offsets(topic, partitions)) - before != rows:
            raise LoadFailed(f"{topic} did not grow by {rows:,} rows")
    finally:
        connection.close()
        admin.close()


def _batch(count: int, value_bytes: int) -> bytes:
    now_ms = time.time_ns() // 1_000_000
    return bytes(encode_batch([Record(b"%08d" % row, os.urandom(value_bytes), (), now_ms + row) for row in range(count)]))


def consume(bootstrap: str, topic: str, partitions: int, rows: int) -> tuple[int, int]:
    """A plain loop over the ecosystem's client, many messages a call: how many rows there were, and the bytes of their values.

    It ends with the last row that it was told of, or where all partitions end before it.
    """
    settings = {"group.id": "bench", "enable.auto.commit": False, "enable.partition.eof": True}
    consumer = Consumer({"bootstrap.servers": bootstrap, **settings})
    consumer.assign([TopicPartition(topic, partition, 0) for partition in range(partitions)])
    count = size = 0
    ended: set[int] = set()
    give_up = time.monotonic() + _PATIENCE_S
    try:
        while count < rows:
            # No more than are missing: the client waits until it has them all, or for all of the second.
            for message in consumer.consume(min(10_000, rows - count), 1.0):
                if (error := message.error()) is None:
                    count += 1
                    size += len(message.value())
                elif error.code() == KafkaError._PARTITION_EOF:
                    ended.add(message.partition())
                else:
                    raise LoadFailed(f"the consumer loop: {error}")
            if len(ended) == partitions and count < rows:
                raise LoadFailed(f"the consumer loop had {count:,} of {rows:,} rows at the end of {topic}")
            if time.monotonic() > give_up:
                raise LoadFailed(f"the consumer loop had {count:,} of {rows:,} rows after {_PATIENCE_S:.0f} s")
    finally:
        consumer.close()
    return count, size


def produce(bootstrap: str, topic: str, values: Sequence[tuple[bytes, bytes]], rows: int) -> None:
    """A plain loop over the ecosystem's producer, which waits for every acknowledgement at the end."""
    settings = {"linger.ms": 20, "batch.size": BATCH_BYTES, "queue.buffering.max.messages": 500_000}
    producer = Producer({"bootstrap.servers": bootstrap, **settings})
    for key, value in itertools.islice(itertools.cycle(values), rows):
        while True:
            try:
                producer.produce(topic, value, key)
                break
            except BufferError:
                producer.poll(0.1)
    if left := producer.flush(_PATIENCE_S):
        raise LoadFailed(f"the producer loop: {left:,} rows were not acknowledged in {_PATIENCE_S:.0f} s")


@contextmanager
def trickle(bootstrap: str, topic: str, rate: int) -> Iterator[None]:
    """Some rows a second, as long as the context lasts."""
    stop = threading.Event()

    def run() -> None:
        producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 0})
        while not stop.wait(1 / rate):
            producer.produce(topic, b"x" * 100, b"key")
            producer.poll(0)
        producer.flush(_PATIENCE_S)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()
