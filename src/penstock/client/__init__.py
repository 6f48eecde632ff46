"""A small Python face over the Kafka ecosystem's client library: write records, read them as a group, and little else.

    from penstock.client import Consumer, Producer

    with Producer() as producer:
        producer.send(topic="orders", key="customer-42", value=b"2 coffees").result()

    with Consumer(group="billing", topics=["orders"]) as consumer:
        for message in consumer.poll(max_records=500):
            bill(message.key, message.value)
        consumer.commit()

With a `transactional_id` a producer writes in transactions: `with producer.transaction(consumer):` commits what was sent and what the
consumer has handed out together, or neither. `AsyncProducer` and `AsyncConsumer` have the same names for asyncio.
It needs confluent-kafka: pip install 'penstock[client]'.

| file | what lives there |
|---|---|
| `producer` `async_producer` | records out |
| `channel` `receipts` | one librdkafka producer with the thread that hears it; what became of a record |
| `partitioning` | which partition a record goes to, where a caller decides that |
| `consumer` `async_consumer` | records in |
| `transactions` `async_transactions` `transaction_calls` | records out and offsets committed, together or not at all |
| `loops` | read, process, write, each record once |
| `source` `progress` | librdkafka's consumer; what was handed out, and what may be committed of it |
| `records` `options` `failures` `library` | the values, what may be chosen, what can go wrong, and the library behind all this |

Safe unless told otherwise: records are acknowledged by all replicas and stored once, offsets are committed when the caller says so. It
speaks to any broker that speaks Kafka's protocol, so it knows nothing of a Penstock node. Not here: schemas, administration.
"""

from penstock.client.async_consumer import AsyncConsumer
from penstock.client.async_producer import AsyncProducer, AsyncReceipt
from penstock.client.async_transactions import AsyncTransaction
from penstock.client.consumer import Consumer
from penstock.client.failures import (
    BufferFull,
    ClientError,
    Closed,
    CommitFailed,
    Fenced,
    NotDelivered,
    ReadFailed,
    TimedOut,
    TransactionAborted,
    TransactionFailed,
    TransactionInDoubt,
)  # fmt: skip
from penstock.client.loops import Outgoing, async_read_process_write, read_process_write
from penstock.client.partitioning import Partitioner
from penstock.client.producer import Producer
from penstock.client.receipts import Receipt
from penstock.client.records import Message, Placed
from penstock.client.transactions import Transaction

__all__ = [
    "Producer", "AsyncProducer", "Receipt", "AsyncReceipt", "Placed", "Partitioner",
    "Consumer", "AsyncConsumer", "Message",
    "Transaction", "AsyncTransaction", "Outgoing", "read_process_write", "async_read_process_write",
    "ClientError", "BufferFull", "NotDelivered", "ReadFailed", "CommitFailed", "TimedOut", "Closed",
    "TransactionFailed", "TransactionAborted", "TransactionInDoubt", "Fenced",
]  # fmt: skip
