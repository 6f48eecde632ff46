"""Batches of a log as they are stored, for members of share groups: read ahead where reading goes on at the place where it stopped.

Several members take one after the other what lies side by side, a few records each. What was read for one of them and lies behind it stays
in hand for the next, until nobody has wanted any of it for a while; it counts as replies do. Every byte was checked when it was read.
"""

from penstock.broker.memory import ReplyRoom
from penstock.log.faults import OffsetOutOfRange
from penstock.partition.partition import Partition
from penstock.settings import KIB
from penstock.vocabulary import Buffer, Offset
from penstock.wire.batches import read_header
from penstock.wire.records import scan_batches, seek_batch

AHEAD_BYTES = 64 * KIB
_NO_END = (1 << 63) - 1


class StoredBatches:
    """Of one partition."""

    __slots__ = ("_at", "_at_offset", "_end_offset", "_is_closed", "_is_idle", "_partition", "_room", "_start_offset", "_view")

    def __init__(self, partition: Partition, room: ReplyRoom) -> None:
        self._partition = partition
        self._room = room
        self._view = memoryview(b"")  # Whole batches; those below `_at_offset` end before `_at`.
        self._start_offset = self._end_offset = self._at = self._at_offset = 0
        self._is_idle = self._is_closed = False

    def at_hand(self, offset: int, size: int) -> Buffer | None:
        """Whole batches, about so many bytes or more, from the one that holds the offset on, or from the next. Empty: there is none any
        more. None: it must wait for the disk. Raises DiskFailed."""
        log = self._partition.log
        self._is_idle = False
        if self._start_offset <= offset < self._end_offset:
            if log.start_offset <= self._start_offset:
                return self._from(offset)
            self.let_go()  # What the log has lost is nobody's any more.
        goes_on = offset == self._end_offset or not self._view
        try:
            content = log.read(offset, bytes_max=max(size, AHEAD_BYTES) if goes_on else size, end_offset=self._partition.last_stable_offset)
        except OffsetOutOfRange:
            return b""
        if content and goes_on and not self._is_closed:
            self._keep(memoryview(content))
        return content

    async def read_later(self, offset: int, size: int) -> Buffer:
        """The same for what was not at hand."""
        try:
            return await self._partition.log.read_later(Offset(offset), bytes_max=size, end_offset=self._partition.last_stable_offset)
        except OffsetOutOfRange:
            return b""

    def let_go(self) -> None:
        self._room.give_back(len(self._view))
        self._view = memoryview(b"")
        self._start_offset = self._end_offset = self._at = self._at_offset = 0

    def close(self) -> None:
        """Nobody reads here any more. Who still does keeps nothing."""
        self.let_go()
        self._is_closed = True

    def let_go_if_idle(self) -> None:
        """Of what nobody has wanted since this was last asked."""
        if self._is_idle:
            self.let_go()
        self._is_idle = True

    def _from(self, offset: int) -> memoryview:
        if offset < self._at_offset:  # It was given back by one who had it.
            self._at = self._at_offset = 0
        self._at, self._at_offset = seek_batch(self._view, offset, self._at), offset
        return self._view[self._at :]

    def _keep(self, view: memoryview) -> None:
        first = read_header(view, 0).base_offset
        scan = scan_batches(view, first_offset=first, end_offset_max=_NO_END, bytes_max=len(view), verify=False)
        self._room.give_back(len(self._view))
        self._room.take(len(view))
        self._view, self._start_offset, self._end_offset = view, first, scan.end_offset
        self._at = self._at_offset = 0
