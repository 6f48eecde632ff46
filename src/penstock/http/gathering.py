"""A request to the queue door whose body is still to come, in any number of pieces: each takes room, and the first that finds none ends it.

Most requests come whole, and are never seen here (queue_http.py).
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from penstock.http.exchange import Exchange
from penstock.http.sqs.door import QueueDoor
from penstock.http.sqs.errors import SqsError

if TYPE_CHECKING:
    from penstock.http.queue_http import QueueHttp

CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
SMALL_DIGITS = 6  # Of a length that needs no look before the body comes.


class Gathering(Exchange):
    def __init__(self, http: "QueueHttp", door: QueueDoor, headers: Mapping[bytes, bytes], url: bytes, *, keep_alive: bool) -> None:
        super().__init__(http, door, headers, url)
        self.body = b""
        self.keep_alive = keep_alive
        self._pieces: list[bytes] = []
        self._has_turn = False
        self._is_awaited = True  # More of the body may come, and is wanted.
        announced = headers.get(b"content-length", b"")
        if len(announced) > SMALL_DIGITS and announced.isdigit():
            self._heed(door.room.refusal(0, whole=int(announced)))

    def take_turn(self) -> None:
        self._has_turn = True
        if not self._is_awaited:
            super().take_turn()
        elif self.headers.get(b"expect", b"").lower() == b"100-continue":
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
            self.body = self._pieces[0] if len(self._pieces) == 1 else b"".join(self._pieces)
            self._pieces = []
            if self._has_turn:
                super().take_turn()

    def let_go(self) -> None:
        if not self._is_begun:
            self._is_awaited = False
        super().let_go()

    def _heed(self, refusal: SqsError | None) -> None:
        if refusal is not None:
            self.refusal = refusal
            self.end_body()
