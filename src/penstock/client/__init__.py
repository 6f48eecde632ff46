"""A small Python face over the Kafka ecosystem's client library: write records, read them as a group, and little else.

    from penstock.client import Consumer, Producer

    with Producer() as producer:
        producer.send(topic="orders", key="customer-42", value=b"2 coffees").result()

    with Consumer(group="billing", topics=["orders"]) as consumer:
        for message in consumer.poll(max_records=500):
            bill(message.key, message.value)
        consumer.commit()

`AsyncProducer` and `AsyncConsumer` have the same names for asyncio. It needs confluent-kafka: pip install 'penstock[client]'.

| file | what lives there |
|---|---|
| `producer` `async_producer` | records out |
| `channel` `receipts` | one librdkafka producer with the thread that hears it; what became of a record |
| `partitioning` | which partition a record goes to, where a caller decides that |
| `consumer` `async_consumer` | records in |
| `source` `progress` | librdkafka's consumer; what was handed out, and what may be committed of it |
| `records` `options` `failures` `library` | the values, what may be chosen, what can go wrong, and the library behind all this |

Safe unless told otherwise: records are acknowledged by all replicas and stored once, offsets are committed when the caller says so. It
speaks to any broker that speaks Kafka's protocol, so it knows nothing of a Penstock node. Not here: schemas, transactions, administration.
"""

from penstock.client.async_consumer import AsyncConsumer
from penstock.client.async_producer import AsyncProducer, AsyncReceipt
from penstock.client.consumer import Consumer
from penstock.client.failures import BufferFull, ClientError, Closed, CommitFailed, NotDelivered, ReadFailed, TimedOut
from penstock.client.partitioning import Partitioner
from penstock.client.producer import Producer
from penstock.client.receipts import Receipt
from penstock.client.records import Message, Placed

__all__ = [
    "Producer", "AsyncProducer", "Receipt", "AsyncReceipt", "Placed", "Partitioner",
    "Consumer", "AsyncConsumer", "Message",
    "ClientError", "BufferFull", "NotDelivered", "ReadFailed", "CommitFailed", "TimedOut", "Closed",
]  # fmt: skip
