"""An HTTP peer that answers by a script, and remembers what it was asked: for what a real node does only at the worst moment.

A step of the script is an answer (a dict: 200; a pair: with another status), bytes, which are sent as they are, `DROP` (the request is
read, and the connection closed), or `SILENCE` (nothing is said until the client has gone).
"""

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

DROP, SILENCE = "drop", "silence"

Step = dict[str, Any] | tuple[int, dict[str, Any]] | bytes | str


class ScriptedDoor:
    def __init__(self, script: Sequence[Step]) -> None:
        self.script = list(script)
        self.asked: list[tuple[str, dict[str, Any]]] = []  # The action and its wish.
        self.heads: list[bytes] = []
        self.connections = 0
        self.gone = asyncio.Event()  # A client has closed its connection.
        self.url = ""

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            while await self._answer(reader, writer):
                pass
        except (asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
            self.gone.set()
        finally:
            writer.close()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        head = await reader.readuntil(b"\r\n\r\n")
        headers = dict(line.split(": ", 1) for line in head.decode().split("\r\n")[1:] if line)
        body = await reader.readexactly(int(headers["Content-Length"]))
        self.heads.append(head)
        self.asked.append((headers["X-Amz-Target"], json.loads(body)))
        step = self.script.pop(0)
        if step == DROP:
            return False
        if step == SILENCE:
            await reader.readexactly(1)
        writer.write(step if isinstance(step, bytes) else _reply(step))
        await writer.drain()
        return True


def _reply(step: Any) -> bytes:
    status, answer = step if isinstance(step, tuple) else (200, step)
    body = json.dumps(answer).encode()
    return b"HTTP/1.1 %d Told\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%b" % (status, len(body), body)


@asynccontextmanager
async def scripted_door(*script: Step) -> AsyncIterator[ScriptedDoor]:
    door = ScriptedDoor(script)
    server = await asyncio.start_server(door.serve, "127.0.0.1", 0)
    host, port = server.sockets[0].getsockname()
    door.url = f"http://{host}:{port}"
    try:
        yield door
    finally:
        server.close()
