"""What librdkafka makes of a batch that some of its records spoil: they are blamed, the others are told that it was not their fault."""

from collections import Counter

from confluent_kafka import KafkaError, Message
from system.conftest import Broker
from system.librdkafka import make_topic, producer, unique
from waiting import PATIENCE_MS, PATIENCE_S


def test_only_records_without_a_key_are_blamed_for_their_batch(broker: Broker) -> None:
    """The batch is whole when all its records are there: until then the producer waits, and it knows its leader from the record before."""
    topic = make_topic(broker.bootstrap, unique("keyless"), cleanup_policy="compact")
    told: Counter[int] = Counter()

    def delivered(error: KafkaError | None, message: Message) -> None:
        told[error.code() if error else 0] += 1

    sender = producer(broker.bootstrap, linger_ms=PATIENCE_MS, batch_num_messages=100)
    sender.produce(topic, b"v", key=b"k", partition=0)
    assert sender.flush(PATIENCE_S) == 0
    for number in range(100):
        sender.produce(topic, b"v", key=None if number % 10 == 0 else b"k", partition=0, on_delivery=delivered)
    assert sender.flush(PATIENCE_S) == 0
    assert told == {KafkaError.INVALID_RECORD: 10, KafkaError._INVALID_DIFFERENT_RECORD: 90}
