"""A request to the queue door whose body is still to come, in any number of pieces: they take room, and the first that finds none ends it.

Pieces are put together as they come: a body of many small chunks must not take more than one of few. Who may not come in by what its head
says is told so before its body comes.
Most requests come whole, and are never seen here (queue_http.py).
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from penstock.http.exchange import Exchange
from penstock.http.sqs.door import QueueDoor
from penstock.http.sqs.errors import BODY_TOO_LARGE, SqsError
from penstock.http.sqs.room import BODY_BYTES_MAX, SMALL_BYTES

if TYPE_CHECKING:
    from penstock.http.queue_http import QueueHttp

CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
PIECES_MAX = 1 << 16  # Each costs about a microsecond, however small it is: 8 MiB of single bytes would hold up everybody for seconds.
SMALL_DIGITS = 6  # Of a length that needs no look before the body comes.


class Gathering(Exchange):
    def __init__(self, http: "QueueHttp", door: QueueDoor, headers: Mapping[bytes, bytes], url: bytes, *, keep_alive: bool) -> None:
        super().__init__(http, door, headers, url)
        self.body = b""
        self.keep_alive = keep_alive
        self._gathered = bytearray()
        self._pieces = 0
        self._unwanted_bytes = 0  # Of a body that was refused.
        self._has_turn = False
        self.is_awaited = True  # More of the body may come, and is wanted.
        announced = headers.get(b"content-length", b"")
        if len(announced) > SMALL_DIGITS and announced.isdigit():
            self._heed(door.room.refusal(0, whole=int(announced)))
        self._heed(door.refusal_of_head(headers))

    def take_turn(self) -> None:
        self._has_turn = True
        if not self.is_awaited:
            super().take_turn()
        elif self.headers.get(b"expect", b"").lower() == b"100-continue":
            self._http.transport.write(CONTINUE)

    def add(self, piece: bytes) -> None:
        if not self.is_awaited:
            self._unwanted_bytes += len(piece)
            if self._unwanted_bytes > BODY_BYTES_MAX:
                self._http.transport.abort()  # It has its answer, and goes on all the same.
            return
        self._pieces += 1
        if self._pieces > PIECES_MAX:
            return self._heed(SqsError(BODY_TOO_LARGE, f"a request may come in at most {PIECES_MAX} pieces"))
        whole = len(self._gathered) + len(piece)
        if whole > SMALL_BYTES or not self._has_turn:
            refusal = self._door.room.refusal(whole - self._size, whole=whole, sender=self)
            if refusal is not None:
                return self._heed(refusal)
            if not self._size:
                self._door.room.begin(self)
            self._size = whole
        self._gathered += piece

    def end_body(self) -> None:
        if self.is_awaited:
            self.body = bytes(self._gathered)
            self._end()

    def cut_off(self, refusal: SqsError) -> None:
        """What is left of its body is not waited for."""
        self.keep_alive = False
        self._heed(refusal)

    def let_go(self) -> None:
        if not self._is_begun:
            self._stop_waiting()
        super().let_go()

    def _heed(self, refusal: SqsError | None) -> None:
        if refusal is not None and self.is_awaited:
            self.refusal = refusal
            self._give_back()
            self._end()

    def _end(self) -> None:
        self._stop_waiting()
        if self._has_turn:
            super().take_turn()

    def _stop_waiting(self) -> None:
        self.is_awaited = False
        self._gathered = bytearray()
        self._door.room.end(self)
