"""The consumer for asyncio: the same names, and the loop is never held up.

librdkafka's consumer belongs to one thread, so this one has a thread of its own and calls go through it one after the other. Cancelling a
call is safe: records that a cancelled poll() still fetches are handed out by the next one, and a commit that has begun is carried out.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from types import TracebackType
from typing import Literal, Self, TypeVar, Unpack

from penstock.client.consumer import MAX_RECORDS, Consumer
from penstock.client.options import ConsumerOptions
from penstock.client.progress import Place
from penstock.client.records import Message
from penstock.client.source import SLICE_SECONDS

T = TypeVar("T")


class AsyncConsumer:
    """Takes what `Consumer` takes. Use it in `async with`, or close() it."""

    def __init__(self, *, topics: Sequence[str], **options: Unpack[ConsumerOptions]) -> None:
        self._consumer = Consumer(topics=topics, **options)
        self._thread = ThreadPoolExecutor(1, "penstock-consumer")
        self._is_closed = False

    async def poll(self, max_records: int = MAX_RECORDS, timeout: float = 1.0) -> list[Message]:
        await self._in_thread(partial(self._consumer.fill, max_records, timeout))
        return self._consumer.take(max_records)  # Here, and not in the thread: only what the caller really gets counts as handed out.

    async def __aiter__(self) -> AsyncIterator[Message]:
        while not self._is_closed:
            if self._consumer.is_due:
                await self._in_thread(partial(self._consumer.fill, MAX_RECORDS, SLICE_SECONDS))
            for message in self._consumer.take(1):
                yield message

    async def commit(self, messages: Message | Iterable[Message] | None = None) -> None:
        await self._in_thread(partial(self._consumer.commit, messages))

    async def rewind(self) -> None:
        await self._in_thread(self._consumer.rewind)

    async def seek(self, topic: str, partition: int, offset: int | Literal["earliest", "latest"]) -> None:
        await self._in_thread(partial(self._consumer.seek, topic, partition, offset))

    async def position(self, topic: str, partition: int) -> int | None:
        return await self._in_thread(partial(self._consumer.position, topic, partition))

    def assignment(self) -> list[Place]:
        return self._consumer.assignment()

    async def close(self) -> None:
        await self._close(self._consumer.close)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, failure: BaseException | None, trace: TracebackType | None) -> None:
        await self._close(partial(self._consumer.__exit__, kind, failure, trace))

    # For AsyncTransaction, which commits what this one has handed out.

    @property
    def within(self) -> Consumer:
        return self._consumer

    @property
    def thread(self) -> ThreadPoolExecutor:
        """The one that the consumer belongs to."""
        return self._thread

    async def _close(self, call: Callable[[], None]) -> None:
        if not self._is_closed:
            self._is_closed = True
            self._consumer.hurry()
            try:
                await self._in_thread(call)
            finally:
                self._thread.shutdown(wait=False)  # Ends once the call has; a cancelled close() goes on by itself.

    async def _in_thread(self, call: Callable[[], T]) -> T:
        return await asyncio.shield(asyncio.get_running_loop().run_in_executor(self._thread, call))
