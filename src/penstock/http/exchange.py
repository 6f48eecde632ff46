"""One request to the queue door on its way through HTTP: its body comes in, the door is asked, the answer is written in one piece.

It takes the place of uvicorn's own cycle (queue_http.py), so two of its attributes bear the names that uvicorn knows.
A call runs in a task of its own from when its body is whole, or refused. Once begun it goes on even if the client goes away, since whoever
sends does not want half of it done; only a long poll ends then. A large answer is not done with until the client has taken most of it:
so long it counts as held, and the next request of that connection waits.
"""

import asyncio
import logging
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any, TypeVar

from penstock.broker.memory import HeldReply
from penstock.errors import BrokenPromise
from penstock.http.sqs.answers import LARGE_BYTES
from penstock.http.sqs.desk import ClientGone
from penstock.http.sqs.door import QueueDoor, failure_reply, stopping_reply
from penstock.http.sqs.errors import BODY_TOO_LARGE, SqsError
from penstock.http.sqs.requests import Reply, Request

if TYPE_CHECKING:
    from penstock.http.queue_http import QueueHttp

CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
SMALL_DIGITS = 6  # Of a length that needs no look before the body comes.

log = logging.getLogger(__name__)

T = TypeVar("T")


class Exchange:
    __slots__ = (
        "_door", "_has_turn", "_http", "_is_awaited", "_is_gone", "_is_polling", "_pieces", "_request", "_size", "_task",
        "keep_alive", "response_complete",
    )  # fmt: skip

    def __init__(self, http: "QueueHttp", door: QueueDoor, request: Request, *, keep_alive: bool) -> None:
        self.response_complete = False
        self.keep_alive = keep_alive
        self._http = http
        self._door = door
        self._request = request
        self._pieces: list[bytes] = []
        self._size = 0
        self._has_turn = False  # Nobody before it on this connection is left to be answered.
        self._is_awaited = True  # More of the body may come, and is wanted.
        self._is_gone = False  # The client.
        self._is_polling = False
        self._task: asyncio.Task[None] | None = None
        announced = request.headers.get(b"content-length", b"")
        if len(announced) > SMALL_DIGITS and announced.isdigit():
            self._heed(door.room.refusal(0, whole=int(announced)))

    # The request

    def take_turn(self) -> None:
        self._has_turn = True
        if not self._is_awaited:
            self._begin()
        elif self._request.headers.get(b"expect", b"").lower() == b"100-continue":
            self._http.transport.write(CONTINUE)

    def add(self, piece: bytes) -> None:
        if self._is_awaited:
            refusal = self._door.room.refusal(len(piece), whole=self._size + len(piece))
            if refusal is None:
                self._size += len(piece)
                self._pieces.append(piece)
            else:
                self._heed(refusal)

    def end_body(self) -> None:
        if self._is_awaited:
            self._is_awaited = False
            if self._has_turn:
                self._begin()

    def let_go(self) -> None:
        """The client is gone."""
        self._is_gone = True
        if self._task is None:
            self._is_awaited = False
            self._give_back()
        elif self._is_polling:
            self._task.cancel()

    def _heed(self, refusal: SqsError | None) -> None:
        if refusal is not None:
            self._request.refusal = refusal
            self.end_body()

    def _give_back(self) -> None:
        self._door.room.give_back(self._size)
        self._size = 0

    # The call

    def _begin(self) -> None:
        request, pieces = self._request, self._pieces
        request.body = pieces[0] if len(pieces) == 1 else b"".join(pieces)
        request.while_connected = self._while_connected
        self._pieces = []
        self._task = self._http.loop.create_task(self._run())
        self._http.tasks.add(self._task)

    async def _run(self) -> None:
        held = self._door.held()
        try:
            reply = await self._reply(held)
            if self._http.flow.write_paused:
                await self._http.flow.drain()
            if not self._is_gone:
                self._write(reply)
                if len(reply.body) > LARGE_BYTES:
                    await self._http.flow.drain()
                self._end()
        except ClientGone:
            pass
        except asyncio.CancelledError:  # The client has not taken its answer in time.
            self._http.transport.abort()
            raise
        finally:
            held.let_go()
            self._http.tasks.discard(self._task)

    async def _reply(self, held: HeldReply) -> Reply:
        try:
            return await self._door.answer(self._request, held)
        except ClientGone:
            raise
        except asyncio.CancelledError:  # By the server, which has waited long enough.
            self.keep_alive = False
            return stopping_reply()
        except BaseException as failure:
            if isinstance(failure, BrokenPromise):
                self._http.loop.call_exception_handler({"message": "a request to a queue broke a promise", "exception": failure})
            log.error("a request to a queue failed", exc_info=failure)
            self.keep_alive = False
            return failure_reply()
        finally:
            self._give_back()

    async def _while_connected(self, work: Coroutine[Any, Any, T]) -> T:
        if self._is_gone:
            work.close()
            raise ClientGone
        self._is_polling = True
        self._http.flow.resume_reading()  # Or nobody would see it go.
        try:
            return await work
        except asyncio.CancelledError:
            if self._is_gone:
                raise ClientGone from None
            raise
        finally:
            self._is_polling = False

    # The answer

    def _write(self, reply: Reply) -> None:
        if reply.status == BODY_TOO_LARGE.status:
            self.keep_alive = False  # What is left of the body is not read.
        head = self._http.head(reply, self._door.next_id(), is_last=not self.keep_alive)
        body = reply.body
        if len(body) > LARGE_BYTES:
            self._http.transport.write(head)
            self._http.transport.write(body)
        else:
            self._http.transport.write(head + body)

    def _end(self) -> None:
        self.response_complete = True
        if not self.keep_alive:
            self._http.transport.close()
        self._http.on_response_complete()
