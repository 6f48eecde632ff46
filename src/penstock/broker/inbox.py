"""Where a connection's bytes wait until they make whole frames.

All connections receive into one shared buffer, because a chunk is handled before the loop turns to the next connection: an idle
connection costs no buffer. What is left of an unfinished frame moves into a buffer of the connection's own, and the rest is received
straight into that. A connection that sends much keeps its buffer, so that little of what it sends is ever copied; it gives it up when it
falls silent. A chunk is valid only until the next call: whoever needs its bytes longer copies them.
"""

from penstock.settings import KIB
from penstock.wire.frames import LENGTH

OWN_BYTES_MIN = 4 * KIB
OWN_BYTES_USUAL = 512 * KIB  # What a connection's own buffer grows to when its frames are shorter.
KEPT_FROM_BYTES = 32 * KIB  # A smaller one is not worth keeping.
GROWTH = 4  # Room for this many times what came: few copies for those who send, little to gain for those who only announce.
GROWTH_WHEN_CROWDED = 2  # What is made before there is room for it must stay small.


class Inbox:
    __slots__ = ("_begin", "_end", "_is_given_away", "_own", "_shared")

    def __init__(self, shared: memoryview) -> None:
        self._shared = shared
        self._own: memoryview | None = None
        self._begin = 0  # What is not handled yet lies in the own buffer from here
        self._end = 0  # to here.
        self._is_given_away = False  # Somebody else keeps the own buffer.

    def room(self) -> memoryview:
        """Where to receive next."""
        return self._shared if self._own is None else self._own[self._end :]

    def received(self, size: int) -> memoryview | None:
        """Bytes came into `room()`. What there is to handle now; None while it cannot hold a whole frame yet."""
        if self._own is None:
            return self._shared[:size]
        self._end += size
        return self.waiting()

    def waiting(self) -> memoryview | None:
        """What was kept, if it may hold a whole frame or needs more room to become one."""
        own = self._own
        if own is None or self._begin == self._end or (self._end < len(own) and not self._holds_a_frame(own)):
            return None
        return own[self._begin : self._end]

    def give_away(self) -> int:
        """Lets the handler of a frame have the buffer in which it came, and tells its size; 0: it came in the one that all share."""
        self._is_given_away = self._own is not None
        return self.own_capacity

    def keep(self, rest: memoryview, *, growth: int = GROWTH) -> None:
        """Keeps the unhandled end of the chunk last given out, with room for the rest of its first frame."""
        if self._is_given_away:
            self._is_given_away = False
            self.forget()
        own = self._own
        if own is None:
            if rest:
                self._move_to(memoryview(bytearray(max(_capacity(rest, growth), len(rest)))), rest)
        elif not rest:
            self._begin = self._end = 0
            if len(own) < KEPT_FROM_BYTES:
                self._own = None
        else:
            self._begin = self._end - len(rest)
            if self._end == len(own) or len(own) - self._begin < _frame_size(rest):
                capacity = _capacity(rest, growth)
                self._move_to(own if capacity <= len(own) and self._begin else memoryview(bytearray(max(capacity, len(rest)))), rest)

    def let_go(self) -> None:
        """Gives up the own buffer if nothing waits in it."""
        if self._begin == self._end:
            self._own = None
            self._begin = self._end = 0

    def forget(self) -> None:
        self._own = None
        self._begin = self._end = 0

    @property
    def own_capacity(self) -> int:
        return 0 if self._own is None else len(self._own)

    @property
    def holds_bytes(self) -> bool:
        return self._end > self._begin

    @property
    def bytes_held(self) -> int:
        return self._end - self._begin

    @property
    def frame_size(self) -> int:
        """Of the frame that waits for its end, as announced; 0 when none does."""
        return 0 if self._own is None or self._begin == self._end else _frame_size(self._own[self._begin : self._end])

    def _move_to(self, target: memoryview, rest: memoryview) -> None:
        target[: len(rest)] = rest  # Within one buffer too: such a copy minds the overlap.
        self._own, self._begin, self._end = target, 0, len(rest)

    def _holds_a_frame(self, own: memoryview) -> bool:
        size = self._end - self._begin
        return size >= LENGTH.size and size >= LENGTH.size + LENGTH.unpack_from(own, self._begin)[0]


def _frame_size(rest: memoryview) -> int:
    """Of the frame that the bytes begin with; the least that it can be while its length hasn't come."""
    return LENGTH.size + LENGTH.unpack_from(rest)[0] if len(rest) >= LENGTH.size else LENGTH.size


def _capacity(rest: memoryview, growth: int) -> int:
    """How large a buffer these bytes have earned, to hold the frame that they begin."""
    wanted = max(_frame_size(rest), OWN_BYTES_USUAL)
    return min(wanted, max(OWN_BYTES_MIN, growth * len(rest)))
