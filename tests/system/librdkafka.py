"""librdkafka, as tests use it: topics made and gone when the call returns, partitions read from one end to the other.

Not here: claims.
"""

import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import lru_cache
from typing import Any
from uuid import uuid4

from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from waiting import PATIENCE_S

SECONDS_MAX = PATIENCE_S

# A broker that is killed on purpose makes librdkafka talk without end.
silence = logging.getLogger("librdkafka")
silence.disabled = True


def unique(name: str) -> str:
    return f"{name}-{uuid4().hex[:8]}"


def _named(config: Mapping[str, object]) -> dict[str, object]:
    """Python's names as librdkafka and Kafka spell them."""
    return {key.replace("_", "."): value for key, value in config.items()}


@lru_cache(maxsize=3)
def admin(bootstrap: str) -> AdminClient:
    """Kept for a while, since tests ask often; not for good, since it goes on looking for a node that is gone."""
    return AdminClient({"bootstrap.servers": bootstrap}, logger=silence)


def make_topic(bootstrap: str, name: str, partitions: int = 1, replicas: int = 1, **config: object) -> str:
    """Creates the topic (config names with _ for .) and returns its name."""
    settings = {key: str(value) for key, value in _named(config).items()}
    wanted = NewTopic(name, num_partitions=partitions, replication_factor=replicas, config=settings)
    asking = admin(bootstrap)  # By name: an answer that is still awaited dies with its client.
    asking.create_topics([wanted], request_timeout=SECONDS_MAX)[name].result(SECONDS_MAX)
    return name


def producer(bootstrap: str, **config: object) -> Producer:
    return Producer({"bootstrap.servers": bootstrap} | _named(config), logger=silence)


def produce_all(bootstrap: str, topic: str, messages: list[dict[str, Any]], **config: object) -> list[Message]:
    """Sends the messages (arguments of Producer.produce) and returns what was delivered, in the order of the acknowledgements."""
    sender = producer(bootstrap, **config)
    delivered: list[Message] = []
    refused: list[KafkaError] = []

    def note(error: KafkaError | None, message: Message) -> None:
        if error is None:
            delivered.append(message)
        else:
            refused.append(error)

    for message in messages:
        sender.produce(topic, on_delivery=note, **message)
        sender.poll(0)
    assert sender.flush(SECONDS_MAX) == 0, "not everything was answered"
    assert refused == []
    return delivered


@contextmanager
def consumer(bootstrap: str, **config: object) -> Iterator[Consumer]:
    defaults = {"bootstrap.servers": bootstrap, "group.id": "nobody", "enable.auto.commit": False, "auto.offset.reset": "earliest"}
    reader = Consumer(defaults | _named(config), logger=silence)
    try:
        yield reader
    finally:
        reader.close()


def poll_records(reader: Consumer, count: int) -> list[Message]:
    """The next `count` records; raises on the first error event."""
    found: list[Message] = []
    while len(found) < count:
        batch = reader.consume(count - len(found), timeout=SECONDS_MAX)
        assert batch, f"only {len(found)} of {count} records came"
        for message in batch:
            assert message.error() is None, message.error()
        found += batch
    return found


def watermarks(bootstrap: str, topic: str, partition: int = 0) -> tuple[int, int]:
    with consumer(bootstrap) as reader:
        low, high = reader.get_watermark_offsets(TopicPartition(topic, partition), timeout=SECONDS_MAX)
        return low, high


def read_partition(bootstrap: str, topic: str, partition: int = 0, **config: object) -> list[Message]:
    """Everything from the first offset to the high watermark of now."""
    with consumer(bootstrap, **config) as reader:
        low, high = reader.get_watermark_offsets(TopicPartition(topic, partition), timeout=SECONDS_MAX)
        reader.assign([TopicPartition(topic, partition, low)])
        return poll_records(reader, high - low)


def read_to_end(bootstrap: str, topic: str, partition: int = 0, **config: object) -> Iterator[Message]:
    """The records up to the end of what this reader may see, however many offsets are missing or hold markers."""
    with consumer(bootstrap, enable_partition_eof=True, **config) as reader:
        reader.assign([TopicPartition(topic, partition, 0)])
        while (message := reader.poll(SECONDS_MAX)) is not None and message.error() is None:
            yield message
        assert message is not None, f"{topic}-{partition}: neither a record nor the end came"
        assert message.error().code() == KafkaError._PARTITION_EOF, message.error()


def read_topic(bootstrap: str, topic: str, partitions: int) -> list[list[Message]]:
    return [read_partition(bootstrap, topic, partition) for partition in range(partitions)]


def values(messages: list[Message]) -> list[bytes | None]:
    return [message.value() for message in messages]


def topic_list(bootstrap: str) -> Mapping[str, Any]:
    found: Mapping[str, Any] = admin(bootstrap).list_topics(timeout=SECONDS_MAX).topics
    return found
