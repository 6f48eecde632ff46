"""A node with its HTTP port, and a client that asks over plain HTTP: in virtual time, or on real sockets (all_loops.py).

    on_loop(on_node(story))

Each request has a connection of its own, so that a test may send whatever headers it likes.
Not here: claims about what a node should answer.
"""

import asyncio
import json
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from serving import Serving, VirtualServing, listening_socket

from penstock.http.app import application
from penstock.http.door import HttpDoor
from penstock.simulator.world import World

HTTP = ("127.0.0.1", 8080)
QUICK = {"group_initial_rebalance_delay_ms": 0, "offsets_topic_num_partitions": 4}


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


def on_node(story: Story, **changes: Any) -> Callable[[World | None, object], Coroutine[None, None, None]]:
    """Returns a scenario for `on_loop`: the story, on a node of its own; `changes` are attributes of NodeSettings."""

    async def scenario(world: World | None, env: object) -> None:
        with TemporaryDirectory() as directory:
            await play(Serving(Path(directory)) if world is None else VirtualServing())

    async def play(serving: Serving) -> None:
        door = HttpDoor(*application(await serving.open(**(QUICK | changes))))
        listening = listening_socket(HTTP)
        door.open(listening)
        await asyncio.sleep(0)  # Until it listens.
        try:
            await story(serving, Http(listening.getsockname()))
        finally:
            await door.close()
            await serving.close()

    return scenario
