"""The outermost layer of the HTTP app: how much a request may carry, and what happens when a promise breaks.

A body that announces, or turns out to have, more than `BODY_BYTES_MAX` is answered with 413 and the rest is never read into memory. So is
one that finds too much of others there, with 503.
A `BrokenPromise` must stop the node, but the HTTP server treats it like any failed request; so it is told to the loop from here.
"""

import asyncio
import json
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from penstock.errors import BrokenPromise
from penstock.http.answers import TOO_LARGE, UNAVAILABLE, Answer, error

BODY_BYTES_MAX = 1 << 20  # Far above any request of today's routes. A door that takes more sets its own bound.
BODIES_BYTES_MAX = 16 << 20  # Of all requests at hand: few come here at the same time, and those are small.
CLOSE = {"Connection": "close"}

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]


class BodyTooLarge(Exception):
    """The request's body went past its bound, or past that of all together."""

    def __init__(self, answer: Answer) -> None:
        super().__init__(answer.body)
        self.answer = answer


class _Bodies:
    """Those at hand."""

    def __init__(self, body_bytes_max: int) -> None:
        self._body_bytes_max = body_bytes_max
        self._bytes_taken = 0

    def take(self, size: int, *, whole: int) -> None:
        """Room for one more piece of a body that has `whole` bytes with it."""
        if whole > self._body_bytes_max:
            raise BodyTooLarge(self.too_large())
        if self._bytes_taken + size > BODIES_BYTES_MAX:
            raise BodyTooLarge(error(UNAVAILABLE, "too_many_bodies", "too many requests with a body at once; try again", CLOSE))
        self._bytes_taken += size

    def give_back(self, size: int) -> None:
        self._bytes_taken -= size

    def too_large(self) -> Answer:
        return error(TOO_LARGE, "body_too_large", f"a request body may have at most {self._body_bytes_max} bytes here", CLOSE)


def bounded(app: App, *, body_bytes_max: int = BODY_BYTES_MAX) -> App:
    bodies = _Bodies(body_bytes_max)

    async def outer(scope: Scope, receive: Receive, send: Send) -> None:
        if _announced_bytes(scope) > body_bytes_max:
            return await _refuse(send, bodies.too_large())
        has_begun, taken = False, 0

        async def counting_receive() -> Message:
            nonlocal taken
            message = await receive()
            size = len(message.get("body", b""))
            bodies.take(size, whole=taken + size)
            taken += size
            return message

        async def noting_send(message: Message) -> None:
            nonlocal has_begun
            has_begun = True
            await send(message)

        try:
            await app(scope, counting_receive, noting_send)
        except BodyTooLarge as refused:
            if not has_begun:
                await _refuse(send, refused.answer)
        except BrokenPromise as broken:
            asyncio.get_running_loop().call_exception_handler({"message": "an HTTP request broke a promise", "exception": broken})
            raise
        finally:
            bodies.give_back(taken)

    return outer


def _announced_bytes(scope: Scope) -> int:
    text = next((value for name, value in scope.get("headers", ()) if name == b"content-length"), b"0")
    return int(text) if text.isdigit() else 0


async def _refuse(send: Send, answer: Answer) -> None:
    body = json.dumps(answer.body).encode()
    headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body)), (b"connection", b"close")]
    await send({"type": "http.response.start", "status": answer.status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
