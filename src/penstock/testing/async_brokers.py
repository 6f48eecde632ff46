"""A test's broker for asyncio: starting, stopping and making topics happen in threads, and the test's loop runs on meanwhile.

Cancelled while it starts, it waits that fraction of a second and stops what it started: nothing is left running.
"""

import asyncio
import os
from contextlib import suppress
from types import TracebackType
from typing import TYPE_CHECKING, Self, Unpack

from penstock.testing.brokers import Broker, BrokerFailed, broker

if TYPE_CHECKING:
    from penstock.client.queues import AsyncQueue
    from penstock.client.queues.choices import Choices


def async_broker(*, flush: str = "ack", directory: str | os.PathLike[str] | None = None, **settings: object) -> "AsyncBroker":
    """As `broker()`, for `async with`."""
    return AsyncBroker(broker(flush=flush, directory=directory, **settings))


class AsyncBroker:
    """One node process, with the names of `Broker`."""

    def __init__(self, inner: Broker) -> None:
        self._inner = inner

    @property
    def bootstrap(self) -> str:
        return self._inner.bootstrap

    @property
    def http_url(self) -> str:
        return self._inner.http_url

    @property
    def pid(self) -> int:
        return self._inner.pid

    async def start(self) -> Self:
        starting = asyncio.ensure_future(asyncio.to_thread(self._inner.start))
        try:
            await asyncio.shield(starting)
        except asyncio.CancelledError:
            with suppress(BrokerFailed):
                await starting
                await self.stop()
            raise
        return self

    async def stop(self) -> None:
        await asyncio.to_thread(self._inner.stop)

    async def create_topic(self, name: str | None = None, *, partitions: int = 1, **config: object) -> str:
        return await asyncio.to_thread(self._inner.create_topic, name, partitions=partitions, **config)

    async def queue(self, name: str | None = None, **choices: Unpack["Choices"]) -> "AsyncQueue":
        from penstock.client.queues import AsyncQueue

        made = await asyncio.to_thread(self._inner.queue, name, **choices)
        return AsyncQueue(made.name, url=self.http_url)

    def said(self) -> str:
        return self._inner.said()

    async def __aenter__(self) -> Self:
        return await self.start()

    async def __aexit__(self, kind: type[BaseException] | None, failure: BaseException | None, trace: TracebackType | None) -> None:
        await asyncio.to_thread(self._inner.__exit__, kind, failure, trace)
