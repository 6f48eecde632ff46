"""A toy log server and its client, for tests of the simulator: lines in, each sent back once it is kept.

With `flushes` a line is sent back only once it is on the disk; without, as soon as it is written, which a power cut must expose.
A disk that fails ends the server, as it ends a careful program; starting it again cuts off an unfinished line.
"""

import asyncio
from contextlib import suppress
from dataclasses import dataclass, field

from penstock.env import Env, File
from penstock.errors import DiskFailed

PORT = 9092


@dataclass
class Diary:
    acknowledged: set[bytes] = field(default_factory=set)
    attempts: int = 0


class LogServer:
    def __init__(self, *, flushes: bool = True) -> None:
        self.flushes = flushes

    async def serve(self, env: Env) -> None:
        file = await self._recover(env)
        failed: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        async def keep(line: bytes) -> None:
            try:
                if failed.done():
                    raise DiskFailed("an earlier one")
                env.disk.append(file, [line])
                if self.flushes and await env.disk.sync([file]):
                    raise DiskFailed("a flush")
            except DiskFailed as error:
                if not failed.done():
                    failed.set_exception(error)
                await asyncio.get_running_loop().create_future()  # Never answered.

        async def take_lines(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            with suppress(OSError):
                while (line := await reader.readline()).endswith(b"\n"):
                    await keep(line)
                    writer.write(line)
            writer.close()

        async with await asyncio.start_server(take_lines, "0.0.0.0", PORT):
            await failed

    async def _recover(self, env: Env) -> File:
        """Copies the whole lines to a new file: cutting the old one would trust bytes that a failed flush left in the cache alone."""
        old = env.disk.open("log", create=True)
        lines, newline, _ = env.disk.read_at(old, 0, 1 << 30).rpartition(b"\n")
        env.disk.unlink("new")
        file = env.disk.open("new", create=True)
        env.disk.append(file, [lines, newline])
        if await env.disk.sync([file]):
            raise DiskFailed("the first flush")
        env.disk.rename("new", "log")
        if await env.disk.sync([], [""]):
            raise DiskFailed("the first flush of names")
        return file


async def send_lines(env: Env, name: str, diary: Diary) -> None:
    number = 0
    while True:
        try:
            async with asyncio.timeout(2):
                reader, writer = await asyncio.open_connection("node", PORT)
            while True:
                number += 1
                diary.attempts += 1
                line = b"%s-%d-%d\n" % (name.encode(), number, env.rng.getrandbits(32))
                writer.write(line)
                async with asyncio.timeout(2):
                    if await reader.readline() != line:
                        break
                diary.acknowledged.add(line)
                await asyncio.sleep(env.rng.random() * 0.04)
        except OSError:
            await asyncio.sleep(env.rng.random() * 0.1)
