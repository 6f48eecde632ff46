"""Where a connection's bytes wait until they make whole frames.

All connections receive into one shared buffer, because a chunk is handled before the loop turns to the next connection: an idle
connection costs no buffer. What is left of an unfinished frame moves into a buffer of its own, sized for that frame, and the rest of the
frame is received straight into it. A chunk is valid only until the next call: whoever needs its bytes longer copies them.
"""

from penstock.settings import KIB
from penstock.wire.frames import LENGTH

HOLD_BYTES_MIN = 4 * KIB
FIRST_HOLD_BYTES_MAX = HOLD_BYTES_MIN  # A longer frame gets room as its bytes arrive, so that an announcement alone costs nothing.
HOLD_GROWTH = 4  # Room for this many times what came: few copies for those who send, little to gain for those who only announce.


class Inbox:
    __slots__ = ("_held", "_held_size", "_shared")

    def __init__(self, shared: memoryview) -> None:
        self._shared = shared
        self._held: bytearray | None = None
        self._held_size = 0

    def room(self) -> memoryview:
        """Where to receive next."""
        return self._shared if self._held is None else memoryview(self._held)[self._held_size :]

    def received(self, size: int) -> memoryview | None:
        """Bytes came into `room()`. What there is to handle now; None while it cannot hold a whole frame yet."""
        if self._held is None:
            return self._shared[:size]
        self._held_size += size
        return self.waiting()

    def waiting(self) -> memoryview | None:
        """What was kept, if it may hold a whole frame or needs more room to become one."""
        held = self._held
        if held is None or (self._held_size < len(held) and not self._holds_a_frame(held)):
            return None
        return memoryview(held)[: self._held_size]

    def keep(self, rest: memoryview) -> None:
        """Keeps the unhandled end of the chunk last given out, with room for the rest of its first frame."""
        if not rest:
            self._held, self._held_size = None, 0
            return
        if self._held is not None and len(rest) == self._held_size < len(self._held):
            return
        held = bytearray(max(_frame_room(rest), len(rest)))
        held[: len(rest)] = rest
        self._held, self._held_size = held, len(rest)

    @property
    def held_capacity(self) -> int:
        return 0 if self._held is None else len(self._held)

    def _holds_a_frame(self, held: bytearray) -> bool:
        return self._held_size >= LENGTH.size and self._held_size >= LENGTH.size + LENGTH.unpack_from(held)[0]


def _frame_room(rest: memoryview) -> int:
    if len(rest) < LENGTH.size:
        return HOLD_BYTES_MIN
    size: int = LENGTH.size + LENGTH.unpack_from(rest)[0]
    return size if size <= FIRST_HOLD_BYTES_MAX else min(size, max(FIRST_HOLD_BYTES_MAX, HOLD_GROWTH * len(rest)))
