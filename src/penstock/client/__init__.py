"""Penstock from Python: records of topics, over the Kafka ecosystem's client library, and messages of work queues, over HTTP.

    from penstock.client import Consumer, Producer

    with Producer() as producer:
        producer.send(topic="orders", key="customer-42", value=b"2 coffees").result()

    with Consumer(group="billing", topics=["orders"]) as consumer:
        for message in consumer.poll(max_records=500):
            bill(message.key, message.value)
        consumer.commit()

With a `transactional_id` a producer writes in transactions: `with producer.transaction(consumer):` commits what was sent and what the
consumer has handed out together, or neither. `AsyncProducer` and `AsyncConsumer` have the same names for asyncio.
They need confluent-kafka: pip install 'penstock[client]'.

    from penstock.client import Queue

    emails = Queue("emails")
    emails.send("hello", priority=7, delay=60)
    emails.work(deliver)

Queues need nothing but Penstock; `AsyncQueue` is the same for asyncio, and what can go wrong with them is in `penstock.client.queues`.
The names below are loaded when they are first asked for, so that whoever uses queues need not have the other library.

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
| `complaints` | what everything that goes wrong has in common |
| `queues/` | work queues: send, receive, settle, redrive |

Safe unless told otherwise: records are acknowledged by all replicas and stored once, offsets are committed when the caller says so. That
part speaks to any broker that speaks Kafka's protocol, so it knows nothing of a Penstock node. Not here: schemas, administration of topics.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from penstock.client.async_consumer import AsyncConsumer
    from penstock.client.async_producer import AsyncProducer, AsyncReceipt
    from penstock.client.async_transactions import AsyncTransaction
    from penstock.client.complaints import ClientError, Closed, TimedOut
    from penstock.client.consumer import Consumer
    from penstock.client.failures import (
        BufferFull,
        CommitFailed,
        Fenced,
        NotDelivered,
        ReadFailed,
        TransactionAborted,
        TransactionFailed,
        TransactionInDoubt,
    )  # fmt: skip
    from penstock.client.loops import Outgoing, async_read_process_write, read_process_write
    from penstock.client.partitioning import Partitioner
    from penstock.client.producer import Producer
    from penstock.client.queues import AsyncQueue, Draft, LeaseLost, Queue, QueueError, QueueMessage
    from penstock.client.receipts import Receipt
    from penstock.client.records import Message, Placed
    from penstock.client.transactions import Transaction
else:
    _HOMES = {
        "async_consumer": ("AsyncConsumer",),
        "async_producer": ("AsyncProducer", "AsyncReceipt"),
        "async_transactions": ("AsyncTransaction",),
        "complaints": ("ClientError", "Closed", "TimedOut"),
        "consumer": ("Consumer",),
        "loops": ("Outgoing", "async_read_process_write", "read_process_write"),
        "partitioning": ("Partitioner",),
        "producer": ("Producer",),
        "queues": ("AsyncQueue", "Draft", "LeaseLost", "Queue", "QueueError", "QueueMessage"),
        "receipts": ("Receipt",),
        "records": ("Message", "Placed"),
        "transactions": ("Transaction",),
    }
    _HOME_OF = {name: home for home, names in _HOMES.items() for name in names}

    def __getattr__(name: str) -> object:
        if name not in __all__:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return getattr(import_module(f"{__name__}.{_HOME_OF.get(name, 'failures')}"), name)


__all__ = [
    "Producer", "AsyncProducer", "Receipt", "AsyncReceipt", "Placed", "Partitioner",
    "Consumer", "AsyncConsumer", "Message",
    "Transaction", "AsyncTransaction", "Outgoing", "read_process_write", "async_read_process_write",
    "ClientError", "BufferFull", "NotDelivered", "ReadFailed", "CommitFailed", "TimedOut", "Closed",
    "TransactionFailed", "TransactionAborted", "TransactionInDoubt", "Fenced",
    "Queue", "AsyncQueue", "QueueMessage", "Draft", "QueueError", "LeaseLost",
]  # fmt: skip
