"""HTTP as uvicorn speaks it, with a straight way for requests to the queue door.

uvicorn makes a scope, a cycle, an event and two functions of every request, which costs more than the door itself. A POST that names its
action in `X-Amz-Target` goes past all that: head and body are collected as the parser finds them, the door is asked, and the answer is
one write (exchange.py). Everything else goes uvicorn's way, in the same connections: requests that came before their turn wait in one
line, whichever way they go, and are answered in order. What uvicorn does for a connection holds for both: its bounds on connections and
calls (503), the end of idle ones, and the grace at the end of the node.

The idle timer is set once and looks at the clock when it fires: setting it anew with each request would cost as much as reading one.
"""

import asyncio
from typing import Any

import httptools
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

from penstock.http.exchange import Exchange
from penstock.http.sqs.door import QueueDoor
from penstock.http.sqs.requests import Reply, Request

TARGET = b"x-amz-target"
CONTENT_TYPE = (b"content-type", b"application/x-amz-json-1.0")
BUSY = 0.0


class QueueHttp(HttpToolsProtocol):
    """Base of the server's protocol. `queues` is None where there are none."""

    def __init__(self, queues: QueueDoor | None, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self._queues = queues
        self._at_work: Exchange | None = None  # The last one that had its turn.
        self._idle_since_s = BUSY
        self._idle_timer: asyncio.TimerHandle | None = None
        self._dated: list[tuple[bytes, bytes]] | None = None
        self._common = b""  # What the heads of all answers have in common.

    # What the parser finds

    def on_message_begin(self) -> None:
        self.url = b""
        self.headers = []

    def on_header(self, name: bytes, value: bytes) -> None:
        self.headers.append((name.lower(), value))

    def on_headers_complete(self) -> None:
        parser, named = self.parser, dict(self.headers)
        if TARGET in named and self._queues is not None and parser.get_method() == b"POST" and not self._is_crowded:
            if self.url != b"/":
                httptools.parse_url(self.url)  # Raises where it is none.
            keep_alive = parser.should_keep_alive() and (b"connection" not in named or parser.get_http_version() != "1.0")
            client = self.client
            request = Request(named[TARGET], named, self.url, client[0] if client else "")
            self._take(Exchange(self, self._queues, request, keep_alive=keep_alive))
        else:
            self._go_uvicorns_way()

    def on_body(self, body: bytes) -> None:
        cycle: Any = self.cycle
        if type(cycle) is Exchange:
            cycle.add(body)
        else:
            super().on_body(body)

    def on_message_complete(self) -> None:
        cycle: Any = self.cycle
        if type(cycle) is Exchange:
            cycle.end_body()
        else:
            super().on_message_complete()

    @property
    def _is_crowded(self) -> bool:
        most = self.limit_concurrency
        return most is not None and (len(self.connections) >= most or len(self.tasks) >= most)

    def _take(self, exchange: Exchange) -> None:
        before: Any = self.cycle
        self.cycle = exchange  # type: ignore[assignment]
        if before is None or before.response_complete:
            self._at_work = exchange
            exchange.take_turn()
        else:
            self.flow.pause_reading()
            self.pipeline.appendleft((exchange, self.app))  # type: ignore[arg-type]

    def _go_uvicorns_way(self) -> None:
        url, headers = self.url, self.headers
        super().on_message_begin()
        for name, value in headers:
            super().on_header(name, value)
        self.url = url
        super().on_headers_complete()

    # What becomes of answers and connections

    def head(self, reply: Reply, request_id: bytes, *, is_last: bool) -> bytes:
        if self._dated is not self.server_state.default_headers:  # uvicorn makes them anew with each second.
            self._dated = self.server_state.default_headers
            self._common = b"".join(b"%b: %b\r\n" % each for each in (*self._dated, CONTENT_TYPE))
        more = b"x-amzn-query-error: %b\r\n" % reply.code if reply.code else b""
        if is_last:
            more += b"connection: close\r\n"
        return b"%b%bcontent-length: %d\r\nx-amzn-requestid: %b\r\n%b\r\n" % (
            STATUS_LINE[reply.status], self._common, len(reply.body), request_id, more,
        )  # fmt: skip

    def on_response_complete(self) -> None:
        self.server_state.total_requests += 1
        if self.transport.is_closing():
            return
        self.flow.resume_reading()
        if self.pipeline:
            cycle, app = self.pipeline.pop()
            if isinstance(cycle, Exchange):
                self._at_work = cycle
                cycle.take_turn()
            else:
                task = self.loop.create_task(cycle.run_asgi(app))
                task.add_done_callback(self.tasks.discard)
                self.tasks.add(task)
        else:
            self._idle_since_s = self.loop.time()
            if self._idle_timer is None:
                self._idle_timer = self.loop.call_later(self.timeout_keep_alive, self._look_whether_idle)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._idle_timer is not None:
            self._idle_timer.cancel()
        for cycle in (self._at_work, *(cycle for cycle, _ in self.pipeline)):
            if isinstance(cycle, Exchange):
                cycle.let_go()
        self.pipeline.clear()
        if isinstance(self.cycle, Exchange):
            self.cycle = None  # type: ignore[assignment]
        super().connection_lost(exc)

    def _unset_keepalive_if_required(self) -> None:
        self._idle_since_s = BUSY

    def _look_whether_idle(self) -> None:
        self._idle_timer = None
        if self._idle_since_s != BUSY:
            left_s = self._idle_since_s + self.timeout_keep_alive - self.loop.time()
            if left_s <= 0:
                self.timeout_keep_alive_handler()
            else:
                self._idle_timer = self.loop.call_later(left_s, self._look_whether_idle)
