"""Bytes into frames and back.

On the wire a frame is four bytes of length and that many bytes: form, kind and correlation, then the body. The correlation ties an answer
to its question and is 0 where there is none.

`Assembler` gives each frame memory of its own, so that whoever takes a frame may keep it, or slices of it, as long as they like. A small
frame is copied once out of the buffer that its neighbours share; the rest of a large one is received straight into its place.
"""

from collections.abc import Sequence
from enum import IntEnum
from struct import Struct

from penstock.errors import MalformedInput
from penstock.vocabulary import Buffer

LENGTH = Struct(">I")
HEAD = Struct(">BBI")  # form, kind, correlation
_FRONT = Struct(">IBBI")  # The length and the head together.

SHARED_BYTES = 64 * 1024  # A frame that does not fit into this has a buffer of its own from the start.


class Form(IntEnum):
    TELL = 1
    ASK = 2
    ANSWER = 3
    NOT_UNDERSTOOD = 4  # Instead of an answer.
    PING = 5
    PONG = 6


def front(form: Form, kind: int, correlation: int, body_bytes: int) -> bytes:
    """What stands before the body of a frame."""
    return _FRONT.pack(HEAD.size + body_bytes, form, kind, correlation)


def bytes_of(pieces: Sequence[Buffer]) -> int:
    return sum(map(len, pieces))


class Assembler:
    """Where a connection's bytes become frames: receive into `room()`, tell `received`, take `next_frame()` until there is none."""

    __slots__ = ("_begin", "_end", "_filled", "_large", "_shared", "frame_bytes_max")

    def __init__(self, shared_bytes: int, frame_bytes_max: int) -> None:
        self.frame_bytes_max = frame_bytes_max  # An announcement of more is refused before any memory is given to it.
        self._shared = memoryview(bytearray(shared_bytes))
        self._begin = 0  # What came and was not taken lies from here
        self._end = 0  # to here.
        self._large: memoryview | None = None  # The frame that is on its way, when the shared buffer cannot hold it,
        self._filled = 0  # and how much of it is there.

    def widen(self, shared_bytes: int, frame_bytes_max: int) -> None:
        """The other side has earned more room. What has come stays."""
        wider = memoryview(bytearray(shared_bytes))
        size = self._end - self._begin
        wider[:size] = self._shared[self._begin : self._end]
        self._shared, self._begin, self._end = wider, 0, size
        self.frame_bytes_max = frame_bytes_max

    def room(self) -> memoryview:
        """Where to receive next; never empty once all whole frames have been taken."""
        if self._large is not None:
            return self._large[self._filled :]
        if self._begin:
            size = self._end - self._begin
            self._shared[:size] = self._shared[self._begin : self._end]  # Such a copy minds the overlap.
            self._begin, self._end = 0, size
        return self._shared[self._end :]

    def received(self, size: int) -> None:
        if self._large is not None:
            self._filled += size
        else:
            self._end += size

    def next_frame(self) -> memoryview | None:
        """The next whole frame without its length. Raises `MalformedInput` when the next one could never be taken."""
        large, begin, held = self._large, self._begin, self._end - self._begin
        if large is not None:
            if self._filled < len(large):
                return None
            self._large = None
            return large
        if held < LENGTH.size:
            return None
        size: int = LENGTH.unpack_from(self._shared, begin)[0]
        if not 1 <= size <= self.frame_bytes_max:
            raise MalformedInput(f"it announced a frame of {size} bytes; at most {self.frame_bytes_max} are taken")
        body_at = begin + LENGTH.size
        if held >= LENGTH.size + size:
            frame = memoryview(bytes(self._shared[body_at : body_at + size]))
            self._begin = body_at + size
            if self._begin == self._end:
                self._begin = self._end = 0
            return frame
        if LENGTH.size + size > len(self._shared):
            self._large = memoryview(bytearray(size))
            self._filled = held - LENGTH.size
            self._large[: self._filled] = self._shared[body_at : self._end]
            self._begin = self._end = 0
        return None
