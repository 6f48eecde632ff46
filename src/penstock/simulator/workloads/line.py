"""A connection that believes nothing: replies must come in the order of the requests, parse, and hold whole batches with right checksums.

`peers/` would take a reply out of turn for a broken connection and try again, and so hide it. Here it is a finding.
Several requests may be under way. Whatever ends the connection fails all of them with `LineLost`.
"""

import asyncio
from collections import deque
from collections.abc import Iterator
from typing import Any, NamedTuple, cast

from penstock.errors import MalformedInput
from penstock.peers.connection import Address
from penstock.simulator.workloads.notebook import NOWHERE, Notebook
from penstock.simulator.workloads.stage import ADDRESS
from penstock.wire.api_keys import ApiKey
from penstock.wire.batches import HEADER_BYTES, MAGIC, BatchHeader, crc_is_right, read_header
from penstock.wire.schemas import read_response, write_request

TIMEOUT_SECONDS = 2.0
_TRIES = 5


class LineLost(Exception):
    """The connection ended, or was never made: whether the request was carried out is unknown."""


class _Waiting(NamedTuple):
    correlation_id: int
    api: ApiKey
    version: int
    answer: asyncio.Future[Any]


class Line(asyncio.Protocol):
    """Made by `open`; `send` returns a future for the reply, `ask` waits for it."""

    def __init__(self, notebook: Notebook, name: str, timeout_seconds: float) -> None:
        self.is_open = False
        self._timeout_seconds = timeout_seconds
        self._notebook = notebook
        self._name = name
        self._transport: asyncio.Transport | None = None
        self._received = bytearray()
        self._next = 0
        self._waiting: deque[_Waiting] = deque()

    @classmethod
    async def open(
        cls, notebook: Notebook, name: str, *, timeout_seconds: float = TIMEOUT_SECONDS, address: Address = ADDRESS
    ) -> "Line":
        line = cls(notebook, name, timeout_seconds)
        try:
            async with asyncio.timeout(TIMEOUT_SECONDS):
                await asyncio.get_running_loop().create_connection(lambda: line, address.host, address.port)
        except OSError as failure:
            line.close()
            raise LineLost(str(failure)) from None
        return line

    def send(self, api: ApiKey, version: int, body: dict[str, Any]) -> "asyncio.Future[Any]":
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        if not self.is_open or self._transport is None:
            answer.set_exception(LineLost("the connection has ended"))
            return answer
        self._waiting.append(_Waiting(self._next, api, version, answer))
        self._transport.write(write_request(api, version, self._next, self._name, body))
        self._next += 1
        return answer

    async def answered(self, answer: "asyncio.Future[Any]") -> Any:
        """Waits for a reply; one that does not come in time ends the connection."""
        try:
            async with asyncio.timeout(self._timeout_seconds):
                return await asyncio.shield(answer)
        except TimeoutError:
            self.close()
            raise LineLost("no reply in time") from None

    async def ask(self, api: ApiKey, version: int, body: dict[str, Any]) -> Any:
        return await self.answered(self.send(api, version, body))

    def close(self) -> None:
        self._end("closed")
        if self._transport is not None:
            self._transport.abort()

    # What the event loop calls.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self.is_open = True

    def connection_lost(self, exc: BaseException | None) -> None:
        self._end(repr(exc))

    def data_received(self, data: bytes) -> None:
        self._received += data
        while self.is_open and len(self._received) >= 4:
            end = 4 + int.from_bytes(self._received[:4], "big")
            if len(self._received) < end:
                return
            frame = bytes(self._received[4:end])
            del self._received[:end]
            self._take(frame)

    def _take(self, frame: bytes) -> None:
        correlation_id = int.from_bytes(frame[:4], "big", signed=True)
        if not self._waiting or self._waiting[0].correlation_id != correlation_id:
            due = self._waiting[0].correlation_id if self._waiting else None
            self._notebook.find("replies come in order", NOWHERE, f"{self._name} was due reply {due} and got {correlation_id}")
            self.close()
            return
        _, api, version, answer = self._waiting.popleft()
        try:
            message = read_response(api, version, frame)[1]
        except MalformedInput as malformed:
            self._notebook.find("replies parse", NOWHERE, f"{self._name} got a reply to {api.name} {version}: {malformed}")
            self.close()
            return
        if not answer.done():
            answer.set_result(message)

    def _end(self, reason: str) -> None:
        self.is_open = False
        waiting, self._waiting = self._waiting, deque()
        for one in waiting:
            if not one.answer.done():
                one.answer.set_exception(LineLost(reason))
                one.answer.exception()  # Counts as seen: not everyone waits for each.


class Redial:
    """A line that is opened again: of a reply that turns out damaged while it is sent, a node can only break off the connection."""

    def __init__(self, notebook: Notebook, name: str, *, timeout_seconds: float) -> None:
        self._notebook = notebook
        self._name = name
        self._timeout_seconds = timeout_seconds
        self._line: Line | None = None

    async def ask(self, api: ApiKey, version: int, body: dict[str, Any]) -> Any:
        for _ in range(_TRIES - 1):
            try:
                return await self._ask_once(api, version, body)
            except LineLost:
                continue
        return await self._ask_once(api, version, body)

    def close(self) -> None:
        if self._line is not None:
            self._line.close()

    async def _ask_once(self, api: ApiKey, version: int, body: dict[str, Any]) -> Any:
        if self._line is None or not self._line.is_open:
            self._line = await Line.open(self._notebook, self._name, timeout_seconds=self._timeout_seconds)
        return await self._line.ask(api, version, body)


def whole_batches(records: bytes) -> Iterator[tuple[BatchHeader, memoryview]]:
    """Batches of a fetched row. Anything that is not whole and right raises `MalformedInput`: a node sends whole batches only."""
    view, at = memoryview(records), 0
    while at < len(view):
        if len(view) - at < HEADER_BYTES:
            raise MalformedInput(f"{len(view) - at} bytes follow the last batch")
        header = read_header(view, at)
        if header.magic != MAGIC or not HEADER_BYTES <= header.size <= len(view) - at:
            raise MalformedInput(f"at byte {at} there is no whole batch")
        if not crc_is_right(view, at, header.size):
            raise MalformedInput(f"the batch that claims offset {header.base_offset} does not match its checksum")
        yield header, view[at : at + header.size]
        at += header.size
