"""The HTTP server inside the node's own event loop.

uvicorn with httptools, given a socket that is already bound, and none of its habits: no signal handlers, no logging set-up, no
process exit. What it leaves open is closed here: a request head is bounded in size and in time, the number of connections is, too, and
peers are looked after who do not get on (patience.py).
"""

import asyncio
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from socket import socket
from typing import Any

import uvicorn

from penstock.http.bounds import App
from penstock.http.patience import Watch
from penstock.http.queue_http import QueueHttp
from penstock.http.sqs.door import QueueDoor

log = logging.getLogger(__name__)

HEAD_BYTES_MAX = 64 << 10  # As most servers: request line and headers together.
HEAD_SECONDS = 10.0  # From connecting, or from the first byte of a request, until its head is complete.
CONNECTIONS_MAX = 1_000
TICKS_OF_A_LOOK = 10  # uvicorn has ten in a second.
GRACE_SECONDS = 3  # For answers under way when the node stops.
IDLE_SECONDS = 60  # Between two requests of one connection; longer than a metrics collector's usual 15 to 30.


class HttpDoor:
    """`queues` answers what is for it; the app gets everything else."""

    def __init__(self, app: App, queues: QueueDoor | None = None) -> None:
        watch = Watch(queues, connections_max=CONNECTIONS_MAX)
        self._server = _LoopServer(_settings(app, queues, watch), watch)
        self._serving: asyncio.Task[None] | None = None

    def open(self, listening: socket) -> None:
        """Serves on a bound socket until `close`."""
        self._serving = asyncio.get_running_loop().create_task(self._server.serve(sockets=[listening]), name="http")

    async def close(self) -> None:
        if self._serving is not None:
            self._server.should_exit = True
            await self._serving


def _settings(app: App, queues: QueueDoor | None, watch: Watch) -> uvicorn.Config:
    return uvicorn.Config(
        app,
        http=partial(_BoundedHttp, watch, queues),  # type: ignore[arg-type]
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        timeout_keep_alive=IDLE_SECONDS,
        timeout_graceful_shutdown=GRACE_SECONDS,
    )


class _LoopServer(uvicorn.Server):
    def __init__(self, settings: uvicorn.Config, watch: Watch) -> None:
        super().__init__(settings)
        self._watch = watch

    async def on_tick(self, counter: int) -> bool:
        if counter % TICKS_OF_A_LOOK == 0:
            try:
                self._watch.look(self.server_state.connections, asyncio.get_running_loop().time())  # type: ignore[arg-type]
            except Exception:
                log.exception("a look at the HTTP connections failed; the next one tries again")
        return await super().on_tick(counter)

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield  # Signals belong to the process, which stops the broker first.


class _BoundedHttp(QueueHttp):
    """A peer that trickles a head, or never ends one, holds a connection and memory for ever; here it is cut off.

    A head that comes in one piece, as nearly all do, costs no timer.
    """

    def __init__(self, watch: Watch, queues: QueueDoor | None, *arguments: Any, **named: Any) -> None:
        super().__init__(queues, *arguments, **named)
        self._watch = watch

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        if len(self.connections) > self._watch.connections_max:
            self.is_extra = not self._watch.has_place(self, self.connections)  # type: ignore[arg-type]
        self._is_in_head = False
        self._head_bytes = 0
        self._head_timer: asyncio.TimerHandle | None = self.loop.call_later(HEAD_SECONDS, transport.close)

    def data_received(self, data: bytes) -> None:
        if self.take_whole(data):
            self._stop_timer()
            return
        super().data_received(data)
        if self._is_in_head:
            self._wait_for_rest_of_head(len(data))

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._is_in_head, self._head_bytes = True, 0

    def on_headers_complete(self) -> None:
        self._is_in_head = False
        self._stop_timer()
        super().on_headers_complete()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_timer()
        super().connection_lost(exc)

    def _wait_for_rest_of_head(self, arrived_bytes: int) -> None:
        self._head_bytes += arrived_bytes
        if self._head_bytes > HEAD_BYTES_MAX:
            self.send_400_response(f"The request head has more than {HEAD_BYTES_MAX} bytes.")
        elif self._head_timer is None:
            self._head_timer = self.loop.call_later(HEAD_SECONDS, self.transport.close)

    def _stop_timer(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None
