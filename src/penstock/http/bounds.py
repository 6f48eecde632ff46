"""The outermost layer of the HTTP app: how much a request may carry, and what happens when a promise breaks.

A body that announces, or turns out to have, more than `BODY_BYTES_MAX` is answered with 413 and the rest is never read into memory.
A `BrokenPromise` must stop the node, but the HTTP server treats it like any failed request; so it is told to the loop from here.
"""

import asyncio
import json
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from penstock.errors import BrokenPromise
from penstock.http.answers import TOO_LARGE, error

BODY_BYTES_MAX = 1 << 20  # Far above any request of today's routes. A door that takes more sets its own bound.

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]


class BodyTooLarge(Exception):
    """The request's body went past the bound."""


def bounded(app: App, *, body_bytes_max: int = BODY_BYTES_MAX) -> App:
    async def outer(scope: Scope, receive: Receive, send: Send) -> None:
        if _announced_bytes(scope) > body_bytes_max:
            return await _refuse(send, body_bytes_max)
        has_begun = False

        async def noting_send(message: Message) -> None:
            nonlocal has_begun
            has_begun = True
            await send(message)

        try:
            await app(scope, _counted(receive, body_bytes_max), noting_send)
        except BodyTooLarge:
            if not has_begun:
                await _refuse(send, body_bytes_max)
        except BrokenPromise as broken:
            asyncio.get_running_loop().call_exception_handler({"message": "an HTTP request broke a promise", "exception": broken})
            raise

    return outer


def _announced_bytes(scope: Scope) -> int:
    text = next((value for name, value in scope.get("headers", ()) if name == b"content-length"), b"0")
    return int(text) if text.isdigit() else 0


def _counted(receive: Receive, bytes_max: int) -> Receive:
    taken = 0

    async def counted() -> Message:
        nonlocal taken
        message = await receive()
        taken += len(message.get("body", b""))
        if taken > bytes_max:
            raise BodyTooLarge
        return message

    return counted


async def _refuse(send: Send, bytes_max: int) -> None:
    answer = error(TOO_LARGE, "body_too_large", f"a request body may have at most {bytes_max} bytes here")
    body = json.dumps(answer.body).encode()
    headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body)), (b"connection", b"close")]
    await send({"type": "http.response.start", "status": answer.status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
