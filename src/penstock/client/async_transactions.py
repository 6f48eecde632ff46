"""A transaction for asyncio: `async with producer.transaction(consumer):`, and the loop is never held up.

It begins and ends in a thread: the consumer's own where one takes part, because librdkafka's consumer belongs to one thread. Ending is not
cut short: a caller that is cancelled meanwhile is cancelled afterwards, so that it is always known what became of the transaction.
Cancelled inside the block, it is aborted as by any other exception.
"""

import asyncio
from collections.abc import Callable
from functools import partial
from types import TracebackType
from typing import Self

from penstock.client.async_consumer import AsyncConsumer
from penstock.client.transactions import Transaction


class AsyncTransaction:
    """From `AsyncProducer.transaction()`, for one `async with` block."""

    def __init__(self, transaction: Transaction, consumer: AsyncConsumer | None) -> None:
        self._transaction = transaction
        self._consumer = consumer

    async def abort(self) -> None:
        """Gives the transaction up, with no exception to anybody. Whatever is sent in the rest of the block is refused."""
        await self._to_its_end(self._transaction.abort)

    async def __aenter__(self) -> Self:
        try:
            await self._to_its_end(self._begin)
        except asyncio.CancelledError:
            await self.abort()  # It may have begun; nobody will come to end it.
            raise
        return self

    async def __aexit__(self, kind: type[BaseException] | None, failure: BaseException | None, trace: TracebackType | None) -> None:
        await self._to_its_end(partial(self._transaction.__exit__, kind, failure, trace))

    def _begin(self) -> None:
        self._transaction.__enter__()

    async def _to_its_end(self, call: Callable[[], None]) -> None:
        """Cancelled as often as you like, it returns when the call has; then it says so."""
        thread = None if self._consumer is None else self._consumer.thread
        work = asyncio.get_running_loop().run_in_executor(thread, call)
        cancelled: asyncio.CancelledError | None = None
        while not work.done():
            try:
                await asyncio.shield(work)
            except asyncio.CancelledError as told:
                cancelled = told
            except BaseException:
                break  # The call's own, which the next line raises.
        work.result()
        if cancelled is not None:
            raise cancelled
