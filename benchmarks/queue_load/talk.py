"""One connection that speaks HTTP/1.1: a request, then its answer. No more of HTTP is understood than servers of the SQS API need.

Anything but a 200 with a length ends the run: a figure with refusals in it would mean nothing. A server that closes the connection after an
answer is connected to again, and pays for it in its figures, as it would with any client.
"""

import asyncio
import re
import socket
from typing import cast

from benchmarks.load.frames import UnexpectedReply

_LENGTH = re.compile(rb"\r\ncontent-length: *(\d+)\r\n", re.IGNORECASE)
_CLOSE = re.compile(rb"\r\nconnection: *close\r\n", re.IGNORECASE)
_STATUS_BYTES = len(b"HTTP/1.1 200")
_QUOTED_BYTES = 300


class Talk:
    """Made by `open`."""

    def __init__(self, host: str, port: int) -> None:
        self._host, self._port = host, port
        self._wire = _Wire()

    @classmethod
    async def open(cls, host: str, port: int) -> "Talk":
        talk = cls(host, port)
        await talk._connect()
        return talk

    async def ask(self, request: bytes) -> bytes:
        """The body of the answer."""
        if not self._wire.is_open:
            await self._connect()
        return await self._wire.ask(request)

    def close(self) -> None:
        self._wire.close()

    async def _connect(self) -> None:
        _, self._wire = await asyncio.get_running_loop().create_connection(_Wire, self._host, self._port)


class _Wire(asyncio.Protocol):
    """One connection, until either side closes it."""

    def __init__(self) -> None:
        self.is_open = False
        self._transport: asyncio.Transport | None = None
        self._received = bytearray()
        self._answer: asyncio.Future[bytes] | None = None
        self._head_bytes = 0
        self._whole_bytes = 0  # Of the answer that is coming; 0: its head is not there yet.
        self._is_last = False  # The server closes the connection after it.

    def ask(self, request: bytes) -> "asyncio.Future[bytes]":
        self._answer = asyncio.get_running_loop().create_future()
        cast(asyncio.Transport, self._transport).write(request)
        return self._answer

    def close(self) -> None:
        self.is_open = False
        if self._transport is not None:
            self._transport.close()

    # What the event loop calls.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self.is_open = True

    def connection_lost(self, failure: Exception | None) -> None:
        self.is_open = False
        self._refuse(f"the connection ended before the answer: {failure}")

    def data_received(self, data: bytes) -> None:
        received = self._received
        received += data
        if not self._whole_bytes and not self._read_head():
            return
        if len(received) < self._whole_bytes:
            return
        body = bytes(received[self._head_bytes : self._whole_bytes])
        words = bytes(received[:_STATUS_BYTES])
        received.clear()
        self._whole_bytes = 0
        if self._is_last:
            self.close()
        if not words.endswith(b" 200"):
            self._refuse((words + b" " + body[:_QUOTED_BYTES]).decode(errors="replace"))
        elif self._answer is not None and not self._answer.done():
            self._answer.set_result(body)

    def _read_head(self) -> bool:
        end = self._received.find(b"\r\n\r\n")
        if end < 0:
            return False
        length = _LENGTH.search(self._received, 0, end + 2)
        if length is None:
            self._refuse(f"an answer without a length: {bytes(self._received[:end])!r}")
            self.close()
            return False
        self._is_last = _CLOSE.search(self._received, 0, end + 2) is not None
        self._head_bytes = end + 4
        self._whole_bytes = self._head_bytes + int(length[1])
        return True

    def _refuse(self, words: str) -> None:
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(UnexpectedReply(words))


def answers_http(port: int) -> bool:
    """Whether a server of the SQS API answers there, with whatever words."""
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=5) as line:
            line.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
            return line.recv(5) == b"HTTP/"
    except OSError:
        return False
