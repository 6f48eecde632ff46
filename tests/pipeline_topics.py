"""Topics as a plain Kafka client sees them: tests of the pipeline write and read with it, so that Spark is never its own witness."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self
from uuid import uuid4

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic
from waiting import ASK_S, PATIENCE_S, until

Row = tuple[bytes | None, bytes | None]


@dataclass(frozen=True, slots=True)
class Seen:
    """One record as it was read."""

    topic: str
    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]
    timestamp_ms: int


class Topics:
    """Use in `with`. Each call is done when it returns."""

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap
        self.admin = AdminClient({"bootstrap.servers": bootstrap})
        self._producer: Producer | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, failure: BaseException | None, trace: TracebackType | None) -> None:
        if self._producer is not None:
            self._producer.flush(PATIENCE_S)

    def create(self, name: str | None = None, *, partitions: int = 1, **config: object) -> str:
        """Makes a topic, `cleanup_policy="compact"` being the setting `cleanup.policy`; its name, a fresh one where none is given."""
        name = name or f"topic-{uuid4().hex[:12]}"
        settings = {key.replace("_", "."): str(value) for key, value in config.items()}
        self.admin.create_topics([NewTopic(name, partitions, 1, config=settings)])[name].result(PATIENCE_S)
        return name

    def grow(self, topic: str, partitions: int) -> None:
        self.admin.create_partitions([NewPartitions(topic, partitions)])[topic].result(PATIENCE_S)

    def delete(self, topic: str) -> None:
        self.admin.delete_topics([topic])[topic].result(PATIENCE_S)

    def trim(self, topic: str, before: int, *, partition: int = 0) -> None:
        """Deletes what stands before an offset, as retention does."""
        place = TopicPartition(topic, partition, before)
        (answer,) = self.admin.delete_records([place]).values()
        answer.result(PATIENCE_S)

    def write(self, topic: str, rows: Iterable[Row], *, partition: int | None = None, **options: Any) -> None:
        """Writes (key, value) rows; `headers` and `timestamp` (ms) as options go with each. Without a partition the key decides."""
        producer = self._producer = self._producer or self.producer()
        self._send(producer, topic, rows, partition, options)
        assert producer.flush(PATIENCE_S) == 0, "the node did not take every record"

    def write_values(self, topic: str, count: int, *, partition: int = 0, first: int = 0) -> None:
        """Writes the values b"<first>", b"<first + 1>", … with the key b"k<number>"."""
        self.write(topic, ((b"k%d" % number, b"%d" % number) for number in range(first, first + count)), partition=partition)

    def write_in_transaction(self, topic: str, rows: Iterable[Row], *, partition: int | None = None, ends: str = "commit") -> Producer:
        """Writes them in a transaction that `ends` with commit, abort, or not at all ("open"); then the caller holds its producer."""
        producer = self.producer(**{"transactional.id": f"test-{uuid4().hex[:8]}"})
        producer.init_transactions(PATIENCE_S)
        producer.begin_transaction()
        self._send(producer, topic, rows, partition, {})
        assert producer.flush(PATIENCE_S) == 0, "the node did not take every record"
        if ends == "commit":
            producer.commit_transaction(PATIENCE_S)
        elif ends == "abort":
            producer.abort_transaction(PATIENCE_S)
        return producer

    def producer(self, **settings: object) -> Producer:
        return Producer({"bootstrap.servers": self.bootstrap, "linger.ms": 5, "message.max.bytes": 8 * 2**20} | settings)

    def _send(self, producer: Producer, topic: str, rows: Iterable[Row], partition: int | None, options: dict[str, Any]) -> None:
        place = {} if partition is None else {"partition": partition}
        for key, value in rows:
            while True:
                try:
                    producer.produce(topic, value=value, key=key, **place, **options)
                    break
                except BufferError:
                    producer.poll(ASK_S)

    def ends(self, topic: str, *, is_committed_only: bool = True) -> dict[int, int]:
        """The end offset of each partition; by default the last stable one."""
        with_isolation = self._consumer(is_committed_only)
        try:
            return self._ends(with_isolation, topic)
        finally:
            with_isolation.close()

    def partitions(self, topic: str) -> list[int]:
        return sorted(self.admin.list_topics(topic, PATIENCE_S).topics[topic].partitions)

    def names(self) -> list[str]:
        return sorted(self.admin.list_topics(timeout=PATIENCE_S).topics)

    def read(self, topic: str, *, is_committed_only: bool = True) -> list[Seen]:
        """Everything in the topic as it is now, by partition and offset. What is written meanwhile is left out, and not waited for."""
        consumer = self._consumer(is_committed_only)
        try:
            ends = self._ends(consumer, topic)
            consumer.assign([TopicPartition(topic, partition, OFFSET_BEGINNING) for partition in ends])
            seen = _read_up_to(consumer, ends)
        finally:
            consumer.close()
        return sorted(seen, key=lambda record: (record.partition, record.offset))

    def values(self, topic: str, **options: bool) -> list[bytes | None]:
        return [record.value for record in self.read(topic, **options)]

    def committed(self, group: str, topic: str) -> dict[int, int]:
        """Where a group reads on, for each partition that it committed."""
        consumer = self._consumer(group=group)
        try:
            places = consumer.committed([TopicPartition(topic, partition) for partition in self.partitions(topic)], PATIENCE_S)
        finally:
            consumer.close()
        return {place.partition: place.offset for place in places if place.offset >= 0}

    def _ends(self, consumer: Consumer, topic: str) -> dict[int, int]:
        places = [TopicPartition(topic, partition) for partition in self.partitions(topic)]
        return {place.partition: _end(consumer, place) for place in places}

    def _consumer(self, is_committed_only: bool = True, group: str = "") -> Consumer:
        settings: dict[str, object] = {
            "bootstrap.servers": self.bootstrap,
            "group.id": group or f"witness-{uuid4().hex[:8]}",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "isolation.level": "read_committed" if is_committed_only else "read_uncommitted",
        }
        return Consumer(settings)


def _end(consumer: Consumer, place: TopicPartition) -> int:
    """A topic is told of a moment before somebody leads its partitions, and librdkafka asks for an end only once."""

    def ask() -> tuple[int] | None:
        try:
            return (int(consumer.get_watermark_offsets(place, PATIENCE_S)[1]),)
        except KafkaException as failure:
            if failure.args[0].name() == "NOT_LEADER_FOR_PARTITION":
                return None
            raise

    (end,) = until(ask, f"{place} is led")
    return end


def _read_up_to(consumer: Consumer, ends: Mapping[int, int]) -> list[Seen]:
    """The end of a partition is told only when nothing comes for a while: one that grows all the time is known by its offsets."""
    seen: list[Seen] = []
    waiting = {partition for partition, end in ends.items() if end}

    def read_on() -> bool:
        message = consumer.poll(ASK_S)
        if message is not None and message.error() is None:
            end = ends[message.partition()]
            if message.offset() < end:
                seen.append(_seen(message))
            if message.offset() >= end - 1:
                waiting.discard(message.partition())
        elif message is not None:
            assert message.error().name() == "_PARTITION_EOF", str(message.error())
            waiting.discard(message.partition())
        return not waiting

    if waiting:
        until(read_on, lambda: f"partitions {sorted(waiting)} of {len(ends)} are read to their end", every_s=0.0)
    return seen


def _seen(message: Message) -> Seen:
    headers = tuple((name, value) for name, value in message.headers() or ())
    place = (message.topic(), message.partition(), message.offset())
    return Seen(*place, message.key(), message.value(), headers, message.timestamp()[1])
