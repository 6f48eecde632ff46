"""Crowds of clients on one event loop: producers at full speed, consumers that never read, callers that never finish a sentence.

Not here: how much of it a node must bear.
"""

import asyncio
import contextlib
import resource
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from system.raw import good_batch, produce_frame

Address = tuple[str, int]


def allow_many_connections() -> None:
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


async def connect(address: Address, *, receive_buffer: int | None = None) -> socket.socket:
    """A plain non-blocking socket: nobody reads from it unless told to."""
    line = socket.socket()
    line.setblocking(False)
    if receive_buffer is not None:
        line.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
    await asyncio.get_running_loop().sock_connect(line, address)
    return line


@asynccontextmanager
async def silent_callers(address: Address, count: int, words: bytes = b"") -> AsyncIterator[list[socket.socket]]:
    """So many connections that say `words` once, as far as the broker listens, and then neither read nor speak."""
    lines = [await connect(address, receive_buffer=4096) for _ in range(count)]
    try:
        for line in lines:
            with contextlib.suppress(BlockingIOError, ConnectionError):
                line.send(words)
        yield lines
    finally:
        for line in lines:
            line.close()


class FullSpeed:
    """Producers that keep five requests of 64 KB in flight each. `acknowledged` counts requests."""

    def __init__(self, address: Address, topic: str, partitions: int) -> None:
        self.address = address
        self.acknowledged = 0
        records = good_batch(*[b"x" * 100 for _ in range(550)])
        self._frames = [produce_frame(topic, records, partition=partition) for partition in range(partitions)]

    async def run(self, producers: int, seconds: float) -> None:
        tasks = [asyncio.create_task(self._produce(number)) for number in range(producers)]
        await asyncio.sleep(seconds)
        for task in tasks:
            task.cancel()
        for outcome in await asyncio.gather(*tasks, return_exceptions=True):
            if isinstance(outcome, Exception):
                raise outcome

    async def _produce(self, number: int) -> None:
        reader, writer = await asyncio.open_connection(*self.address)
        try:
            frame = self._frames[number % len(self._frames)]
            for _ in range(5):
                writer.write(frame)
            while True:
                size = int.from_bytes(await reader.readexactly(4), "big")
                await reader.readexactly(size)
                self.acknowledged += 1
                writer.write(frame)
                await writer.drain()
        finally:
            writer.transport.abort()
