"""Work queues from Python: send a message, take it under a lease, and say what became of it.

    from penstock.client import Queue

    emails = Queue("emails")
    emails.ensure(deliveries=5, dead_letters="emails-dead")
    emails.send(b"...", key="customer-42", priority=7, delay=timedelta(minutes=10))
    for message in emails:
        with message:                      # Done when the block ends well; tried again, with the exception as the reason, when it does not.
            deliver(message.body)

`AsyncQueue` has the same names for asyncio. Both speak to the HTTP port of any node, and need nothing but Penstock.

| file | what lives there |
|---|---|
| `queue` `async_queue` | a queue: messages out and in |
| `upkeep` `differences` | making, describing, pausing, purging, rewinding it; how one that is there differs from what is wanted |
| `listing` | which there are |
| `redriving` | sending dead letters back, and how far that has come |
| `messages` `heartbeat` | a message under a lease; keeping that lease while somebody works |
| `values` `spans` | the plain values; times as Python has them |
| `options` `choices` | what may be chosen for a call, and for a queue |
| `actions` `shapes` | the door's actions, and what they look like on the wire |
| `caller` | one call: signed, sent, tried again where that is safe, its refusals translated |
| `http` `signing` | HTTP/1.1 over asyncio; signatures as AWS has them |
| `loop_thread` | an event loop for programs that have none |
| `failures` | what can go wrong |

Delivery is at least once: a worker that dies, or takes longer than its lease, has its message given to another one.
"""

from penstock.client.complaints import ClientError, Closed
from penstock.client.queues.async_queue import AsyncQueue
from penstock.client.queues.failures import (
    InDoubt,
    LeaseLost,
    NotAllowed,
    NotAvailable,
    QueueDiffers,
    QueueError,
    QueueFull,
    QueueMissing,
    Refused,
    SendFailed,
    Unreachable,
    WrongAddress,
)  # fmt: skip
from penstock.client.queues.listing import async_list_queues, list_queues
from penstock.client.queues.messages import AsyncQueueMessage, QueueMessage
from penstock.client.queues.queue import Queue
from penstock.client.queues.redriving import AsyncRedrive, Redrive
from penstock.client.queues.values import Attempt, Counts, DeadLetter, Draft, Found, QueueView

__all__ = [
    "Queue", "AsyncQueue", "QueueMessage", "AsyncQueueMessage", "Draft", "list_queues", "async_list_queues",
    "Found", "Counts", "QueueView", "Attempt", "DeadLetter", "Redrive", "AsyncRedrive",
    "ClientError", "QueueError", "Unreachable", "InDoubt", "QueueMissing", "QueueDiffers", "QueueFull", "LeaseLost", "NotAvailable",
    "NotAllowed", "Refused", "SendFailed", "WrongAddress", "Closed",
]  # fmt: skip
