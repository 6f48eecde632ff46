"""A node with its HTTP door on real loopback sockets, in this very loop, and somebody who asks over plain HTTP.

Each question has a connection of its own, so that a test may send whatever headers it likes.
Not here: claims about what a node should answer.
"""

import asyncio
import json
import socket
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from serving import Serving

from penstock.http.app import application
from penstock.http.door import HttpDoor

SECONDS_MAX = 60.0
QUICK = {"group_initial_rebalance_delay_ms": 0, "offsets_topic_num_partitions": 4, "group_min_session_timeout_ms": 100}


@dataclass(frozen=True, slots=True)
class Answered:
    status: int
    headers: Mapping[str, str]
    text: str

    @property
    def json(self) -> Any:
        return json.loads(self.text)


class Http:
    def __init__(self, address: tuple[str, int]) -> None:
        self.address = address

    async def get(self, path: str, **headers: str) -> Answered:
        return await self.ask("GET", path, **headers)

    async def post(self, path: str, body: object, **headers: str) -> Answered:
        return await self.ask("POST", path, body, **headers)

    async def ask(self, method: str, path: str, body: object = None, **headers: str) -> Answered:
        """`body` is sent as JSON; a header is named with `_` for `-`, and an empty one is left out."""
        content = b"" if body is None else body if isinstance(body, bytes) else json.dumps(body).encode()
        sent = {"host": f"{self.address[0]}:{self.address[1]}", "connection": "close", "content-length": str(len(content))}
        if body is not None:
            sent["content-type"] = "application/json"
        sent |= {name.replace("_", "-"): value for name, value in headers.items()}
        lines = [f"{method} {path} HTTP/1.1", *(f"{name}: {value}" for name, value in sent.items() if value), "", ""]
        reader, writer = await asyncio.open_connection(*self.address)
        try:
            writer.write("\r\n".join(lines).encode() + content)
            return _read(await reader.read())
        finally:
            writer.close()


def _read(answer: bytes) -> Answered:
    head, _, body = answer.partition(b"\r\n\r\n")
    first, *lines = head.decode().split("\r\n")
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    return Answered(int(first.split()[1]), headers, body.decode())


Story = Callable[[Serving, Http], Awaitable[None]]


def with_http(directory: Path, story: Story, **changes: Any) -> None:
    """Runs the story on a node of its own; `changes` are attributes of NodeSettings."""

    async def whole() -> None:
        serving = Serving(directory / "data")
        node = await serving.open(**(QUICK | changes))
        listening = socket.create_server(("127.0.0.1", 0))
        door = HttpDoor(*application(node))
        door.open(listening)
        try:
            async with asyncio.timeout(SECONDS_MAX):
                await story(serving, Http(listening.getsockname()))
        finally:
            await door.close()
            await serving.close()

    asyncio.run(whole())
