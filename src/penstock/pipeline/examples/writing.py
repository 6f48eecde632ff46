"""Putting example records into topics, through the pipeline's own door to brokers.

Each record keeps the timestamp that it is given. What could not be written fails in words; nothing is left half said.
"""

import asyncio
from collections.abc import Iterable, Mapping

from penstock.errors import ErrorCode
from penstock.peers.failures import Refused
from penstock.peers.producer import Producer, ProducerSettings
from penstock.pipeline.brokers import brokers
from penstock.pipeline.examples.orders import Example, OrderBook

WRITING_S_MAX = 600.0
_COMPACTED = {"cleanup.policy": "compact"}

Written = tuple[bytes | None, bytes | None, int | None]  # Key, value, timestamp; None is now.


def create_topic(bootstrap: str, topic: str, *, partitions: int = 2, config: Mapping[str, str] | None = None) -> None:
    """Makes the topic where it is missing. One that is there stays as it is."""
    broker = brokers({"kafka.bootstrap.servers": bootstrap})
    try:
        broker.run(broker.client.create_topic(topic, partitions=partitions, config=config))
    except Refused as refused:
        if refused.code != ErrorCode.TOPIC_ALREADY_EXISTS:
            raise


def write(bootstrap: str, topic: str, records: Iterable[Written]) -> int:
    """Writes the records in order and waits until all are stored; how many there were."""
    broker = brokers({"kafka.bootstrap.servers": bootstrap})
    return broker.run(_write(Producer(broker.client, ProducerSettings()), topic, records), deadline_s=WRITING_S_MAX)


def write_customers(bootstrap: str, book: OrderBook, *, topic: str = "customers") -> int:
    """The book's customers, into a compacted topic that is made where it is missing."""
    create_topic(bootstrap, topic, partitions=1, config=_COMPACTED)
    return write(bootstrap, topic, ((key, value, None) for key, value in book.customer_records()))


def write_orders(bootstrap: str, orders: Iterable[Example], *, topic: str = "orders.raw", partitions: int = 2) -> int:
    """Orders into a topic that is made where it is missing."""
    create_topic(bootstrap, topic, partitions=partitions)
    return write(bootstrap, topic, ((order.key, order.value, order.timestamp_ms) for order in orders))


async def _write(producer: Producer, topic: str, records: Iterable[Written]) -> int:
    async with producer:
        stored = [await producer.send(topic, value, key=key, timestamp_ms=timestamp_ms) for key, value, timestamp_ms in records]
        await producer.flush()
        await asyncio.gather(*stored)
    return len(stored)
