"""An unchanged Kafka client against a node: confluent-kafka writes idempotently, reads back, and seeks by time.

    penstock serve --data-dir ./data &
    python examples/confluent_client.py [127.0.0.1:9092]

Needs `pip install confluent-kafka`. Reads by partition, from a moment on; examples/consumer.py reads as a group.
"""

import sys
import time

from confluent_kafka import Consumer, Message, Producer, TopicPartition

TOPIC = "greetings"


def write(bootstrap: str) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True, "compression.type": "zstd"})
    for number in range(5):
        producer.produce(TOPIC, key=f"k{number}", value=f"hello {number}", on_delivery=tell)
    producer.flush(30)


def tell(failure: object, message: Message) -> None:
    if failure is not None:
        sys.exit(f"not delivered: {failure}")
    print(f"written  {text(message.key())} → partition {message.partition()}, offset {message.offset()}")


def text(content: bytes | None) -> str:
    return (content or b"").decode()


def read_since(bootstrap: str, since_ms: int) -> None:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "none", "enable.auto.commit": False})
    partitions = consumer.list_topics(TOPIC, timeout=30).topics[TOPIC].partitions
    consumer.assign(consumer.offsets_for_times([TopicPartition(TOPIC, partition, since_ms) for partition in partitions], timeout=30))
    for message in consumer.consume(num_messages=5, timeout=30):
        print(f"read     {text(message.key())} = {text(message.value())}")
    consumer.close()


if __name__ == "__main__":
    address = sys.argv[1] if len(sys.argv) > 1 else "127.0.0.1:9092"
    began_ms = int(time.time() * 1000)
    write(address)
    read_since(address, began_ms)
