"""One client's connection: frames go to the API table as they become whole, replies leave in the order of the requests.

Each request takes a place in the queue of replies; a reply leaves when all before it have left, and those that are ready together leave
in one write. A connection is not read from while its client doesn't take its replies, while it has too many requests under way,
while an earlier request must end first, and while the node has no room for another large request.
"""

import asyncio
from collections import deque
from collections.abc import Sequence
from struct import Struct
from typing import TYPE_CHECKING, Protocol, cast

from penstock.broker.inbox import GROWTH_WHEN_CROWDED, Inbox
from penstock.broker.outbox import Outbox, Piece
from penstock.errors import MalformedInput
from penstock.settings import KIB, MIB
from penstock.vocabulary import Instant
from penstock.wire.api_keys import ApiKey
from penstock.wire.frames import LENGTH

if TYPE_CHECKING:
    from penstock.broker.node import Node

UNSENT_BYTES_HIGH = 128 * KIB  # Past this the transport tells us that the client is slow.
COUNTED_FROM_BYTES = 16 * KIB  # Smaller requests and replies are not worth counting.
ANNOUNCED_BYTES_MAX = 1 * MIB  # Up to here a request gets all the room that it announces, and never waits with a part of it.
RECEIVED_BYTES_WHEN_CROWDED = 4 * KIB
FRAME_BYTES_MIN = 8  # An API key, a version and a correlation id.
OTHER_FRAME_BYTES_MAX = 4 * MIB  # Of requests other than Produce: a fetch of 100,000 partitions is smaller.

_API_KEY = Struct(">h")
_API_KEY_AT = LENGTH.size


class Cancellable(Protocol):
    """Something parked that is to be forgotten when its client goes away."""

    def cancel(self) -> None: ...


class Reply:
    """A request's place in the queue of replies. A request that is answered by silence (acks=0) has none."""

    __slots__ = ("connection", "counted", "is_streamed", "parked", "pieces")

    def __init__(self, connection: "Connection") -> None:
        self.connection = connection
        self.pieces: Sequence[Piece] | None = None
        self.is_streamed = False
        self.parked: Cancellable | None = None
        self.counted = 0  # Bytes of the node's room for replies that it takes.

    def send(self, pieces: Sequence[Piece], size: int = 0, *, is_streamed: bool = False) -> None:
        """Answers. `size` is given for replies large enough to be counted; some of the pieces of a streamed one are streams."""
        self.pieces = pieces
        self.is_streamed = is_streamed
        self.parked = None
        if size >= COUNTED_FROM_BYTES:
            self.counted = size
        self.connection.reply_is_ready(self.counted)


class Connection(asyncio.BufferedProtocol):
    __slots__ = (
        "_asked_for", "_frame_since", "_heard_at", "_idle_since", "_inbox", "_is_blocked", "_is_handling", "_is_parting", "_is_paused",
        "_is_waiting_for_room", "_node", "_outbox", "_ready_bytes", "_replies", "_reserved", "_stalled_since", "_transport",
        "_unsent_bytes", "_written_bytes", "is_closed", "requests_in_turn",
    )  # fmt: skip

    def __init__(self, node: "Node") -> None:
        self._node = node
        self._transport: asyncio.Transport | None = None
        self._inbox = Inbox(node.shared_buffer)
        self._replies: deque[Reply] = deque()
        self._reserved = 0  # Bytes of the node's room for requests that the inbox takes,
        self._asked_for = 0  # and that it waits for.
        self._frame_since = node.env.now()  # When the last request ended, or the one that is unfinished began.
        self._ready_bytes = 0  # Of counted replies whose turn has not come,
        self._written_bytes = 0  # and of those that the client has yet to take.
        self._is_handling = False
        self._is_paused = False  # The client is slow.
        self._is_waiting_for_room = False
        self._is_blocked = False  # Not reading.
        self.requests_in_turn = 0  # Requests that must end before the next one may begin.
        self._is_parting = False  # Nothing more is handled.
        self.is_closed = False
        self._heard_at: Instant = node.env.now()
        self._idle_since = self._heard_at  # As far as anybody has looked.
        self._stalled_since: Instant | None = None
        self._unsent_bytes = 0  # When it was last looked at.

    # Coming and going

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._outbox = Outbox(self._node, self, self._transport)
        self._transport.set_write_buffer_limits(high=UNSENT_BYTES_HIGH)
        if not self._node.connection_opened(self):
            self.close()

    def connection_lost(self, exc: BaseException | None) -> None:
        self.is_closed = True
        replies, self._replies = self._replies, deque()
        for reply in replies:
            if reply.parked is not None:
                reply.parked.cancel()
        self._node.reply_room.give_back(self._ready_bytes + self._written_bytes)
        self._ready_bytes = self._written_bytes = 0
        self._release_reservation()
        self._inbox.forget()
        self._outbox.forget()
        self._node.connection_closed(self)

    @property
    def client_host(self) -> str:
        peer = self._transport.get_extra_info("peername") if self._transport is not None else None
        return str(peer[0]) if peer else ""

    def close(self) -> None:
        """Closes at once: what is unsent was for a client that is no longer served."""
        if not self.is_closed and self._transport is not None:
            self.is_closed = True
            self._transport.abort()

    def stop_reading(self) -> None:
        """For good: the node stops."""
        self.requests_in_turn += 1
        self._block()

    def part(self) -> None:
        """Says good-bye after the last reply. What the client still sends is read and dropped: to close with it unread would make the
        network throw away replies that are on their way."""
        self._is_parting = True
        self._outbox.forget()
        if self.is_closed or self._transport is None or self._transport.is_closing():
            return
        try:
            self._transport.write_eof()
            self._transport.resume_reading()
        except OSError:  # The client was quicker.
            self.close()

    # Looked at now and then

    def silent_seconds(self, now: Instant) -> float:
        return now - self._heard_at

    def idle_seconds(self, now: Instant) -> float:
        """For how long nothing was asked and nothing was under way, as far as those who look can tell."""
        if self._replies or self._is_paused or len(self._outbox):
            self._idle_since = now
        return now - max(self._idle_since, self._heard_at)

    def stalled_seconds(self, now: Instant) -> float:
        """For how long the client has taken nothing of what waits for it, or sent nothing of a request that it has begun."""
        if self._stalled_since is not None and self._transport is not None:
            unsent_bytes = self._transport.get_write_buffer_size()
            if unsent_bytes < self._unsent_bytes:
                self._stalled_since = now  # Slow, but it reads.
            self._unsent_bytes = unsent_bytes
            return now - self._stalled_since
        if self._inbox.holds_bytes and not self._is_blocked:
            return now - self._heard_at
        return 0.0

    def gathering_seconds(self, now: Instant) -> float:
        """For how long an unfinished request has held room that others may wait for; 0 when it is not its client's turn to end it."""
        is_up_to_client = not self._is_blocked or self._is_waiting_for_room
        return now - self._frame_since if self._reserved and self._inbox.holds_bytes and is_up_to_client else 0.0

    @property
    def gathered_bytes(self) -> int:
        return self._inbox.bytes_held

    # Reading

    def get_buffer(self, sizehint: int) -> memoryview:
        if self._is_parting:
            return self._node.shared_buffer
        room = self._inbox.room()
        # While others wait for room, what a new request brings along must stay small: it would have to be kept.
        return room[:RECEIVED_BYTES_WHEN_CROWDED] if self._node.request_room.is_crowded and self._inbox.own_capacity == 0 else room

    def buffer_updated(self, nbytes: int) -> None:
        self._heard_at = self._node.env.now()
        if self._is_parting:
            return
        chunk = self._inbox.received(nbytes)
        if chunk is not None:
            self._take_in(chunk)

    def eof_received(self) -> bool:
        return False

    def go_on(self) -> None:
        """Something that held up reading may be over."""
        if not self._is_blocked or self._is_handling or self.is_closed or self._must_wait():
            return
        self._is_blocked = False
        self._heard_at = self._node.env.now()  # Until now it was we who did not listen.
        chunk = self._inbox.waiting()
        if chunk is not None:
            self._take_in(chunk)
        if not self._is_blocked and not self.is_closed and self._transport is not None:
            self._transport.resume_reading()

    def _take_in(self, chunk: memoryview) -> None:
        self._is_handling = True
        try:
            used = self._handle_frames(chunk)
        except MalformedInput as malformed:
            self._node.client_erred(self, malformed)
            return
        finally:
            self._is_handling = False
        if self.is_closed:
            return
        if used or not self._inbox.holds_bytes:
            self._frame_since = self._heard_at
        self._keep(chunk[used:])
        self.send_ready()
        if self._is_blocked and not self._must_wait():
            asyncio.get_running_loop().call_soon(self.go_on)

    def _handle_frames(self, chunk: memoryview) -> int:
        """Handles the whole frames of the chunk, as far as they may be handled now; returns how many bytes those were."""
        at, end = 0, len(chunk)
        while end - at >= LENGTH.size:
            size: int = LENGTH.unpack_from(chunk, at)[0]
            if not FRAME_BYTES_MIN <= size <= self._node.settings.request_bytes_max:
                raise MalformedInput(f"a frame of {size} bytes; {FRAME_BYTES_MIN} to {self._node.settings.request_bytes_max} are taken")
            if end - at < LENGTH.size + size:
                self._check_length(chunk[at:], size)
                break
            if self._must_wait():
                self.send_ready()
                if self._must_wait():
                    self._block()
                    break
            self._node.apis.handle(self, chunk[at + LENGTH.size : at + LENGTH.size + size])
            at += LENGTH.size + size
            if self.is_closed:
                break
        return at

    def _check_length(self, beginning: memoryview, size: int) -> None:
        """Only producers send much: a long frame of another kind would be taken apart on the loop for seconds."""
        if size <= OTHER_FRAME_BYTES_MAX or len(beginning) < _API_KEY_AT + _API_KEY.size:
            return
        if _API_KEY.unpack_from(beginning, _API_KEY_AT)[0] != ApiKey.PRODUCE:
            raise MalformedInput(f"a frame of {size} bytes that is no produce request; {OTHER_FRAME_BYTES_MAX} are taken")

    def _must_wait(self) -> bool:
        return (
            self._is_paused
            or len(self._outbox) > 0
            or self._is_waiting_for_room
            or self.requests_in_turn > 0
            or self._ready_bytes > UNSENT_BYTES_HIGH
            or len(self._replies) >= self._node.settings.requests_in_flight_max
        )

    def _block(self) -> None:
        if not self._is_blocked and self._transport is not None:
            self._is_blocked = True
            self._transport.pause_reading()

    def _keep(self, rest: memoryview) -> None:
        if self._node.request_room.is_crowded:
            self._inbox.keep(rest, growth=GROWTH_WHEN_CROWDED)
            self._inbox.let_go()
        else:
            self._inbox.keep(rest)
        capacity = self._inbox.own_capacity
        wanted = max(capacity, min(self._inbox.frame_size, ANNOUNCED_BYTES_MAX)) if capacity >= COUNTED_FROM_BYTES else 0
        if wanted != self._reserved and not self._is_waiting_for_room:
            self._reserve(wanted)

    def _reserve(self, wanted: int) -> None:
        room, more = self._node.request_room, wanted - self._reserved
        if more <= 0:
            self._reserved = wanted
            room.give_back(-more)
        elif room.take(more, self._room_is_there, held=self._reserved):
            self._reserved = wanted
        else:
            self._asked_for = more
            self._is_waiting_for_room = True
            self._block()
            self._node.take_buffers_back_soon()

    def keep_frame(self, frame: memoryview) -> tuple[memoryview, int]:
        """For a handler that needs its frame after it has returned: the frame, and the bytes of memory that this takes."""
        size = self._inbox.give_away()
        return (frame, size) if size else (memoryview(bytearray(frame)), len(frame))

    def let_buffer_go(self) -> None:
        """The connection has fallen silent: the room is for others."""
        self._inbox.let_go()
        if self._inbox.own_capacity == 0:
            self._reserve(0)

    def _room_is_there(self) -> None:
        """Called from wherever another connection gave room back; what it leads to must not run in there."""
        self._is_waiting_for_room = False
        self._reserved += self._asked_for
        asyncio.get_running_loop().call_soon(self.go_on)

    def _release_reservation(self) -> None:
        if self._is_waiting_for_room:
            self._is_waiting_for_room = False
            self._node.request_room.leave_queue(self._room_is_there)
        self._reserve(0)

    # Writing

    def new_reply(self) -> Reply:
        """Takes the next place in the queue of replies."""
        reply = Reply(self)
        self._replies.append(reply)
        return reply

    def take_place(self, reply: Reply) -> None:
        self._replies.append(reply)

    def reply_is_ready(self, counted: int) -> None:
        if self.is_closed:
            return
        if counted:
            self._ready_bytes += counted
            self._node.reply_room.take(counted)
        if not self._is_handling:
            self._node.send_soon(self)

    def send_ready(self) -> None:
        """Writes every reply whose turn has come."""
        replies = self._replies
        if not replies or replies[0].pieces is None or self._is_paused or self._is_parting or self.is_closed:
            return
        pieces: list[Piece] = []
        counted, is_streamed = 0, len(self._outbox) > 0
        while replies and (ready := replies[0].pieces) is not None:
            pieces += ready
            counted += replies[0].counted
            is_streamed |= replies.popleft().is_streamed
        self._write(pieces, counted, is_streamed=is_streamed)
        if self._is_blocked:
            self.go_on()

    def go_on_writing(self) -> None:
        """Whatever the outbox waited for is over."""
        self._outbox.pump()
        self._settle_written()
        self.send_ready()
        self.go_on()

    def _write(self, pieces: list[Piece], counted: int, *, is_streamed: bool = False) -> None:
        if not pieces or self._transport is None:
            return
        if is_streamed:
            self._outbox.put(pieces)
        elif not counted:
            self._transport.write(pieces[0] if len(pieces) == 1 else b"".join(pieces))  # type: ignore[arg-type]
            return
        else:
            self._transport.writelines(pieces)  # type: ignore[arg-type]
        self._ready_bytes -= counted
        self._written_bytes += counted
        if self._transport.get_write_buffer_size() > UNSENT_BYTES_HIGH:
            asyncio.get_running_loop().call_soon(self._settle_written)
        else:
            self._settle_written()

    def _settle_written(self) -> None:
        """Written bytes count until the client has taken them: the transport says so, unless it never had to say that they waited.

        What of a streamed reply waits is the outbox's to count.
        """
        if not self._is_paused and not len(self._outbox):
            self._node.reply_room.give_back(self._written_bytes)
            self._written_bytes = 0

    def pause_writing(self) -> None:
        self._is_paused = True
        self._outbox.pause()
        self._stalled_since = self._node.env.now()
        if self._transport is not None:
            self._unsent_bytes = self._transport.get_write_buffer_size()
        self._block()

    def resume_writing(self) -> None:
        self._is_paused = False
        self._outbox.resume()
        self._stalled_since = None
        self._settle_written()
        # In a turn of its own: to go on may end in closing, and asyncio buries a transport twice that is aborted in the midst of this call.
        asyncio.get_running_loop().call_soon(self._go_on_if_open)

    def _go_on_if_open(self) -> None:
        if not self.is_closed:
            self.go_on_writing()
