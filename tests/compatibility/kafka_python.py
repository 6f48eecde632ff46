"""How a test subscribes with kafka-python."""

from typing import Any

from kafka import KafkaConsumer
from kafka.errors import KafkaError
from waiting import until


def subscribe(consumer: KafkaConsumer, topic: str, **more: Any) -> None:
    """Subscribes, and returns when the library knows the topic's partitions, so that it joins its group once.

    kafka-python 3.0 that does not know them joins twice. If a poll's time is up during the second join, the library forgets the assignment
    that the answer brings: no later poll joins again or reads anything.
    """

    def partitions() -> set[int]:
        try:
            return consumer.partitions_for_topic(topic)
        except KafkaError:  # The node was killed meanwhile.
            return set()

    consumer.subscribe([topic], **more)
    until(partitions, f"kafka-python knows the partitions of {topic}")
