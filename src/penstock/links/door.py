"""The side that is called: the nodes' own listener.

A `Door` makes the protocol for each connection that `loop.create_server` accepts. What comes over a proven one goes to whoever has put
a function into `told` or `asked`; an answer may come later, and in any order.

Unproven connections are few (`UNPROVEN_MAX`) and short-lived: past the bound the oldest makes room, so that those who only
hold the door cannot keep out a node that knows the secret. A caller that is not let in is counted, and reported now and then.
A proven connection is not read from while its caller does not take the answers, and ends when it asks more at once than a link ever does.
Of one node there is one connection for each lane: a newer one means that the older is dead, whatever the network says.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Protocol

from penstock.consensus.nouns import DirectoryId
from penstock.env import Env
from penstock.errors import MalformedInput
from penstock.links.channel import DEADLINES, PONG, Channel, Deadlines
from penstock.links.frames import Form
from penstock.links.handshake import NONCE_BYTES, Called, Greeting, HandshakeFailed, Introduction, check_secret
from penstock.links.kinds import Lane
from penstock.links.link import ASKS_MAX as LINK_ASKS_MAX
from penstock.links.link import LONG_ASKS_MAX
from penstock.vocabulary import Buffer, Instant, NodeId

UNPROVEN_MAX = 64
ASKS_MAX = 2 * LINK_ASKS_MAX  # What an asker has given up on may still be under way here.
# The longest that is told or asked is a piece of the metadata log: a few hundred KiB, or one entry, as long as Raft lets one wait.
FRAME_BYTES_MAX = 32 * 1024 * 1024
REPORT_SECONDS = 5.0  # Between two reports of callers that were not let in.


class Cancellable(Protocol):
    """Something parked that is to be forgotten when its asker is gone."""

    def cancel(self) -> None: ...


class Asked:
    """A question of another node. It is answered once; what is said after that, or after the asker has gone, is dropped."""

    __slots__ = ("_channel", "_correlation", "body", "directory", "node", "parked")

    def __init__(self, channel: "CalledChannel", node: NodeId, directory: DirectoryId, body: memoryview, correlation: int) -> None:
        self.node = node
        self.directory = directory
        self.body = body  # Memory of its own: it may be kept.
        self.parked: Cancellable | None = None
        self._channel: CalledChannel | None = channel
        self._correlation = correlation

    def answer(self, pieces: Sequence[Buffer]) -> None:
        """The pieces are sent as they are, without being joined; they must not change afterwards."""
        channel, self._channel = self._channel, None
        if channel is not None:
            channel.answer(self._correlation, pieces)

    @property
    def is_over(self) -> bool:
        """Answered, or its asker has gone."""
        return self._channel is None or self._channel.ended is not None


Told = Callable[[NodeId, memoryview], None]


class Door:
    def __init__(
        self, env: Env, introduction: Introduction, secret: bytes, *, report: Callable[[str], None], frame_bytes_max: int = FRAME_BYTES_MAX,
        deadlines: Deadlines = DEADLINES,
    ) -> None:  # fmt: skip
        check_secret(secret)
        self.told: dict[int, Told] = {}
        self.asked: dict[int, Callable[[Asked], None]] = {}
        self.on_contact_lost: Callable[[NodeId], None] = lambda node: None  # A proven connection of this node broke.
        self.turned_away: Counter[str] = Counter()  # By reason.
        self.env = env
        self.me = introduction
        self.secret = secret
        self.frame_bytes_max = frame_bytes_max
        self.deadlines = deadlines
        self._report = report
        self._not_reported_before = Instant(0.0)
        self._unproven: dict[CalledChannel, None] = {}  # The oldest first.
        self._proven: dict[tuple[NodeId, Lane], CalledChannel] = {}
        self._is_closed = False

    def __call__(self) -> "CalledChannel":
        """The factory of protocols, for `loop.create_server`."""
        return CalledChannel(self)

    def close(self) -> None:
        """Ends every connection, after the answers that were already given."""
        self._is_closed = True
        for channel in [*self._unproven, *self._proven.values()]:
            channel.part()

    # What its channels say.

    def knocked(self, channel: "CalledChannel") -> None:
        if self._is_closed:
            channel.end("the node stops")
            return
        self._unproven[channel] = None
        if len(self._unproven) > UNPROVEN_MAX:
            next(iter(self._unproven)).end("others came")

    def let_in(self, channel: "CalledChannel", node: NodeId, lane: Lane) -> None:
        self._unproven.pop(channel, None)
        older = self._proven.get((node, lane))
        self._proven[node, lane] = channel
        if older is not None:
            older.end("the same node came again")

    def left(self, channel: "CalledChannel", why: str, refused: HandshakeFailed | None) -> None:
        if channel in self._unproven:
            del self._unproven[channel]
            self._turned_away(channel, why, refused)
            return
        greeting = channel.greeting
        if greeting is not None and self._proven.get((greeting.node, greeting.lane)) is channel:
            del self._proven[greeting.node, greeting.lane]
            if not self._is_closed:
                self.on_contact_lost(greeting.node)

    def _turned_away(self, channel: "CalledChannel", why: str, refused: HandshakeFailed | None) -> None:
        if self._is_closed:
            return
        self.turned_away["unproven" if refused is None else refused.reason.name.lower()] += 1
        now = self.env.now()
        if now >= self._not_reported_before:
            self._not_reported_before = Instant(now + REPORT_SECONDS)
            claim = "" if channel.greeting is None else f", which says that it is node {channel.greeting.node},"
            self._report(f"a caller from {channel.peer.host}{claim} was not let in at the nodes' listener: {why}")


class CalledChannel(Channel):
    silent_ticks_max = 5  # More than the caller's: it pings, and is the first to give up.

    def __init__(self, door: Door) -> None:
        super().__init__(frame_bytes_max=door.frame_bytes_max, deadlines=door.deadlines)
        self._door = door
        self._called = Called(door.me, door.secret, nonce=door.env.nonce(NONCE_BYTES))
        self._asks: dict[int, Asked] = {}  # Unanswered, by correlation.

    @property
    def greeting(self) -> Greeting | None:
        """Who is there, or claims to be."""
        return self._called.caller

    def answer(self, correlation: int, pieces: Sequence[Buffer]) -> None:
        if self._asks.pop(correlation, None) is not None:
            self.write(Form.ANSWER, 0, correlation, pieces)

    # The channel's side.

    def _opened(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(self._deadlines.unproven_s, self.end, "it did not prove in time who it is")
        self._door.knocked(self)

    def _shake_hands(self, message: memoryview) -> None:
        if self._called.caller is None:
            self._write_bare(self._called.greeted(message))
            return
        self._write_bare(self._called.proven(message))
        if self._timer is not None:
            self._timer.cancel()
        self._prove()
        self._door.let_in(self, self._called.caller.node, self._called.caller.lane)

    def _take(self, form: int, kind: int, correlation: int, body: memoryview) -> None:
        caller = self._called.caller
        assert caller is not None and self._transport is not None
        if form == Form.PING:
            self._transport.write(PONG)
        elif form == Form.TELL:
            told = self._door.told.get(kind)
            if told is not None:
                told(caller.node, body)
        elif form == Form.ASK:
            self._ask(caller, kind, correlation, body)

    def _ask(self, caller: Greeting, kind: int, correlation: int, body: memoryview) -> None:
        handler = self._door.asked.get(kind)
        if handler is None:
            self.write(Form.NOT_UNDERSTOOD, kind, correlation, ())
        elif len(self._asks) >= (2 * LONG_ASKS_MAX if caller.lane is Lane.QUEUES else ASKS_MAX) or correlation in self._asks:
            raise MalformedInput("more questions at once than a link asks")
        else:
            asked = self._asks[correlation] = Asked(self, caller.node, caller.directory, body, correlation)
            handler(asked)

    def pause_writing(self) -> None:
        super().pause_writing()
        self._block()

    def resume_writing(self) -> None:
        super().resume_writing()
        self._go_on()

    def _tick(self) -> None:
        pass

    def _close(self, why: str, refused: HandshakeFailed | None) -> None:
        asks, self._asks = self._asks, {}
        for asked in asks.values():
            if asked.parked is not None:
                asked.parked.cancel()
        self._door.left(self, why, refused)
