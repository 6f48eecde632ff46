"""One link that this node opened: to one other node, on one lane.

It is made when there is something to send, and made again when there is something to send and it broke. Between two tries lies a pause
that grows from `PAUSE_SECONDS_MIN` to `PAUSE_SECONDS_MAX`, jittered. What is to be sent meanwhile waits in a queue, as it does while the
other side takes bytes slowly; past the queue's bounds a word that was only told is dropped, and a question is refused. When a try to
connect fails, the queue is emptied: whoever asked hears it at once, and what was told is out of date by the next try.
Answers come in any order. One that nobody waits for any more (or that comes twice) is dropped.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from typing import NamedTuple

from penstock.env import Env
from penstock.links.channel import PING, Channel, Deadlines
from penstock.links.failures import AskTimedOut, LinkFailure, LinkLost, NotUnderstood
from penstock.links.frames import Form, bytes_of
from penstock.links.handshake import NONCE_BYTES, Caller, HandshakeFailed, Introduction
from penstock.links.kinds import Kind, Lane
from penstock.vocabulary import Address, Buffer, Instant, NodeId

PAUSE_SECONDS_MIN, PAUSE_SECONDS_MAX = 0.05, 1.0
STEADY_SECONDS = 1.0  # A link that held for so long was a good one: the next try begins without a pause.
QUEUE_BYTES_MAX = 8 * 1024 * 1024  # Above what Raft has on its way to one replica at most.
QUEUE_FRAMES_MAX = 2_000
ASKS_MAX = 256
LONG_ASKS_MAX = 4_096  # On the lane where most of them wait for something to happen.
_CORRELATION_END = 1 << 32
_CLOSED = "it was closed here"


class Calling(NamedTuple):
    """What all links of a node share."""

    env: Env
    me: Introduction
    secret: bytes
    address_of: Callable[[NodeId], Address | None]
    report: Callable[[str], None]
    lost: Callable[[NodeId], None]
    answer_bytes_max: int
    deadlines: Deadlines


class _Queued(NamedTuple):
    form: Form
    kind: Kind
    correlation: int
    pieces: Sequence[Buffer]
    size: int


class CallingChannel(Channel):
    """The caller's side of a connection."""

    silent_ticks_max = 3

    def __init__(self, link: "Link", caller: Caller, *, frame_bytes_max: int, deadlines: Deadlines) -> None:
        super().__init__(frame_bytes_max=frame_bytes_max, deadlines=deadlines)
        self.proven: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._link = link
        self._caller = caller
        self._is_challenged = False

    def _opened(self) -> None:
        self._write_bare(self._caller.hello)

    def _shake_hands(self, message: memoryview) -> None:
        if not self._is_challenged:
            self._is_challenged = True
            self._write_bare(self._caller.challenged(message))
            return
        self._caller.welcomed(message)
        self._prove()
        if not self.proven.done():
            self.proven.set_result(None)

    def _take(self, form: int, kind: int, correlation: int, body: memoryview) -> None:
        if form in (Form.ANSWER, Form.NOT_UNDERSTOOD):
            self._link.answered(correlation, body if form == Form.ANSWER else None)

    def _tick(self) -> None:
        if self._silent_ticks and self._transport is not None:
            self._transport.write(PING)

    def _close(self, why: str, refused: HandshakeFailed | None) -> None:
        if self.proven.done():
            self._link.broke(self, why)
        else:
            self.proven.set_exception(refused if refused is not None else ConnectionError(why))

    def resume_writing(self) -> None:
        super().resume_writing()
        self._link.go_on()


class Link:
    def __init__(self, calling: Calling, node: NodeId, lane: Lane) -> None:
        self.node = node
        self.lane = lane
        self.dropped = 0  # Words that were told and never left.
        self._calling = calling
        self._channel: CallingChannel | None = None  # Proven, and not known to be broken.
        self._attempt: asyncio.Task[None] | None = None
        self._queue: deque[_Queued] = deque()
        self._queued_bytes = 0
        self._asks: dict[int, asyncio.Future[memoryview]] = {}
        self._next_correlation = 1
        self._pause_seconds = 0.0
        self._not_before = Instant(0.0)
        self._up_since = Instant(0.0)
        self._is_closed = False

    @property
    def is_up(self) -> bool:
        return self._channel is not None

    def tell(self, kind: Kind, pieces: Sequence[Buffer]) -> None:
        if not self._send(Form.TELL, kind, 0, pieces):
            self.dropped += 1

    async def ask(self, kind: Kind, pieces: Sequence[Buffer], *, timeout_s: float) -> memoryview:
        if self._is_closed:
            raise LinkLost(f"the link to node {self.node}: {_CLOSED}", may_have_happened=False)
        if len(self._asks) >= (LONG_ASKS_MAX if self.lane is Lane.QUEUES else ASKS_MAX):
            raise LinkLost(f"{len(self._asks)} questions wait for node {self.node} already", may_have_happened=False)
        correlation = self._next_correlation
        self._next_correlation = correlation % (_CORRELATION_END - 1) + 1
        answer: asyncio.Future[memoryview] = asyncio.get_running_loop().create_future()
        self._asks[correlation] = answer
        try:
            async with asyncio.timeout(timeout_s):
                if not self._send(Form.ASK, kind, correlation, pieces):
                    raise LinkLost(f"too much waits to be sent to node {self.node}", may_have_happened=False)
                return await answer
        except TimeoutError:
            raise AskTimedOut(f"node {self.node} did not answer within {timeout_s:g} s", may_have_happened=True) from None
        finally:
            del self._asks[correlation]

    def close(self) -> None:
        self._is_closed = True
        if self._attempt is not None:
            self._attempt.cancel()
        channel, self._channel = self._channel, None
        if channel is not None:
            channel.part()
        self._give_up(_CLOSED)

    # What its channel says.

    def answered(self, correlation: int, body: memoryview | None) -> None:
        answer = self._asks.get(correlation)
        if answer is None or answer.done():
            return
        if body is not None:
            answer.set_result(body)
        else:
            answer.set_exception(NotUnderstood(f"node {self.node} runs a version that does not know this", may_have_happened=False))

    def broke(self, channel: CallingChannel, why: str) -> None:
        if channel is not self._channel:
            return
        self._channel = None
        if self._calling.env.now() - self._up_since >= STEADY_SECONDS:
            self._pause_seconds = 0.0
        self._pause()
        self._give_up(why)
        self._calling.lost(self.node)

    def go_on(self) -> None:
        """Sends what waits, as far as the other side takes it."""
        queue = self._queue
        while queue and self._channel is not None and not self._channel.is_congested:
            queued = queue.popleft()
            self._queued_bytes -= queued.size
            if queued.form is Form.TELL or queued.correlation in self._asks:  # A question whose asker left is not asked.
                self._channel.write(queued.form, queued.kind, queued.correlation, queued.pieces)

    # Sending.

    def _send(self, form: Form, kind: Kind, correlation: int, pieces: Sequence[Buffer]) -> bool:
        channel = self._channel
        if channel is not None and not channel.is_congested and not self._queue:
            channel.write(form, kind, correlation, pieces)
            return True
        size = bytes_of(pieces)
        if self._is_closed or len(self._queue) >= QUEUE_FRAMES_MAX or (self._queue and self._queued_bytes + size > QUEUE_BYTES_MAX):
            return False
        self._queue.append(_Queued(form, kind, correlation, pieces, size))
        self._queued_bytes += size
        if channel is None and self._attempt is None:
            self._attempt = asyncio.get_running_loop().create_task(self._connect())
        return True

    def _give_up(self, why: str) -> None:
        """Nothing that waits can be sent, and nothing that was sent will be answered."""
        unsent = {queued.correlation for queued in self._queue}
        self.dropped += sum(queued.form is Form.TELL for queued in self._queue)
        self._queue.clear()
        self._queued_bytes = 0
        for correlation, answer in list(self._asks.items()):
            if not answer.done():
                answer.set_exception(LinkLost(f"the link to node {self.node}: {why}", may_have_happened=correlation not in unsent))

    # Connecting.

    async def _connect(self) -> None:
        try:
            wait = self._not_before - self._calling.env.now()
            if wait > 0:
                await asyncio.sleep(max(wait, 0.001))
            channel = await self._dial()
        except HandshakeFailed as refused:
            self._calling.report(f"no link to node {self.node} at {self._calling.address_of(self.node)}: {refused}")
            self._failed(str(refused))
        except (OSError, LinkFailure) as failure:  # A time-out is an OSError too.
            self._failed(str(failure) or type(failure).__name__)
        else:
            self._channel = channel
            self._up_since = self._calling.env.now()
            self.go_on()
        finally:
            self._attempt = None

    async def _dial(self) -> CallingChannel:
        calling = self._calling
        address = calling.address_of(self.node)
        if address is None:
            raise LinkLost(f"nobody has said where node {self.node} listens", may_have_happened=False)
        caller = Caller(calling.me, calling.secret, called=self.node, lane=self.lane, nonce=calling.env.nonce(NONCE_BYTES))
        channel = CallingChannel(self, caller, frame_bytes_max=calling.answer_bytes_max, deadlines=calling.deadlines)
        try:
            async with asyncio.timeout(calling.deadlines.connect_s):
                await asyncio.get_running_loop().create_connection(lambda: channel, *address)
                await channel.proven
        except BaseException:
            if not channel.proven.cancel() and not channel.proven.cancelled():
                channel.proven.exception()  # It failed in the turn in which time was up: nobody else asks why.
            channel.end("it could not be made")
            raise
        if channel.ended is not None:
            raise LinkLost(channel.ended, may_have_happened=False)
        return channel

    def _failed(self, why: str) -> None:
        self._pause()
        self._give_up(why)

    def _pause(self) -> None:
        self._pause_seconds = min(max(2 * self._pause_seconds, PAUSE_SECONDS_MIN), PAUSE_SECONDS_MAX)
        self._not_before = Instant(self._calling.env.now() + self._pause_seconds * (0.5 + self._calling.env.rng.random() / 2))
