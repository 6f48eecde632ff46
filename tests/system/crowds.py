"""Crowds of clients on one event loop: producers at full speed, consumers that never read, callers that never finish a sentence.

Not here: how much of it a node must bear.
"""

import asyncio
import contextlib
import resource
import select
import socket
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from system.raw import good_batch, produce_frame
from waiting import until_async

Address = tuple[str, int]
STEP = 500


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


def readable(lines: list[socket.socket]) -> int:
    """On how many of these connections there is something to read, or an end."""
    poller = select.poll()
    for line in lines:
        poller.register(line, select.POLLIN)
    return len(poller.poll(0))


def closed(lines: list[socket.socket]) -> int:
    """How many of these connections the broker has closed, without having answered."""
    return sum(map(_is_closed, lines))


def _is_closed(line: socket.socket) -> bool:
    try:
        return line.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT) == b""
    except BlockingIOError:
        return False
    except ConnectionError:
        return True


class FullSpeed:
    """Producers that keep five requests of 64 KB in flight each. `acknowledged` counts requests by partition."""

    def __init__(self, address: Address, topic: str, partitions: int) -> None:
        self.address = address
        self.acknowledged: Counter[int] = Counter()
        records = good_batch(*[b"x" * 100 for _ in range(550)])
        self._frames = [produce_frame(topic, records, partition=partition) for partition in range(partitions)]

    async def run(self, producers: int, requests: int) -> None:
        """Until so many requests are acknowledged in each partition."""
        tasks = [asyncio.create_task(self._produce(number % len(self._frames))) for number in range(producers)]
        for count in [*range(STEP, requests, STEP), requests]:  # A long run may take longer than a test waits for one thing.
            await until_async(
                lambda count=count: self.least_acknowledged() >= count or any(task.done() for task in tasks),
                lambda: f"{requests} requests in each partition, not {self.acknowledged}",
            )
        for task in tasks:
            task.cancel()
        for outcome in await asyncio.gather(*tasks, return_exceptions=True):
            if isinstance(outcome, Exception):
                raise outcome

    def least_acknowledged(self) -> int:
        return min(self.acknowledged[partition] for partition in range(len(self._frames)))

    async def _produce(self, partition: int) -> None:
        reader, writer = await asyncio.open_connection(*self.address)
        try:
            frame = self._frames[partition]
            for _ in range(5):
                writer.write(frame)
            while True:
                size = int.from_bytes(await reader.readexactly(4), "big")
                await reader.readexactly(size)
                self.acknowledged[partition] += 1
                writer.write(frame)
                await writer.drain()
        finally:
            writer.transport.abort()
