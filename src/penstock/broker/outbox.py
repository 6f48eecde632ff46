"""What a connection has yet to write, in order: bytes, and streams that are read piece by piece as the client takes them.

A stream's length was announced when its reply began. If it cannot be read to its end (the disk fails, the bytes have rotted) the
connection is closed: the client asks again, and the answer then begins with what is wrong.
"""

import asyncio
from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING

from penstock.errors import DiskFailed
from penstock.log.streaming import PIECE_BYTES, Stream
from penstock.vocabulary import Buffer

if TYPE_CHECKING:
    from penstock.broker.connection import Connection
    from penstock.broker.node import Node

Piece = Buffer | Stream


class Outbox:
    __slots__ = ("_connection", "_counted", "_is_reading", "_node", "_pieces", "_transport", "is_paused")

    def __init__(self, node: "Node", connection: "Connection", transport: asyncio.Transport) -> None:
        self._node = node
        self._connection = connection
        self._transport = transport
        self._pieces: deque[Piece] = deque()
        self._is_reading = False  # From the disk, away from the loop.
        self._counted = 0  # Bytes of the node's room for replies that the piece takes which a slow client leaves waiting.
        self.is_paused = False  # The client is slow.

    def __len__(self) -> int:
        return len(self._pieces)

    def put(self, pieces: Sequence[Piece]) -> None:
        self._pieces += pieces
        self.pump()

    def pause(self) -> None:
        """The client is slow. Of a stream one piece is in memory, which counts while it waits."""
        self.is_paused = True
        if self._pieces:
            self._counted = self._transport.get_write_buffer_size()
            self._node.reply_room.take(self._counted)

    def resume(self) -> None:
        self.is_paused = False
        self._give_back()

    def pump(self) -> None:
        """Writes as much as the client takes."""
        pieces = self._pieces
        while pieces and not self.is_paused and not self._is_reading and not self._connection.is_closed:
            piece = pieces[0]
            if not isinstance(piece, Stream):
                self._transport.write(piece)
                pieces.popleft()
                continue
            try:
                content = piece.next_piece(self._piece_bytes())
            except DiskFailed as failure:
                self._give_up(failure)
                return
            if content is None:
                self._is_reading = True
                self._node.metrics.reads_cold += 1
                self._node.spawn(self._read_from_disk(piece))
                return
            self._written(piece, content)

    def forget(self) -> None:
        """The connection is gone."""
        if self._pieces and isinstance(self._pieces[0], Stream) and not self._is_reading:
            self._pieces[0].close()
        self._pieces.clear()
        self._give_back()

    def _piece_bytes(self) -> int:
        return min(PIECE_BYTES, self._node.reply_room.fair_share())

    def _give_back(self) -> None:
        self._node.reply_room.give_back(self._counted)
        self._counted = 0

    async def _read_from_disk(self, stream: Stream) -> None:
        try:
            content = await stream.next_piece_later(self._piece_bytes())
        except DiskFailed as failure:
            self._is_reading = False
            self._give_up(failure)
            return
        except Exception:
            self._connection.close()  # The rest of the reply will never come; the node's top reports what went wrong.
            raise
        self._is_reading = False
        if self._connection.is_closed:
            stream.close()
            return
        self._written(stream, content)
        self._connection.go_on_writing()

    def _written(self, stream: Stream, content: Buffer) -> None:
        self._transport.write(content)
        if stream.is_done:
            stream.close()
            self._pieces.popleft()

    def _give_up(self, failure: DiskFailed) -> None:
        self._node.report(f"a reply broke off: {failure}")
        self.forget()
        self._connection.close()
