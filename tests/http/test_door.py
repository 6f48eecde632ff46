"""The HTTP server's own bounds: what a rude peer cannot do to it. Spoken to over a plain socket, with a small app behind."""

import asyncio
import socket
from collections.abc import Awaitable, Callable

import pytest

from penstock.errors import BrokenPromise
from penstock.http import bounds, patience
from penstock.http import door as doors
from penstock.http.bounds import Message, Receive, Scope, Send, bounded
from penstock.http.door import HEAD_BYTES_MAX, HttpDoor

Talk = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[bytes]]


async def echo_size(scope: Scope, receive: Receive, send: Send) -> None:
    size, more = 0, True
    while more:
        message: Message = await receive()
        size += len(message.get("body", b""))
        more = message.get("more_body", False)
    body = str(size).encode()
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"%d" % len(body))]})
    await send({"type": "http.response.body", "body": body})


def talk(conversation: Talk, app=None) -> bytes:
    async def run() -> bytes:
        listening = socket.create_server(("127.0.0.1", 0))
        door = HttpDoor(app or bounded(echo_size, body_bytes_max=1000))
        door.open(listening)
        reader, writer = await asyncio.open_connection(*listening.getsockname())
        try:
            async with asyncio.timeout(10):
                return await conversation(reader, writer)
        finally:
            writer.close()
            await door.close()

    return asyncio.run(run())


def saying(*pieces: bytes) -> Talk:
    async def conversation(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bytes:
        for piece in pieces:
            writer.write(piece)
            await writer.drain()
        return await reader.read(65536)

    return conversation


def test_a_body_within_the_bound_is_taken():
    assert talk(saying(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\nhello")).endswith(b"5")


def test_a_body_that_announces_too_much_is_refused_before_it_is_sent():
    answer = talk(saying(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000000\r\n\r\n"))
    assert b" 413 " in answer
    assert b"at most 1000 bytes" in answer


def test_a_chunked_body_is_counted_as_it_comes():
    chunk = b"400\r\n" + b"x" * 0x400 + b"\r\n"
    assert b" 413 " in talk(saying(b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n", chunk, chunk))


def test_all_bodies_together_have_a_bound(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(bounds, "BODIES_BYTES_MAX", 1_500)
    head = b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\n"

    async def conversation(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bytes:
        writer.write(head + b"x" * 900)
        await asyncio.sleep(0.1)
        other_reader, other_writer = await asyncio.open_connection(*writer.get_extra_info("peername"))
        other_writer.write(head + b"x" * 900)
        answers = await other_reader.read()
        writer.write(b"x" * 100)
        answers += await reader.readuntil(b"1000")
        writer.write(head + b"x" * 1000)
        other_writer.close()
        return answers + await reader.readuntil(b"\r\n\r\n1000")

    answers = talk(conversation)
    assert b" 503 " in answers and b"at once" in answers and answers.count(b" 200 ") == 2


def test_an_endless_head_is_cut_off():
    line = b"X-Padding: " + b"x" * 1000 + b"\r\n"
    assert b" 400 " in talk(saying(b"GET / HTTP/1.1\r\n", *[line] * (HEAD_BYTES_MAX // 1000 + 2)))


@pytest.mark.parametrize("beginning", [b"", b"GET / HT"])
def test_a_head_that_does_not_come_in_time_ends_the_connection(beginning: bytes, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(doors, "HEAD_SECONDS", 0.2)
    assert talk(saying(beginning)) == b""


@pytest.mark.parametrize("beginning", [b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\nhell", b"\r\n"])
def test_a_body_that_does_not_come_in_time_ends_the_connection(beginning: bytes, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(patience, "STALLED_SECONDS_MAX", 0.2)

    async def conversation(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bytes:
        try:
            return await saying(beginning)(reader, writer)
        except ConnectionError:
            return b""

    assert talk(conversation) == b""


def test_bytes_that_are_not_http_are_answered_and_the_connection_closed():
    assert b" 400 " in talk(saying(b"\x00\x00\x00\x20\x00\x12\x00\x04 this is Kafka\r\n\r\n"))


def test_a_connection_serves_one_request_after_another():
    request = b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\nok"

    async def twice(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bytes:
        writer.write(request)
        first = await reader.readuntil(b"\r\n\r\n") + await reader.readexactly(1)
        writer.write(request)
        return first + await reader.readuntil(b"\r\n\r\n")

    assert talk(twice).count(b"200 OK") == 2


def test_a_broken_promise_in_a_handler_reaches_the_loop():
    """The server would only log it and go on serving."""
    told: list[BaseException] = []

    async def breaks(scope: Scope, receive: Receive, send: Send) -> None:
        asyncio.get_running_loop().set_exception_handler(lambda loop, context: told.append(context["exception"]))
        raise BrokenPromise("an offset went backwards")

    talk(saying(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"), bounded(breaks))
    assert [str(broken) for broken in told] == ["an offset went backwards"]
