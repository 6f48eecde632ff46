"""One end of a simulated connection: an asyncio transport over two streams.

It behaves as uvloop's does where loops differ: what is written in one turn leaves together at the end of the turn, and until then the
transport holds the caller's own buffers. Code that changes a buffer after writing it sends the change, here as there.

Rules, as TCP's:
- `close` sends what is buffered, then a FIN; a close with unread bytes, or bytes that come to a closed end, answer with a reset.
- Bytes in flight and unread are bounded by the link's window, the rest waits in the write buffer and pauses the protocol.
- An end whose process was killed closes as a kernel does. An end whose machine lost power says nothing at all: its peer is half-open.
"""

import asyncio
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from penstock.simulator.links import FIN, RESET, Fin, Reset, Segment, Stream
from penstock.simulator.process import Process
from penstock.vocabulary import Buffer

if TYPE_CHECKING:
    from penstock.simulator.network import Network

READ_BYTES_MAX = 256 * 1024  # As asyncio's selector transport reads.
WRITE_HIGH_BYTES = 64 * 1024


class SimTransport(asyncio.Transport):
    outgoing: Stream
    incoming: Stream

    def __init__(self, network: "Network", process: Process, number: int, names: dict[str, Any]) -> None:
        super().__init__(names)
        self.process = process
        self.number = number  # Of the connection, across the run.
        self._loop = network.loop
        self._network = network
        self._protocol: asyncio.BaseProtocol | None = None
        self._plain: asyncio.Protocol | None = None  # The same protocol, by the way it wants its bytes.
        self._buffered: asyncio.BufferedProtocol | None = None
        self._inbox = bytearray()  # The kernel's: arrived, not yet read.
        self._has_eof = False
        self._is_reading = True
        self._is_read_due = False
        self._read_handle = self._loop.handle_for(process, self._read)
        self._outbox: list[Buffer] = []
        self._outbox_bytes = 0
        self._is_flush_due = False
        self._flush_handle = self._loop.handle_for(process, self.flush)
        self._high, self._low = WRITE_HIGH_BYTES, WRITE_HIGH_BYTES // 4
        self._is_writing_paused = False
        self._is_closing = False
        self._is_eof_wanted = False  # A FIN is to follow what is buffered.
        self._is_eof_sent = False
        self._is_void = False  # `connection_lost` was called, or is about to be; nothing is sent or read any more.

    # asyncio's side, called by the protocol.

    def get_protocol(self) -> asyncio.BaseProtocol:
        assert self._protocol is not None
        return self._protocol

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        self._protocol = protocol
        self._plain = protocol if isinstance(protocol, asyncio.Protocol) else None
        self._buffered = protocol if isinstance(protocol, asyncio.BufferedProtocol) else None

    def is_closing(self) -> bool:
        return self._is_closing

    def is_reading(self) -> bool:
        return self._is_reading and not self._is_closing

    def pause_reading(self) -> None:
        self._is_reading = False

    def resume_reading(self) -> None:
        self._is_reading = True
        self._read_soon()

    def write(self, data: Buffer) -> None:
        if self._is_eof_wanted and not self._is_closing:
            raise RuntimeError("write after write_eof")
        if self._is_closing or self.process.is_dead or not data:
            return
        self._outbox.append(data)
        self._outbox_bytes += len(data)
        if not self._is_flush_due:
            self._flush_at_end_of_turn()
        if self._outbox_bytes > self._high and not self._is_writing_paused:
            self._send_what_fits()
            self._pause_writing_if_full()

    def writelines(self, list_of_data: Iterable[Buffer]) -> None:
        for data in list_of_data:
            self.write(data)

    def can_write_eof(self) -> bool:
        return True

    def write_eof(self) -> None:
        if not self._is_eof_wanted and not self._is_closing:
            self._is_eof_wanted = True
            self._flush_at_end_of_turn()

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        high = (WRITE_HIGH_BYTES if low is None else 4 * low) if high is None else high
        low = high // 4 if low is None else low
        if not high >= low >= 0:
            raise ValueError(f"high ({high}) must be at least low ({low}), and low at least 0")
        self._high, self._low = high, low
        self._pause_writing_if_full()

    def get_write_buffer_size(self) -> int:
        return self._outbox_bytes

    def get_write_buffer_limits(self) -> tuple[int, int]:
        return (self._low, self._high)

    def close(self) -> None:
        if self._is_closing:
            return
        self._is_closing = True
        self._flush_at_end_of_turn()

    def abort(self) -> None:
        self._is_closing = True
        if not self._is_void:
            self.outgoing.send_mark(RESET)
            self._void(None)

    # The world's side.

    @property
    def has_backlog(self) -> bool:
        return self._outbox_bytes > 0

    def opened(self, protocol: asyncio.BaseProtocol) -> None:
        """Hands the connection to its protocol; what arrived before is read after."""
        self.set_protocol(protocol)
        protocol.connection_made(self)
        self._read_soon()

    def arrived(self, segment: Segment) -> None:
        if self._is_void or self.process.is_dead:
            if isinstance(segment, bytes):
                self._network.answer_for_the_dead(self)
        elif isinstance(segment, Fin):
            self._has_eof = True
            self._read_soon()
        elif isinstance(segment, Reset):
            self.broke(ConnectionResetError("connection reset by peer"))
        else:
            self._inbox += segment
            self._read_soon()

    def continue_sending(self) -> None:
        if not self._is_flush_due:
            self._is_flush_due = True
            self._loop.enqueue(self.process, self._flush_handle)

    def broke(self, error: Exception | None) -> None:
        """The connection is void for this end, whatever the other one believes."""
        self._is_closing = True
        if not self._is_void:
            self._inbox.clear()
            self._void(error)

    def killed(self) -> None:
        """The process is gone and its kernel closes for it."""
        if not self._is_void:
            self._is_void = True
            self.outgoing.send_mark(RESET if self._inbox or self._outbox_bytes else FIN)
        self._outbox.clear()

    def vanished(self) -> None:
        """The machine is gone."""
        self._is_void = True
        self._outbox.clear()

    def flush(self) -> None:
        self._is_flush_due = False
        if self._is_void or self.process.is_dead:
            return
        self._send_what_fits()
        if self._outbox_bytes:
            self._pause_writing_if_full()
            return
        if self._is_closing:
            self.outgoing.send_mark(RESET if self._inbox else FIN)
            self._void(None)
            return
        if self._is_eof_wanted and not self._is_eof_sent:
            self._is_eof_sent = True
            self.outgoing.send_mark(FIN)
        if self._is_writing_paused:
            self._resume_writing_if_low()

    # In between.

    def _read_soon(self) -> None:
        if self._is_read_due or not self._is_reading or self._is_closing or self._protocol is None:
            return
        if self._inbox or self._has_eof:
            self._is_read_due = True
            self._loop.enqueue(self.process, self._read_handle)

    def _read(self) -> None:
        self._is_read_due = False
        if not self._is_reading or self._is_closing:
            return
        try:
            if self._inbox:
                self._give()
                self._read_soon()
            elif self._has_eof:
                self._has_eof = False
                protocol = self._buffered or self._plain
                if protocol is None or not protocol.eof_received():
                    self.close()
        except Exception as error:
            self._loop.call_exception_handler({"message": "a protocol failed to read", "exception": error})
            self.outgoing.send_mark(RESET)
            self.broke(error)

    def _give(self) -> None:
        inbox, buffered = self._inbox, self._buffered
        if buffered is not None:
            buffer = memoryview(buffered.get_buffer(-1)).cast("B")
            content = bytes(memoryview(inbox)[: len(buffer)])
            if not content:
                raise RuntimeError("get_buffer() returned an empty buffer")
            buffer[: len(content)] = content
            buffer.release()
        else:
            content = bytes(memoryview(inbox)[:READ_BYTES_MAX])
        del inbox[: len(content)]
        self._network.delivered(self, content)
        self.incoming.taken(len(content))
        if buffered is not None:
            buffered.buffer_updated(len(content))
        elif self._plain is not None:
            self._plain.data_received(content)

    def _flush_at_end_of_turn(self) -> None:
        if not self._is_flush_due:
            self._is_flush_due = True
            if self._loop.running is self.process:
                self.process.flushes.append(self)
            else:
                self._loop.enqueue(self.process, self._flush_handle)

    def _send_what_fits(self) -> None:
        room = self.outgoing.room()
        if room <= 0 or not self._outbox:
            return
        content = b"".join(self._outbox)
        if len(content) > room:
            self._outbox = [content[room:]]
            content = content[:room]
        else:
            self._outbox = []
        self._outbox_bytes -= len(content)
        self._network.send(self, content)

    def _pause_writing_if_full(self) -> None:
        if self._outbox_bytes > self._high and not self._is_writing_paused and self._protocol is not None:
            self._is_writing_paused = True
            self._protocol.pause_writing()

    def _resume_writing_if_low(self) -> None:
        if self._outbox_bytes <= self._low and self._protocol is not None:
            self._is_writing_paused = False
            self._protocol.resume_writing()

    def _void(self, error: Exception | None) -> None:
        self._is_void = True
        self._outbox.clear()
        self._outbox_bytes = 0
        self._network.forget(self)
        if self._protocol is not None:
            self._loop.call_soon(self._protocol.connection_lost, error, context=self.process.context)
