"""The HTTP server's own bounds: what a rude peer cannot do to it. With a small app behind it, in virtual time and on real sockets."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine

import pytest
from serving import listening_socket, virtual_timeout, virtually

from penstock.errors import BrokenPromise
from penstock.http import bounds
from penstock.http.bounds import App, Message, Receive, Scope, Send, bounded
from penstock.http.door import HEAD_BYTES_MAX, HEAD_SECONDS, HttpDoor
from penstock.http.patience import STALLED_SECONDS_MAX
from penstock.simulator.world import World

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


def at_port(conversation: Talk, app: App | None = None) -> Callable[[World | None, object], Coroutine[None, None, bytes]]:
    """Returns a scenario for `on_loop`."""
    return lambda world, env: talk_at(conversation, app)


async def talk_at(conversation: Talk, app: App | None = None) -> bytes:
    door, listening = HttpDoor(app or bounded(echo_size, body_bytes_max=1000)), listening_socket(("127.0.0.1", 8080))
    address = listening.getsockname()
    door.open(listening)
    await asyncio.sleep(0)  # Until it listens.
    reader, writer = await asyncio.open_connection(*address)
    try:
        return await conversation(reader, writer)
    finally:
        writer.close()
        await door.close()


def saying(*pieces: bytes, answered_s: float = 5.0) -> Talk:
    """Returns what comes back. It must come within `answered_s` of virtual time, by default less than any timer of the port."""

    async def conversation(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bytes:
        async with virtual_timeout(answered_s):
            for piece in pieces:
                writer.write(piece)
                await writer.drain()
            return await reader.read(65536)

    return conversation


def test_a_body_within_the_bound_is_taken(on_loop):
    assert on_loop(at_port(saying(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\nhello"))).endswith(b"5")


def test_a_body_that_announces_too_much_is_refused_before_it_is_sent(on_loop):
    conversation = saying(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000000\r\n\r\n")
    answer = on_loop(at_port(conversation))
    assert b" 413 " in answer and b"at most 1000 bytes" in answer


def test_a_chunked_body_is_counted_as_it_comes(on_loop):
    chunk = b"400\r\n" + b"x" * 0x400 + b"\r\n"
    assert b" 413 " in on_loop(at_port(saying(b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n", chunk, chunk)))


@pytest.mark.virtual_time("it waits until a part of a body has come")
def test_all_bodies_together_have_a_bound(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(bounds, "BODIES_BYTES_MAX", 1_500)
    head = b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\n"

    async def conversation(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bytes:
        writer.write(head + b"x" * 900)
        await asyncio.sleep(1)
        other_reader, other_writer = await asyncio.open_connection(*writer.get_extra_info("peername"))
        other_writer.write(head + b"x" * 900)
        answers = await other_reader.read()
        writer.write(b"x" * 100)
        answers += await reader.readuntil(b"1000")
        writer.write(head + b"x" * 1000)
        other_writer.close()
        return answers + await reader.readuntil(b"\r\n\r\n1000")

    answers = virtually(at_port(conversation))
    assert b" 503 " in answers and b"at once" in answers and answers.count(b" 200 ") == 2


def test_an_endless_head_is_cut_off(on_loop):
    line = b"X-Padding: " + b"x" * 1000 + b"\r\n"
    assert b" 400 " in on_loop(at_port(saying(b"GET / HTTP/1.1\r\n", *[line] * (HEAD_BYTES_MAX // 1000 + 2))))


@pytest.mark.virtual_time("a deadline must expire")
@pytest.mark.parametrize("beginning", [b"", b"\r\n", b"GET / HT"])
def test_a_head_that_does_not_come_in_time_ends_the_connection(beginning: bytes):
    assert virtually(at_port(until_ended(beginning, after_s=HEAD_SECONDS))) == b""


@pytest.mark.virtual_time("a deadline must expire")
def test_a_body_that_does_not_come_in_time_ends_the_connection():
    beginning = b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\nhell"
    assert virtually(at_port(until_ended(beginning, after_s=STALLED_SECONDS_MAX))) == b""


@pytest.mark.virtual_time("a deadline must expire")
def test_an_empty_line_after_a_request_does_not_keep_the_connection():
    assert virtually(at_port(until_ended(b"\r\n", after_s=STALLED_SECONDS_MAX, first=b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"))) == b""


def until_ended(beginning: bytes, *, after_s: float, first: bytes = b"") -> Talk:
    """After the `first` request, if there is one, says no more than the beginning. The connection must end `after_s` later, or within
    the two looks at it that come then."""

    async def conversation(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bytes:
        if first:
            writer.write(first)
            assert (await reader.readuntil(b"\r\n\r\n0")).startswith(b"HTTP/1.1 200 ")
        begun_at = asyncio.get_running_loop().time()
        try:
            return await saying(beginning, answered_s=after_s + 2)(reader, writer)
        except ConnectionError:
            return b""
        finally:
            assert after_s - 0.1 < asyncio.get_running_loop().time() - begun_at < after_s + 2

    return conversation


def test_bytes_that_are_not_http_are_answered_and_the_connection_closed(on_loop):
    assert b" 400 " in on_loop(at_port(saying(b"\x00\x00\x00\x20\x00\x12\x00\x04 this is Kafka\r\n\r\n")))


def test_a_connection_serves_one_request_after_another(on_loop):
    request = b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\nok"

    async def twice(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bytes:
        writer.write(request)
        first = await reader.readuntil(b"\r\n\r\n") + await reader.readexactly(1)
        writer.write(request)
        return first + await reader.readuntil(b"\r\n\r\n")

    assert on_loop(at_port(twice)).count(b"200 OK") == 2


def test_a_broken_promise_in_a_handler_reaches_the_loop(on_loop):
    """The server would only log it and go on serving."""
    told: list[BaseException] = []

    async def breaks(scope: Scope, receive: Receive, send: Send) -> None:
        asyncio.get_running_loop().set_exception_handler(lambda loop, context: told.append(context["exception"]))
        raise BrokenPromise("an offset went backwards")

    on_loop(at_port(saying(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"), bounded(breaks)))
    assert [str(broken) for broken in told] == ["an offset went backwards"]
