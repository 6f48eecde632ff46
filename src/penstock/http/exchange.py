"""One request to the queue door that is all there: the door is asked, the answer is written in one piece.

It takes the place of uvicorn's own cycle (queue_http.py), so two of its attributes bear the names that uvicorn knows.
Once begun it goes on even if the client goes away, since whoever sends does not want half of it done; only a long poll ends then, also
where the client merely says that it sends no more. A large
answer is not done with until the client has taken most of it: so long it counts as held, and the next request of that connection waits.
How long a client may take is looked after elsewhere (patience.py).
Hot path: once for each request.
"""

import asyncio
import logging
from collections.abc import Coroutine, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

from penstock.errors import BrokenPromise
from penstock.http.sqs.answers import LARGE_BYTES
from penstock.http.sqs.desk import ClientGone
from penstock.http.sqs.door import QueueDoor, failure_reply, stopping_reply
from penstock.http.sqs.errors import BODY_TOO_LARGE, OK
from penstock.http.sqs.requests import Reply, Request
from penstock.http.sqs.room import SMALL_BYTES

if TYPE_CHECKING:
    from penstock.http.queue_http import QueueHttp

log = logging.getLogger(__name__)

TARGET = b"x-amz-target"
NOTHING_CAME = Reply(OK, b"{}")  # For a long poll whose client sends no more, and may or may not be there: it takes no message along.

T = TypeVar("T")


class Exchange(Request):
    response_complete = False
    keep_alive = True
    _is_gone = False  # The client.
    _is_begun = False
    is_polling = False
    _size = 0  # Of the body, as far as it takes room.

    def __init__(self, http: "QueueHttp", door: QueueDoor, headers: Mapping[bytes, bytes], url: bytes) -> None:
        client = http.client
        self.target = headers[TARGET]
        self.headers = headers
        self.url = url
        self.client = client[0] if client else ""
        self._http = http
        self._door = door

    def take(self, body: bytes) -> None:
        """All of the body at once, or a refusal instead of it."""
        size = len(body)
        if size <= SMALL_BYTES:
            self.body = body
            return
        refusal = self._door.room.refusal(size, whole=size)
        if refusal is None:
            self.body, self._size = body, size
        else:
            self.body, self.refusal = b"", refusal

    def take_turn(self) -> None:
        """Nobody before it on this connection is left to be answered."""
        self._is_begun = True
        self._http.begin(self)

    def let_go(self) -> None:
        """The client is gone."""
        self._is_gone = True
        if not self._is_begun:
            self._give_back()
        elif self.is_polling:
            self._http.stop_polling()

    def _give_back(self) -> None:
        if self._size:
            self._door.room.give_back(self._size)
            self._size = 0
        self.body = b""  # The connection keeps the last exchange until the next one comes.

    async def run(self) -> None:
        http, door = self._http, self._door
        try:
            try:
                reply = await door.answer(self)
            except ClientGone:
                if self._is_gone:
                    return
                reply, self.keep_alive = NOTHING_CAME, False
            except BaseException as failure:
                reply = self._failed(failure)
            finally:
                self._give_back()
            if http.flow.write_paused:
                await http.flow.drain()
            if not self._is_gone:
                if reply.status == BODY_TOO_LARGE.status:
                    self.keep_alive = False  # What is left of the body is not read.
                http.write(reply, door.next_id(), is_last=not self.keep_alive)
                if len(reply.body) > LARGE_BYTES:
                    await self._taken(len(reply.body))
                self.response_complete = True
                if not self.keep_alive:
                    http.transport.close()
                http.on_response_complete()
        except asyncio.CancelledError:  # The client has not taken its answer in time.
            http.transport.abort()
            raise
        finally:
            if self.held is not None:
                self.held.let_go()

    async def _taken(self, size: int) -> None:
        """By the client, most of it."""
        if self.held is not None:
            self.held.grow_to(size)
        await self._http.flow.drain()

    def _failed(self, failure: BaseException) -> Reply:
        self.keep_alive = False
        if isinstance(failure, asyncio.CancelledError):  # By the server, which has waited long enough.
            return stopping_reply()
        if isinstance(failure, BrokenPromise):
            self._http.loop.call_exception_handler({"message": "a request to a queue broke a promise", "exception": failure})
        log.error("a request to a queue failed", exc_info=failure)
        return failure_reply()

    async def while_connected(self, work: Coroutine[Any, Any, T]) -> T:
        if self._is_gone or self._http.has_ended:
            work.close()
            raise ClientGone
        self.is_polling = True
        self._http.flow.resume_reading()  # Or nobody would see it go.
        try:
            return await work
        except asyncio.CancelledError:
            if self._is_gone or self._http.has_ended:
                raise ClientGone from None
            raise
        finally:
            self.is_polling = False
