"""HTTP/1.1 with keep-alive over asyncio: as much of it as a queue's client needs, and no more.

A connection carries one request at a time and is kept for the next one. Several waiting receives are several connections, up to
`WAITING_MAX`, and others go beside them: a heartbeat must not wait until somebody's wait is over. Whoever comes after that waits. Given
several addresses, all of one cluster, it stays with the one that answers and goes on to the next when that one fails, or its caller turns
away from it.

What fails is told as `Lost`, and whether the request may have reached the node: only the caller knows which request may be sent twice.
A cancelled request closes its connection, which tells the node that nobody waits any more. Not here: proxies, redirects, cookies.
"""

import asyncio
import os
import ssl
from collections.abc import Mapping, Sequence
from typing import NamedTuple
from urllib.parse import urlsplit

import httptools

WAITING_MAX, OTHERS_MAX = 100, 50  # Connections of requests that wait at the node, and of those that do not.
CONNECT_SECONDS = 5.0
REPLY_BYTES_MAX = 256 << 20  # Far above what a node puts into one answer; a peer that sends more is no node.
DEFAULT_PORTS = {"http": 80, "https": 443}
EXAMPLE = "http://127.0.0.1:8080"


class Lost(Exception):
    """No whole answer came."""

    def __init__(self, problem: str, *, was_sent: bool) -> None:
        super().__init__(problem)
        self.problem = problem
        self.was_sent = was_sent  # Whether the node may have carried the request out.


class Reply(NamedTuple):
    status: int
    headers: Mapping[str, str]  # Names in lower case.
    body: bytes


class Address(NamedTuple):
    scheme: str
    host: str
    port: int

    @property
    def text(self) -> str:
        """As the Host header has it."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"


def addresses(urls: str) -> list[Address]:
    """Of `http://host:port`, several with commas between them. Raises ValueError with the reason."""
    found = [_address(text.strip()) for text in urls.split(",") if text.strip()]
    if not found:
        raise ValueError(f"an address is wanted, such as {EXAMPLE}")
    return found


class Door:
    """The HTTP ports of one cluster, any of which answers every request."""

    def __init__(self, where: Sequence[Address]) -> None:
        self._where = list(where)
        self._idle: list[_Connection] = []
        self._room_to_wait = asyncio.Semaphore(WAITING_MAX)
        self._room = asyncio.Semaphore(OTHERS_MAX)
        self.is_closed = False

    @property
    def address(self) -> Address:
        """The one that is asked now."""
        return self._where[0]

    async def post(self, address: Address, headers: Mapping[str, str], body: bytes, *, seconds: float, is_waiting: bool = False) -> Reply:
        """One request. Raises Lost."""
        async with self._room_to_wait if is_waiting else self._room:
            try:
                connection = await self._connection(address)
                try:
                    reply = await connection.ask(_request(address, headers, body), seconds)
                except BaseException:
                    connection.close()
                    raise
            except Lost:
                self.turn_away_from(address)
                raise
            if connection.is_reusable and not self.is_closed:
                self._idle.append(connection)
            else:
                connection.close()
            return reply

    def turn_away_from(self, address: Address) -> None:
        """Once for all who fail there at the same time."""
        if self._where[0] == address:
            self._where.append(self._where.pop(0))

    def close(self) -> None:
        self.is_closed = True
        while self._idle:
            self._idle.pop().close()

    async def _connection(self, address: Address) -> "_Connection":
        while self._idle:
            connection = self._idle.pop()
            if connection.is_reusable and connection.address == address and connection.loop is asyncio.get_running_loop():
                return connection
            connection.close()
        return await _connect(address)


class _Connection(asyncio.Protocol):
    """One connection, and the request that is under way on it."""

    def __init__(self, address: Address) -> None:
        self.address = address
        self.loop = asyncio.get_running_loop()
        self._transport: asyncio.WriteTransport | None = None
        self._parser = httptools.HttpResponseParser(self)
        self._waiting: asyncio.Future[Reply] | None = None
        self._is_open = False
        self._headers: dict[str, str] = {}
        self._pieces: list[bytes] = []
        self._size = 0

    @property
    def is_reusable(self) -> bool:
        return self._is_open and self._waiting is None

    async def ask(self, request: bytes, seconds: float) -> Reply:
        assert self._transport is not None and self._waiting is None
        if not self._is_open:
            raise Lost(f"{self.address.text} has closed the connection", was_sent=False)
        self._waiting = asyncio.get_running_loop().create_future()
        self._transport.write(request)
        try:
            async with asyncio.timeout(seconds):
                return await self._waiting
        except TimeoutError:
            raise Lost(f"{self.address.text} has not answered for {seconds:g} s", was_sent=True) from None
        finally:
            self._waiting = None

    def close(self) -> None:
        """One of another loop is only let go: that loop is gone or, in a fork, the parent's, whose selector is shared with it."""
        self._is_open = False
        if self._transport is not None and self.loop is asyncio.get_running_loop():
            self._transport.abort()

    # What asyncio tells.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.WriteTransport)
        self._transport, self._is_open = transport, True

    def data_received(self, data: bytes) -> None:
        self._size += len(data)
        try:
            if self._waiting is None or self._size > REPLY_BYTES_MAX:
                raise httptools.HttpParserError("more bytes than were asked for")
            self._parser.feed_data(data)
        except httptools.HttpParserError as wrong:
            self._fail(f"{self.address.text} does not speak HTTP as a node does: {wrong}")
            self.close()

    def connection_lost(self, problem: Exception | None) -> None:
        self._is_open = False
        self._fail(f"{self.address.text} has closed the connection" + (f": {problem}" if problem else ""))

    # What the parser finds.

    def on_message_begin(self) -> None:
        self._headers, self._pieces, self._size = {}, [], 0

    def on_header(self, name: bytes, value: bytes) -> None:
        self._headers[name.decode("latin-1").lower()] = value.decode("latin-1")

    def on_body(self, body: bytes) -> None:
        self._pieces.append(body)

    def on_message_complete(self) -> None:
        reply = Reply(self._parser.get_status_code(), self._headers, b"".join(self._pieces))
        self._pieces = []
        self._is_open = self._is_open and self._parser.should_keep_alive()
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_result(reply)

    def _fail(self, problem: str) -> None:
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_exception(Lost(problem, was_sent=True))


async def _connect(address: Address) -> _Connection:
    loop = asyncio.get_running_loop()
    context = ssl.create_default_context() if address.scheme == "https" else None
    try:
        async with asyncio.timeout(CONNECT_SECONDS):
            _, connection = await loop.create_connection(lambda: _Connection(address), address.host, address.port, ssl=context)
    except TimeoutError:
        raise Lost(f"{address.text} has not answered for {CONNECT_SECONDS:g} s", was_sent=False) from None
    except OSError as problem:  # Every kind of it: refused, no such host, no route, a certificate that nobody vouches for.
        raise Lost(f"{address.text} cannot be reached: {_words(problem)}", was_sent=False) from None
    return connection


def _words(problem: OSError) -> str:
    """The system's own; asyncio puts the address in their place, which is said already."""
    if isinstance(problem, ssl.SSLError) and problem.reason == "WRONG_VERSION_NUMBER":  # What came back is no TLS at all.
        return "it does not speak TLS; say http:// instead of https://"
    return os.strerror(problem.errno) if isinstance(problem, ConnectionError) and problem.errno else str(problem.strerror or problem)


def _request(address: Address, headers: Mapping[str, str], body: bytes) -> bytes:
    lines = ["POST / HTTP/1.1", f"Host: {address.text}", f"Content-Length: {len(body)}"]
    lines += [f"{name}: {value}" for name, value in headers.items()]
    return "\r\n".join([*lines, "", ""]).encode("latin-1") + body


def _address(text: str) -> Address:
    try:
        parts = urlsplit(text if "//" in text else f"http://{text}")
        is_address = parts.scheme in DEFAULT_PORTS and bool(parts.hostname)
    except ValueError:  # Brackets that are not closed, or with something else than an address in them.
        is_address = False
    if not is_address:
        raise ValueError(f"{text!r} is no address such as {EXAMPLE}")
    assert parts.hostname is not None
    try:
        port = parts.port
    except ValueError:
        port = 0
    if port == 0:
        raise ValueError(f"the port of {text!r} must be a number from 1 to 65535, as in {EXAMPLE}")
    return Address(parts.scheme, parts.hostname, port or DEFAULT_PORTS[parts.scheme])
