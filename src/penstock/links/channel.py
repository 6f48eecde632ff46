"""One connection between two nodes, whichever of them opened it: reading, writing, and noticing that the other side is gone.

Until the handshake has succeeded at most `UNPROVEN_BYTES_MAX` bytes are read and nothing but the handshake is understood.

A machine that loses power says nothing, and its peers' connections stay half-open for minutes. So the caller pings when it has heard
nothing for a tick, the called answers, and either side gives up after some ticks of silence. They are counted in ticks and not in seconds:
a process that was itself stopped for a while first hears what waits for it, and then judges. Bytes that the other side takes count as a
sign of life, because an answer may stand behind megabytes on a slow road.
"""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import NamedTuple, cast

from penstock.errors import MalformedInput
from penstock.links.frames import HEAD, LENGTH, SHARED_BYTES, Assembler, Form, bytes_of, front
from penstock.links.handshake import HandshakeFailed
from penstock.vocabulary import Address, Buffer

UNPROVEN_BYTES_MAX = 1024
UNSENT_BYTES_HIGH = 256 * 1024  # Past this, what is to be sent waits in a queue that knows what may be dropped.
JOINED_BYTES_MAX = 16 * 1024  # Copying this much costs less than handing the pieces over one by one.
PING = front(Form.PING, 0, 0, 0)
PONG = front(Form.PONG, 0, 0, 0)


class Deadlines(NamedTuple):
    """What a link and a listener wait for, in seconds. Tests on real sockets set all of them long: a stall of the machine expires none."""

    connect_s: float = 2.5  # To connect and shake hands: time for the kernel to knock twice, and for three round trips on a long road.
    unproven_s: float = 5.0  # For a caller to prove who it is.
    tick_s: float = 1.0


DEADLINES = Deadlines()


class Channel(asyncio.BufferedProtocol, ABC):
    """The caller's and the called's sides say what is different."""

    silent_ticks_max: int  # After so many ticks without a sign of life the other side is taken for dead.

    def __init__(self, *, frame_bytes_max: int, deadlines: Deadlines) -> None:
        self.is_proven = False
        self.is_congested = False  # The other side takes bytes more slowly than they are written.
        self.ended: str | None = None  # Why; once set, nothing more is read or written.
        self._transport: asyncio.Transport | None = None
        self._deadlines = deadlines
        self._frame_bytes_max = frame_bytes_max
        self._assembler = Assembler(UNPROVEN_BYTES_MAX, UNPROVEN_BYTES_MAX)
        self._unproven_bytes = 0
        self._is_blocked = False  # Frames are left untaken, and nothing is read.
        self._silent_ticks = 0
        self._unsent_bytes = 0  # As of the last tick.
        self._timer: asyncio.TimerHandle | None = None

    # What the two sides do differently.

    @abstractmethod
    def _opened(self) -> None:
        """The connection is there."""

    @abstractmethod
    def _shake_hands(self, message: memoryview) -> None:
        """A message of the handshake came. Raises `HandshakeFailed`; calls `_prove` when it was the last."""

    @abstractmethod
    def _take(self, form: int, kind: int, correlation: int, body: memoryview) -> None:
        """A frame came."""

    @abstractmethod
    def _tick(self) -> None:
        """Time to look whether the other side is still there: `_silent_ticks` says for how long nothing was heard."""

    @abstractmethod
    def _close(self, why: str, refused: HandshakeFailed | None) -> None:
        """It is over."""

    # What both may do.

    def write(self, form: Form, kind: int, correlation: int, pieces: Sequence[Buffer]) -> None:
        if self._transport is None or self.ended is not None:
            return
        size = bytes_of(pieces)
        head = front(form, kind, correlation, size)
        if size <= JOINED_BYTES_MAX:
            self._transport.write(b"".join((head, *pieces)))
        else:
            self._transport.writelines((head, *pieces))

    def end(self, why: str, refused: HandshakeFailed | None = None) -> None:
        """Ends the connection at once. What is unsent is not sent, but for a refusal."""
        if self.ended is not None:
            return
        self.ended = why
        if self._timer is not None:
            self._timer.cancel()
        if self._transport is not None:
            if refused is not None and refused.refusal is not None:
                self._write_bare(refused.refusal)
                self._transport.close()
            else:
                self._transport.abort()
        self._close(why, refused)

    def part(self) -> None:
        """Ends the connection in order: what was written before still leaves."""
        if self.ended is None:
            self.ended = "it was closed here"
            if self._timer is not None:
                self._timer.cancel()
            if self._transport is not None:
                self._transport.close()
            self._close(self.ended, None)

    @property
    def peer(self) -> Address:
        """Where the other side is."""
        name = None if self._transport is None else self._transport.get_extra_info("peername")
        return Address(*name[:2]) if name else Address("?", 0)

    def _prove(self) -> None:
        self.is_proven = True
        self._assembler.widen(SHARED_BYTES, self._frame_bytes_max)
        self._timer = asyncio.get_running_loop().call_later(self._deadlines.tick_s, self._ticked)

    def _write_bare(self, message: bytes) -> None:
        """A message of the handshake."""
        assert self._transport is not None
        self._transport.write(LENGTH.pack(len(message)) + message)

    def _block(self) -> None:
        if not self._is_blocked and self.ended is None and self._transport is not None:
            self._is_blocked = True
            self._transport.pause_reading()

    def _go_on(self) -> None:
        """Whatever held up reading is over. In a turn of its own: the caller may be in the midst of a frame."""
        if self._is_blocked and self.ended is None:
            asyncio.get_running_loop().call_soon(self._unblock)

    def _unblock(self) -> None:
        if not self._is_blocked or self.is_congested or self.ended is not None or self._transport is None:
            return
        self._is_blocked = False
        self._silent_ticks = 0  # Until now it was we who did not listen.
        self._take_frames()
        if not self._is_blocked and self.ended is None:  # The frames may have changed both.
            self._transport.resume_reading()

    # What the event loop calls.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        if self.ended is not None:  # Given up while it was being made.
            self._transport.abort()
            return
        self._transport.set_write_buffer_limits(high=UNSENT_BYTES_HIGH)
        self._opened()

    def connection_lost(self, exc: BaseException | None) -> None:
        self.end("the other side closed it" if exc is None else str(exc) or type(exc).__name__)

    def eof_received(self) -> bool:
        return False

    def get_buffer(self, sizehint: int) -> memoryview:
        room = self._assembler.room()
        return room if self.is_proven else room[: max(1, UNPROVEN_BYTES_MAX - self._unproven_bytes)]

    def buffer_updated(self, nbytes: int) -> None:
        if self.ended is not None:
            return
        self._silent_ticks = 0
        self._assembler.received(nbytes)
        if not self.is_proven:
            self._unproven_bytes += nbytes
        self._take_frames()
        if not self.is_proven and self._unproven_bytes >= UNPROVEN_BYTES_MAX and self.ended is None:
            self.end(f"it sent {UNPROVEN_BYTES_MAX} bytes without proving who it is")

    def pause_writing(self) -> None:
        self.is_congested = True

    def resume_writing(self) -> None:
        self.is_congested = False

    def _take_frames(self) -> None:
        try:
            while self.ended is None and not self._is_blocked and (frame := self._assembler.next_frame()) is not None:
                if not self.is_proven:
                    self._shake_hands(frame)
                elif len(frame) < HEAD.size:
                    raise MalformedInput("a frame is shorter than its head")
                else:
                    form, kind, correlation = HEAD.unpack_from(frame)
                    self._take(form, kind, correlation, frame[HEAD.size :])
        except HandshakeFailed as refused:
            self.end(str(refused), refused)
        except MalformedInput as malformed:
            self.end(f"it sent what cannot be: {malformed}")

    def _ticked(self) -> None:
        if self.ended is not None or self._transport is None:
            return
        unsent_bytes = self._transport.get_write_buffer_size()
        is_taken = unsent_bytes < self._unsent_bytes or (self._is_blocked and not unsent_bytes)  # Or it is we who do not listen.
        self._unsent_bytes = unsent_bytes
        if is_taken:
            self._silent_ticks = 0
        else:
            self._silent_ticks += 1
        if self._silent_ticks > self.silent_ticks_max:
            self.end(f"it has said nothing for {self._silent_ticks * self._deadlines.tick_s:g} s")
            return
        self._timer = asyncio.get_running_loop().call_later(self._deadlines.tick_s, self._ticked)
        self._tick()
