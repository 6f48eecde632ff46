"""Whoever waits for a coordinator's word: a request that keeps its place in the queue of replies, or a task that awaits.

An asker is its command's token. It hears exactly one thing, once: the coordinator's reply when everything behind it is durable, or that the
coordinator cannot answer (loading, gone, out of room). A request whose client hangs up is forgotten, and so is its place with the core.
"""

import asyncio
from collections.abc import Callable, Hashable, Mapping
from typing import TYPE_CHECKING, Any, Protocol

from penstock.broker.calls import Call
from penstock.errors import ErrorCode, Refusal
from penstock.wire import schemas

if TYPE_CHECKING:
    from penstock.broker.node import Node

Body = Mapping[str, Any] | bytes  # What is said, or a whole frame that says it.


class Asker(Hashable, Protocol):
    def answered(self, reply: Any) -> None: ...

    def refused(self, code: ErrorCode, reason: str) -> None: ...


class WaitingRequest:
    """A request of one client. `write` lays the core's reply out for the wire, `refuse` makes the reply that carries an error."""

    __slots__ = ("_bytes_held", "_call", "_node", "_refuse", "_reply", "_write", "abandon", "is_done")

    def __init__(self, node: "Node", call: Call, write: Callable[[int, Any], Body], refuse: Callable[[ErrorCode], Any]) -> None:
        self._node = node
        self._call = call._replace(frame=b"")  # The frame's buffer is another request's by the time that we answer.
        self._write = write
        self._refuse = refuse
        self._reply = call.connection.new_reply()
        self._bytes_held = 0  # Of the node's room for requests, while it waits.
        self.abandon: Callable[[], None] | None = None  # Tells the coordinator that nobody waits any more.
        self.is_done = False

    def park(self, held_bytes: int) -> None:
        """It was not answered at once: what it holds counts, and its client may go away."""
        if not self.is_done:
            self._reply.parked = self
            self._bytes_held = held_bytes
            self._node.request_room.hold(held_bytes)

    def answered(self, reply: Any) -> None:
        if self.is_done:
            return
        self._end()
        call = self._call
        body = self._write(call.version, reply)
        frame = body if isinstance(body, bytes) else schemas.write_response(call.api_key, call.version, call.correlation_id, body)
        self._reply.send([frame])

    def refused(self, code: ErrorCode, reason: str) -> None:
        self.answered(self._refuse(code))

    def cancel(self) -> None:
        """Its client is gone."""
        if not self.is_done:
            self._end()
            if self.abandon is not None:
                self.abandon()

    def _end(self) -> None:
        self.is_done = True
        held, self._bytes_held = self._bytes_held, 0
        if held:
            self._node.request_room.let_go(held)


class WaitingTask:
    """Somebody who awaits `heard`; a refusal is raised there."""

    __slots__ = ("heard",)

    def __init__(self) -> None:
        self.heard: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

    def answered(self, reply: Any) -> None:
        if not self.heard.done():
            self.heard.set_result(reply)

    def refused(self, code: ErrorCode, reason: str) -> None:
        if not self.heard.done():
            self.heard.set_exception(Refusal(code, reason))


class Nobody:
    """The asker of what the node itself wants: nobody waits."""

    __slots__ = ()

    def answered(self, reply: Any) -> None:
        pass

    def refused(self, code: ErrorCode, reason: str) -> None:
        pass
