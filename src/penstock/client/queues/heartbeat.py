"""Keeping a lease while somebody works on its message.

A lease is three beats long, and each beat extends it by its whole length, so that a beat which does not get through loses no lease: the
next one makes up for it. A lease that is lost ends the beating; the worker learns of it by `message.is_lost`, and when it settles the
message. After `LONGEST_SECONDS` it stops as well: a worker that hangs for good gives its message up at last.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable

from penstock.client.queues.failures import LeaseLost, QueueError

BEATS_PER_LEASE = 3
LONGEST_SECONDS = 12 * 3600.0  # As long as SQS keeps a message for one worker.

log = logging.getLogger("penstock.client")


class Heartbeat:
    def __init__(self, extend: Callable[[], Awaitable[object]], lease_seconds: float, what: str) -> None:
        self._extend = extend
        self._pause = lease_seconds / BEATS_PER_LEASE
        self._what = what
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._beat(), name=f"heartbeat of {self._what}")

    async def stop(self) -> None:
        """Returns when no beat is under way any more: one that came after the message was settled would find no lease."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])

    async def _beat(self) -> None:
        for _ in range(round(LONGEST_SECONDS / self._pause)):
            await asyncio.sleep(self._pause)
            try:
                await self._extend()
            except LeaseLost as lost:
                log.warning("%s", lost.problem)
                return
            except QueueError as failure:
                log.warning("the lease of %s was not extended, and this is tried again: %s", self._what, failure.problem)
