"""HTTP as uvicorn speaks it, with a straight way for requests to the queue door.

uvicorn makes a scope, a cycle, an event and two functions of every request, which costs more than the door itself. A POST that names its
action in `X-Amz-Target` goes past all that: the door is asked, and the answer is one write (exchange.py). One that comes whole while nobody
is before it, as nearly all do, also goes past the parser, which calls back for each piece (wire/posts.py). Of others head and body are
collected as the parser finds them (gathering.py). Everything else goes uvicorn's way, in the same connections: requests that came before
their turn wait in one line, whichever way they go, and are answered in order. What uvicorn does for a connection holds for all of them:
the end of idle ones, and the grace at the end of the node. So do the bounds on their number (503), and on how long a peer is waited for
(patience.py).

The calls of a connection run in one task, one after the other: to make a task for each would cost as much as to read the request.
The idle timer is set once and looks at the clock when it fires, for the same reason.
"""

import asyncio
from typing import Any

import httptools
from uvicorn.protocols.http.httptools_impl import STATUS_LINE

from penstock.http.exchange import TARGET, Exchange
from penstock.http.gathering import Gathering
from penstock.http.offers import OffersIgnored
from penstock.http.patience import Patience
from penstock.http.sqs.answers import LARGE_BYTES
from penstock.http.sqs.door import QueueDoor
from penstock.http.sqs.errors import OK, REQUEST_TIMEOUT, SqsError
from penstock.http.sqs.requests import Reply
from penstock.wire.posts import read_post

CONTENT_TYPE = (b"content-type", b"application/x-amz-json-1.0")
HEALTH_PATHS = (b"/health", b"/ready")
BEHIND_POLL_MAX = 16  # Requests that may stand in line behind a long poll before their client is not read from.
BUSY = 0.0


class QueueHttp(OffersIgnored):
    """Base of the server's protocol. `queues` is None where there are none."""

    def __init__(self, queues: QueueDoor | None, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self._queues = queues
        self.received_bytes = 0  # As far as they went through the parser.
        self.has_ended = False  # The peer sends no more, but may wait for answers.
        self.is_extra = False  # One too many: it may only ask after the node's health.
        self._heard_at_s = self.loop.time()  # Through the parser.
        self.patience = Patience(self._heard_at_s)
        self._is_in_body = False  # The parser, which has seen a head.
        self._is_between = queues is not None  # The parser has seen the end of a request, and nothing of another.
        self._is_lost = False
        self._at_work: Exchange | None = None  # The last one that had its turn.
        self._begun: Exchange | None = None  # Not yet seen by the task that is to run it.
        self._running: asyncio.Task[None] | None = None
        self._called: asyncio.Future[None] | None = None  # What that task waits for while there is nothing to run.
        self._idle_since_s = BUSY
        self._idle_timer: asyncio.TimerHandle | None = None
        self._dated: list[tuple[bytes, bytes]] | None = None
        self._common = b""  # What the heads of all answers have in common,
        self._good = b""  # and how those of nearly all begin.

    def take_whole(self, data: bytes) -> bool:
        """Begins what is a whole request to the queue door, and all that is to be done now. False: the parser must see it."""
        before: Any = self.cycle
        if not self._is_between or (before is not None and not before.response_complete):
            return False
        post = read_post(data)
        if post is None or self.is_extra:
            return False
        path, headers, body = post
        door = self._queues
        if TARGET not in headers or door is None:
            return False
        exchange = Exchange(self, door, headers, path)
        exchange.take(body)
        self._idle_since_s = BUSY
        self.cycle = exchange  # type: ignore[assignment]
        self._at_work = exchange
        exchange.take_turn()
        return True

    # What the parser finds

    def on_message_begin(self) -> None:
        self.url = b""
        self.headers = []
        self._is_between = False

    def on_header(self, name: bytes, value: bytes) -> None:
        self.headers.append((name.lower(), value))

    def on_headers_complete(self) -> None:
        parser, named = self.parser, dict(self.headers)
        if self.is_offer:
            return
        self._is_in_body = True
        if TARGET in named and self._queues is not None and parser.get_method() == b"POST" and not self.is_extra:
            if self.url != b"/":
                httptools.parse_url(self.url)  # Raises where it is none.
            keep_alive = parser.should_keep_alive() and (b"connection" not in named or parser.get_http_version() != "1.0")
            self._take(Gathering(self, self._queues, named, self.url, keep_alive=keep_alive))
        else:
            self._go_uvicorns_way()

    def on_body(self, body: bytes) -> None:
        cycle: Any = self.cycle
        if type(cycle) is Gathering:
            cycle.add(body)
        else:
            super().on_body(body)

    def on_message_complete(self) -> None:
        cycle: Any = self.cycle
        if self.is_offer:
            return
        self._is_in_body = False
        if type(cycle) is Gathering:
            self._is_between = True
            cycle.end_body()
        else:
            super().on_message_complete()
        if cycle is not None and cycle.response_complete and not self.pipeline:
            self._become_idle()  # It was answered before its body had come.

    def _take(self, exchange: Gathering) -> None:
        before: Any = self.cycle
        self.cycle = exchange  # type: ignore[assignment]
        if before is None or before.response_complete:
            self._at_work = exchange
            exchange.take_turn()
        else:
            self.pipeline.appendleft((exchange, self.app))  # type: ignore[arg-type]
            self._read_on_if_polling()

    def _read_on_if_polling(self) -> None:
        """Who has a request in line is not read from, except behind a long poll: nobody would see its client go."""
        before = self._at_work
        if before is not None and before.is_polling and len(self.pipeline) <= BEHIND_POLL_MAX:
            self.flow.resume_reading()
        else:
            self.flow.pause_reading()

    def _go_uvicorns_way(self) -> None:
        url, headers = self.url, self.headers
        self.limit_concurrency = 0 if self.is_extra and url not in HEALTH_PATHS else None  # 0: uvicorn says that it is too much.
        super().on_message_begin()
        for name, value in headers:
            super().on_header(name, value)
        self.url = url
        super().on_headers_complete()
        if self.pipeline:
            self._read_on_if_polling()

    # Calls

    def begin(self, exchange: Exchange) -> None:
        """Its body is there, and it is its turn."""
        self._begun = exchange
        called = self._called
        if called is not None:
            self._called = None
            called.set_result(None)
        elif self._running is None:
            self._running = self.loop.create_task(self._run())

    def stop_polling(self) -> None:
        """For a client that is gone, or sends no more."""
        if self._running is not None:
            self._running.cancel()

    async def _run(self) -> None:
        """What was begun is run also where the connection is lost meanwhile."""
        tasks, me = self.tasks, self._running
        assert me is not None
        while (exchange := self._begun) is not None or not self._is_lost:
            if exchange is None:
                self._called = self.loop.create_future()
                await self._called
                continue
            self._begun = None
            tasks.add(me)
            try:
                await exchange.run()
            except Exception:  # Nobody would run those behind it: whoever sent them must hear something.
                self.transport.abort()
                raise
            finally:
                tasks.discard(me)

    # How long the peer is waited for (patience.py)

    def data_received(self, data: bytes) -> None:
        self._heard_at_s = self.loop.time()
        self.received_bytes += len(data)
        super().data_received(data)

    def resume_writing(self) -> None:
        self.patience.begin_anew()
        super().resume_writing()

    @property
    def has_unsent(self) -> bool:
        return self.transport.get_write_buffer_size() > 0

    @property
    def is_peers_turn(self) -> bool:
        """To send more of a request. Between two requests it has a time of its own."""
        cycle: Any = self.cycle
        if self.pipeline or self.flow.read_paused:
            return False
        return self._is_in_body or (self._idle_since_s == BUSY and (cycle is None or cycle.response_complete))

    @property
    def waits_since_s(self) -> float | None:
        """None: it does not wait for its peer."""
        if self._idle_since_s != BUSY:
            return self._idle_since_s
        if self.has_unsent:
            return self.patience.since_s
        return self._heard_at_s if self.is_peers_turn else None

    def cut_off(self) -> None:
        cycle: Any = self.cycle
        if type(cycle) is Gathering and cycle.is_awaited and not self.has_unsent:
            cycle.cut_off(SqsError(REQUEST_TIMEOUT, "the body of the request does not come, or comes too slowly"))
        else:
            self.transport.abort()

    # What becomes of answers and connections

    def write(self, reply: Reply, request_id: bytes, *, is_last: bool) -> None:
        status, body, code = reply
        if self._dated is not self.server_state.default_headers:  # uvicorn makes them anew with each second.
            self._dated = self.server_state.default_headers
            self._common = b"".join(b"%b: %b\r\n" % each for each in (*self._dated, CONTENT_TYPE))
            self._good = STATUS_LINE[OK] + self._common
        if status == OK and not is_last and len(body) <= LARGE_BYTES:
            self.transport.write(b"%bcontent-length: %d\r\nx-amzn-requestid: %b\r\n\r\n%b" % (self._good, len(body), request_id, body))
            return
        more = b"x-amzn-query-error: %b\r\n" % code if code else b""
        if is_last:
            more += b"connection: close\r\n"
        head = b"%b%bcontent-length: %d\r\nx-amzn-requestid: %b\r\n%b\r\n" % (
            STATUS_LINE[status], self._common, len(body), request_id, more,
        )  # fmt: skip
        self.transport.writelines((head, body))

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
            self._become_idle()

    def _become_idle(self) -> None:
        self._idle_since_s = self.loop.time()
        if self._idle_timer is None:
            self._idle_timer = self.loop.call_later(self.timeout_keep_alive, self._look_whether_idle)

    def eof_received(self) -> bool | None:  # type: ignore[override]
        """The client sends no more. What it has sent is answered first; but a long poll ends, since the client may as well be gone, and
        what stands behind it is not begun."""
        last: Any = self.cycle
        if last is None or last.response_complete or (self._is_in_body and not self.pipeline):
            return None
        self.has_ended = True
        if self._at_work is not None and self._at_work.is_polling:
            self.stop_polling()
        last.keep_alive = False
        return True

    def connection_lost(self, exc: Exception | None) -> None:
        self._is_lost = True
        if self._called is not None and not self._called.done():
            self._called.set_result(None)
        if self._idle_timer is not None:
            self._idle_timer.cancel()
        for cycle in (self._at_work, *(cycle for cycle, _ in self.pipeline)):
            if isinstance(cycle, Exchange):
                cycle.let_go()
        self.pipeline.clear()
        if isinstance(self.cycle, Exchange):
            self.cycle = None
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
