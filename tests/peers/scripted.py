"""A peer that plays a script: a small server of Kafka's protocol whose every answer the test decides.

It listens on a free port of loopback. Requests are read and answered in their order, as a node does; the answer to each comes from the
handler of its API: a mapping (written as a reply of the request's version), bytes (sent as they are, length and all), `NO_ANSWER`, or
`HANG_UP`.

`virtually` runs a client and its scripted peers in virtual time, so that deadlines, pauses and retries cost nothing and are exact.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from random import Random
from typing import Any, TypeVar

import serving
from waiting import until_async

from penstock.peers.connection import Address
from penstock.peers.versions import OWN_VERSIONS
from penstock.simulator.env import SimEnv
from penstock.vocabulary import Instant
from penstock.wire.api_keys import ApiKey
from penstock.wire.frames import read_request_header
from penstock.wire.schemas import read_request, write_response

T = TypeVar("T")

NO_ANSWER = object()
HANG_UP = object()


class TestEnv:
    """The real clock, and chance from a seed, for a client of a real node."""

    __test__ = False

    def __init__(self, seed: int = 1) -> None:
        self.rng = Random(seed)

    def now(self) -> Instant:
        return Instant(time.monotonic())

    def wall_ms(self) -> int:
        return time.time_ns() // 1_000_000


@dataclass
class Question:
    api: ApiKey
    version: int
    correlation_id: int
    frame: bytes
    body: Any


Answer = Mapping[str, Any] | bytes | object
Handler = Callable[[Question], Answer | Awaitable[Answer]]


@dataclass
class ScriptedPeer:
    handlers: dict[ApiKey, Handler]
    address: Address
    versions: dict[int, tuple[int, int]] = field(default_factory=lambda: dict(OWN_VERSIONS))
    questions: list[Question] = field(default_factory=list)  # All but those about versions.
    connection_count: int = 0
    writers: list[asyncio.StreamWriter] = field(default_factory=list)
    serving_count: int = 0
    is_reading: asyncio.Event = field(default_factory=asyncio.Event)

    def of(self, api: ApiKey) -> list[Question]:
        return [question for question in self.questions if question.api == api]

    def hang_up(self) -> None:
        for writer in self.writers:
            writer.transport.abort()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connection_count += 1
        self.serving_count += 1
        self.writers.append(writer)
        try:
            while True:
                await self.is_reading.wait()
                frame = await reader.readexactly(int.from_bytes(await reader.readexactly(4), "big"))
                if not await self._reply(frame, writer):
                    return
        except (asyncio.IncompleteReadError, ConnectionError):
            return
        finally:
            self.serving_count -= 1
            writer.close()

    async def _reply(self, frame: bytes, writer: asyncio.StreamWriter) -> bool:
        header = read_request_header(frame)
        api = ApiKey(header.api_key)
        body = read_request(api, header.api_version, frame, header.body_at)
        question = Question(api, header.api_version, header.correlation_id, frame, body)
        if api != ApiKey.API_VERSIONS:
            self.questions.append(question)
        handler = self.handlers.get(api, self._say_versions if api == ApiKey.API_VERSIONS else _hang_up)
        answer = handler(question)
        if asyncio.iscoroutine(answer):
            answer = await answer
        if answer is HANG_UP:
            return False
        if answer is not NO_ANSWER:
            writer.write(answer if isinstance(answer, bytes) else write_response(api, question.version, question.correlation_id, answer))
            await writer.drain()
        return True

    def _say_versions(self, _: Question) -> Answer:
        return versions_body(self.versions)


def versions_body(versions: Mapping[int, tuple[int, int]]) -> dict[str, Any]:
    return {"api_keys": [{"api_key": key, "min_version": low, "max_version": high} for key, (low, high) in versions.items()]}


def frame_of(body: bytes) -> bytes:
    return len(body).to_bytes(4, "big") + body


def _hang_up(_: Question) -> Answer:
    return HANG_UP


@asynccontextmanager
async def scripted_peer(handlers: Mapping[ApiKey, Handler] | None = None, *, port: int = 0):
    peer = ScriptedPeer(dict(handlers or {}), Address("127.0.0.1", port))
    peer.is_reading.set()
    server = await asyncio.start_server(peer.serve, *peer.address)
    peer.address = Address(*server.sockets[0].getsockname()[:2])
    try:
        yield peer
    finally:
        server.close()
        peer.hang_up()
        peer.is_reading.set()
        await server.wait_closed()
        await until_async(lambda: peer.serving_count == 0)


def virtually(scenario: Callable[[SimEnv], Coroutine[Any, Any, T]]) -> T:
    """Runs the scenario, its client and its peers as one process of a simulated world; `env` is the client's clock and chance."""
    return serving.virtually(lambda _, env: scenario(env))
