"""A client at the HTTP port, in virtual time or on real sockets (all_loops.py).
Behind the port is a small door that answers how many bytes it was given, once it is let.

    on_loop(on_http_port(story))

Not here: claims about what the port should do. Real doors are in http/sqs.
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from contextlib import suppress

from serving import listening_socket, virtual_timeout

from penstock.broker.memory import HeldReply, PartOfRoom, ReplyRoom
from penstock.http.bounds import Receive, Scope, Send
from penstock.http.door import HttpDoor
from penstock.http.sqs.door import error_reply
from penstock.http.sqs.errors import MISSING_TOKEN, SqsError
from penstock.http.sqs.requests import Reply, Request
from penstock.http.sqs.room import Room
from penstock.simulator.env import SimEnv
from penstock.simulator.world import World

ADDRESS = ("127.0.0.1", 8080)
HEAD = b"POST / HTTP/1.1\r\nHost: x\r\nX-Amz-Target: Any.Thing\r\n"
PAGE = b"GET /page HTTP/1.1\r\nHost: x\r\n\r\n"


class CountingDoor:
    """Answers with the size of the body. A body that begins with `wait` is kept waiting until `let_on` is set."""

    def __init__(self) -> None:
        self.room, self.reply_room = Room(), ReplyRoom(1 << 30)
        self.replies = PartOfRoom(self.reply_room)
        self.stalled_seconds_max, self.stalled = 60.0, 0
        self.asks_for_keys = False
        self.let_on = asyncio.Event()
        self.asked: list[bytes] = []
        self.failure: BaseException | None = None
        self.answer_bytes = 0
        self.delay_s = 0.0
        self.polls = 0

    def next_id(self) -> bytes:
        return b"id-%d" % len(self.asked)

    def refusal_of_head(self, headers: Mapping[bytes, bytes]) -> SqsError | None:
        return SqsError(MISSING_TOKEN, "not signed") if self.asks_for_keys and b"authorization" not in headers else None

    def note_stalled(self) -> None:
        self.stalled += 1

    async def answer(self, request: Request) -> Reply:
        self.asked.append(request.body)
        request.held = HeldReply(self.replies)
        request.held.add(self.answer_bytes)
        if self.failure is not None:
            raise self.failure
        if request.refusal is not None:
            return error_reply(request.refusal)
        await asyncio.sleep(self.delay_s)
        if request.body.startswith(b"wait"):
            await request.while_connected(self._wait())
        return Reply(200, b"%d" % len(request.body) + b"x" * self.answer_bytes)

    async def _wait(self) -> None:
        self.polls += 1
        try:
            await self.let_on.wait()
        finally:
            self.polls -= 1


class Talk:
    def __init__(self, door: CountingDoor, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, server: HttpDoor) -> None:
        self.door, self.reader, self.writer, self.server = door, reader, writer, server

    def say(self, content: bytes) -> None:
        self.writer.write(content)

    async def hear(self) -> tuple[bytes, bytes]:
        """The head and the body of the next answer."""
        head = await self.reader.readuntil(b"\r\n\r\n")
        length = int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0] or 0)
        return head, await self.reader.readexactly(length)

    async def is_ended(self, within_s: float = 10.0) -> bool:
        """Fails if nothing comes for so long; the default is less than any timer of the port, which would end the connection too."""
        try:
            async with virtual_timeout(within_s):
                return await self.reader.read(1) == b""
        except ConnectionError:
            return True

    async def end(self) -> None:
        """Reads what is left, until the other side ends the connection."""
        with suppress(ConnectionError):
            await self.reader.read()

    async def another(self) -> "Talk":
        """Over a connection of its own, to the same port."""
        return Talk(self.door, *await asyncio.open_connection(*self.writer.get_extra_info("peername")), self.server)


async def page(scope: Scope, receive: Receive, send: Send) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"4")]})
    await send({"type": "http.response.body", "body": b"page"})


def on_http_port(story: Callable[[Talk], Awaitable[None]]) -> Callable[[World, SimEnv], Coroutine[None, None, None]]:
    """Returns a scenario for `on_loop`: the story, at a port that is opened before and closed after it."""

    async def scenario(world: World, env: SimEnv) -> None:
        door = CountingDoor()
        server = HttpDoor(page, door)  # type: ignore[arg-type]
        listening = listening_socket(ADDRESS)
        server.open(listening)
        await asyncio.sleep(0)  # Until it listens.
        reader, writer = await asyncio.open_connection(*listening.getsockname())
        try:
            await story(Talk(door, reader, writer, server))
        finally:
            door.let_on.set()
            writer.close()
            await server.close()

    return scenario


def ask(body: bytes, *headers: bytes, head: bytes = HEAD) -> bytes:
    return head + b"".join(each + b"\r\n" for each in headers) + b"Content-Length: %d\r\n\r\n%b" % (len(body), body)
