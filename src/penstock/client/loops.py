"""Read, process, write: each record read has its effect once, in what is written and in how far the group has come.

    def bills(order: Message) -> list[Outgoing]:
        return [Outgoing("bills", key=order.key, value=reckon(order.value))]

    with Producer(transactional_id="billing-1") as producer, Consumer(group="billing", topics=["orders"]) as consumer:
        read_process_write(consumer, producer, bills)

What one poll() gives is one transaction: the records made of it and the offsets after it are committed together. Aborted ones are tried
again from the same records, a few times in a row: the group was rearranged, or a broker was away. An exception of the step aborts too, and
goes on to the caller, with the consumer set back.

The step sees a record again after each abort and each crash, so it must do nothing that cannot be undone: no mails, no calls elsewhere.
For those see docs/guide/delivery.md. Not here: more than one transaction at a time: start another process, with an id of its own.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable
from typing import NamedTuple

from penstock.client.async_consumer import AsyncConsumer
from penstock.client.async_producer import AsyncProducer
from penstock.client.consumer import MAX_RECORDS, Consumer
from penstock.client.failures import TransactionAborted
from penstock.client.library import log
from penstock.client.producer import Producer
from penstock.client.records import Content, Headers, Message

TRIES_MAX = 10
PAUSE_SECONDS = 0.2  # After an abort, and twice that after the next one; a rebalance takes a few of these.
PAUSE_SECONDS_MAX = 5.0
POLL_SECONDS = 1.0


class Outgoing(NamedTuple):
    """A record to be written: what `Producer.send` takes."""

    topic: str
    value: Content = None
    key: Content = None
    headers: Headers | None = None
    partition: int | None = None
    timestamp: int | None = None


Step = Callable[[Message], Iterable[Outgoing]]
AsyncStep = Callable[[Message], Awaitable[Iterable[Outgoing]]]


def read_process_write(
    consumer: Consumer, producer: Producer, step: Step, *, max_records: int = MAX_RECORDS, idle_seconds: float | None = None
) -> int:
    """For ever, or until nothing has come for `idle_seconds`. Returns how many records were read, and their effects committed."""
    producer.take_over()
    count, patience = 0, _Patience()
    while messages := _next(consumer, max_records, idle_seconds):
        try:
            with producer.transaction(consumer):
                for message in messages:
                    for each in step(message):
                        producer.send(**each._asdict())
        except TransactionAborted as aborted:
            time.sleep(patience.after(aborted))
        else:
            count += len(messages)
            patience = _Patience()
    return count


async def async_read_process_write(
    consumer: AsyncConsumer, producer: AsyncProducer, step: AsyncStep, *, max_records: int = MAX_RECORDS, idle_seconds: float | None = None
) -> int:
    """The same for asyncio. Cancelled, it aborts what is open."""
    await producer.take_over()
    count, patience = 0, _Patience()
    while messages := await _async_next(consumer, max_records, idle_seconds):
        try:
            async with producer.transaction(consumer):
                for message in messages:
                    for each in await step(message):
                        await producer.send(**each._asdict())
        except TransactionAborted as aborted:
            await asyncio.sleep(patience.after(aborted))
        else:
            count += len(messages)
            patience = _Patience()
    return count


def _next(consumer: Consumer, max_records: int, idle_seconds: float | None) -> list[Message]:
    while True:
        messages = consumer.poll(max_records, POLL_SECONDS if idle_seconds is None else idle_seconds)
        if messages or idle_seconds is not None:
            return messages


async def _async_next(consumer: AsyncConsumer, max_records: int, idle_seconds: float | None) -> list[Message]:
    while True:
        messages = await consumer.poll(max_records, POLL_SECONDS if idle_seconds is None else idle_seconds)
        if messages or idle_seconds is not None:
            return messages


class _Patience:
    """Aborts in a row, until there were too many."""

    def __init__(self) -> None:
        self._aborts = 0

    def after(self, aborted: TransactionAborted) -> float:
        """How long to pause before the next try. Raises what was told where that does not help."""
        self._aborts += 1
        if self._aborts >= TRIES_MAX:
            raise aborted
        log.warning("a transaction was aborted, and is tried again: %s", aborted.problem)
        return min(PAUSE_SECONDS_MAX, PAUSE_SECONDS * (1 << (self._aborts - 1)))
