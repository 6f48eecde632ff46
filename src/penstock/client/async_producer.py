"""The producer for asyncio: the same names, and the loop is never held up.

    receipt = await producer.send(topic="orders", key="customer-42", value=b"2 coffees")  # It is in the buffer.
    placed = await receipt                                                                # It is where acks= says.

`send` is awaited because a full buffer makes it wait (`when_full="block"`). Cancelled while it waits, nothing was sent; once it has
returned, the record goes out whatever is cancelled. Waiting for a receipt can be cancelled and done again.
"""

import asyncio
from collections.abc import Callable, Generator
from contextlib import suppress
from functools import partial
from types import TracebackType
from typing import Any, Self, Unpack

from penstock.client.async_consumer import AsyncConsumer
from penstock.client.async_transactions import AsyncTransaction
from penstock.client.channel import Channel
from penstock.client.failures import BufferFull, TimedOut
from penstock.client.options import Acks, ProducerOptions
from penstock.client.producer import Producer
from penstock.client.receipts import Receipt
from penstock.client.records import Content, Headers, Placed, as_bytes


class AsyncReceipt:
    """Awaitable as often as you like; `result(timeout)` gives up waiting after a while."""

    __slots__ = ("_receipt",)

    def __init__(self, receipt: Receipt) -> None:
        self._receipt = receipt

    def done(self) -> bool:
        return self._receipt.done()

    def __await__(self) -> Generator[Any, None, Placed]:
        return self.result().__await__()

    async def result(self, timeout: float | None = None) -> Placed:
        if not self._receipt.done():
            settled = asyncio.Event()
            self._receipt.add_done_callback(_waker(settled))
            try:
                async with asyncio.timeout(timeout):
                    await settled.wait()
            except TimeoutError:
                problem = f"a record for topic {self._receipt.topic!r} is not acknowledged after {timeout:g} s"
                raise TimedOut(problem, "it is still under way: await it again, or wait longer") from None
        return self._receipt.result(0)


class AsyncProducer:
    """Takes what `Producer` takes. Use it in `async with`, or close() it."""

    def __init__(self, bootstrap: str | None = None, **options: Unpack[ProducerOptions]) -> None:
        self._producer = Producer(bootstrap, **options)

    async def send(
        self,
        *,
        topic: str,
        value: Content = None,
        key: Content = None,
        headers: Headers | None = None,
        partition: int | None = None,
        timestamp: int | None = None,
        acks: Acks | None = None,
    ) -> AsyncReceipt:
        """Puts a record into the buffer, waiting for room where that was asked for."""
        if partition is None and self._producer.must_ask(topic):
            partition = await asyncio.to_thread(self._producer.partition_for, topic, as_bytes(key))
        record = self._producer.prepare(topic=topic, value=value, key=key, headers=headers, partition=partition, timestamp=timestamp)
        channel = self._producer.channel(acks)
        attempt = partial(channel.send, record)
        try:
            return AsyncReceipt(attempt())
        except BufferFull:
            if not self._producer.waits:
                raise
        return AsyncReceipt(await self._when_there_is_room(channel, attempt))

    def transaction(self, consumer: AsyncConsumer | None = None) -> AsyncTransaction:
        """For `async with`: what is sent in it and what `consumer` has handed out by its end is committed together, or not at all."""
        return AsyncTransaction(self._producer.transaction(None if consumer is None else consumer.within), consumer)

    async def take_over(self) -> None:
        await _in_thread(self._producer.take_over)

    async def flush(self, timeout: float | None = None) -> None:
        await _in_thread(partial(self._producer.flush, timeout))

    async def close(self, timeout: float | None = None) -> None:
        await _in_thread(partial(self._producer.close, timeout))

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, failure: BaseException | None, trace: TracebackType | None) -> None:
        await _in_thread(partial(self._producer.__exit__, kind, failure, trace))

    async def _when_there_is_room(self, channel: Channel, attempt: Callable[[], Receipt]) -> Receipt:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._producer.block_seconds
        while True:
            room = asyncio.Event()
            channel.when_room(partial(_waker(room), None))
            try:
                return attempt()
            except BufferFull:
                left = deadline - loop.time()
                if left <= 0:
                    raise
            with suppress(TimeoutError):
                async with asyncio.timeout(left):
                    await room.wait()


def _waker(event: asyncio.Event) -> Callable[[object], None]:
    """Sets the event from another thread; where the loop is gone meanwhile, nobody waits any more."""
    loop = asyncio.get_running_loop()

    def wake(_: object) -> None:
        with suppress(RuntimeError):
            loop.call_soon_threadsafe(event.set)

    return wake


async def _in_thread(call: Callable[[], None]) -> None:
    """Runs to its end even when the caller is cancelled; what it then raises has nobody to hear it but the log."""
    await asyncio.shield(asyncio.ensure_future(asyncio.to_thread(call)))
