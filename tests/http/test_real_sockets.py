"""The HTTP port on real sockets, on both event loops: what only the system's buffers and its half-closed connections show.

Bounds and timers are shown in virtual time (test_patience.py, test_queue_http.py, test_door.py). Here none of them expires, however long
the machine stalls.
"""

import asyncio
import socket
from collections.abc import Awaitable, Callable

import pytest
import uvloop
from queue_http_talk import PAGE, CountingDoor, Talk, ask, page
from waiting import NEVER_S, PATIENCE_S, stays_async, until_async

from penstock.http import door as doors
from penstock.http.door import HttpDoor
from penstock.simulator.knobs import replaced

MIB = 1 << 20
RECEIVE_BYTES = 64 << 10  # Of the client's socket. With what the system keeps for a sender it is less than an answer of these tests.
Story = Callable[[Talk], Awaitable[None]]
Play = Callable[[Story], None]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Runs each test on uvloop's, as nodes do, and in `make test-slow` on asyncio's, too."""
    again = pytest.mark.slow(stays=metafunc.definition.nodeid)
    loops = [pytest.param(uvloop.new_event_loop, id="uvloop"), pytest.param(asyncio.new_event_loop, id="asyncio", marks=again)]
    metafunc.parametrize("play", loops, indirect=True)


@pytest.fixture
def play(request: pytest.FixtureRequest) -> Play:
    """Runs a story at a port of its own."""

    def run(story: Story) -> None:
        complaints: list[str] = []
        with replaced([(doors, "HEAD_SECONDS", NEVER_S)]), asyncio.Runner(loop_factory=request.param) as runner:
            runner.get_loop().set_exception_handler(lambda loop, context: complaints.append(str(context)))
            runner.run(at_port(story))
        assert complaints == []

    return run


async def at_port(story: Story) -> None:
    listening, door = socket.create_server(("127.0.0.1", 0)), CountingDoor()
    door.stalled_seconds_max = NEVER_S
    server = HttpDoor(page, door)  # type: ignore[arg-type]
    server.open(listening)
    client = socket.socket()
    client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVE_BYTES)
    client.setblocking(False)
    await asyncio.get_running_loop().sock_connect(client, listening.getsockname())
    reader, writer = await asyncio.open_connection(sock=client, limit=RECEIVE_BYTES)
    try:
        async with asyncio.timeout(PATIENCE_S):
            await story(Talk(door, reader, writer, server))
    finally:
        door.let_on.set()
        writer.close()
        await server.close()


def test_a_slow_reader_gets_all_of_its_answers_and_is_read_from_only_as_it_takes_them(play: Play):
    async def story(talk: Talk) -> None:
        size = talk.door.answer_bytes = 12 * MIB
        talk.say(ask(b"1") + ask(b"12") + ask(b"123"))
        await until_async(lambda: talk.door.asked == [b"1"])
        await stays_async(lambda: talk.door.asked == [b"1"] and talk.door.reply_room.bytes_taken == size + 1)
        for number in (b"1", b"2", b"3"):
            head = await talk.reader.readuntil(b"\r\n\r\n")
            assert head.startswith(b"HTTP/1.1 200 ") and b"content-length: %d\r\n" % (size + 1) in head.lower()
            assert await talk.reader.readexactly(size + 1) == number + b"x" * size
        assert talk.door.asked == [b"1", b"12", b"123"] and talk.door.stalled == 0
        await until_async(lambda: talk.door.reply_room.bytes_taken == talk.door.room.bytes_taken == 0)

    play(story)


@pytest.mark.parametrize("last", [ask(b"12345"), ask(b"wait12345"), PAGE], ids=["queue", "poll", "page"])
def test_who_ends_its_side_after_its_requests_is_answered_and_then_the_connection_ends(play: Play, last: bytes):
    async def story(talk: Talk) -> None:
        talk.say(ask(b"1") + PAGE + last)
        talk.writer.write_eof()
        answers = [(await talk.hear())[1] for _ in range(3)]
        assert answers == [b"1", b"page", {ask(b"12345"): b"5", PAGE: b"page"}.get(last, b"{}")]
        assert await talk.is_ended(PATIENCE_S)

    play(story)


def test_a_long_poll_ends_with_nothing_when_its_client_ends_its_side(play: Play):
    async def story(talk: Talk) -> None:
        talk.say(ask(b"wait"))
        await until_async(lambda: talk.door.polls == 1)
        talk.writer.write_eof()
        head, body = await talk.hear()
        assert head.startswith(b"HTTP/1.1 200 ") and body == b"{}" and await talk.is_ended(PATIENCE_S)

    play(story)


def test_a_long_poll_ends_when_its_client_goes_and_what_came_behind_it_never_begins(play: Play):
    async def story(talk: Talk) -> None:
        talk.say(ask(b"wait") + ask(b"never begun"))
        await until_async(lambda: talk.door.polls == 1)
        talk.writer.transport.abort()
        await until_async(lambda: talk.door.polls == 0 and talk.door.room.bytes_taken == 0)
        assert talk.door.asked == [b"wait"] and not talk.door.let_on.is_set()

    play(story)
