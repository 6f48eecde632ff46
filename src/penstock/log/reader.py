"""Finds the batch that a reader wants, and reads from there.

Consumers read on where they stopped, so the places where reads ended are remembered (a few of them): the next read needs no index and
reads nothing twice. Otherwise the index says where to begin to look.
Read-now answers None wherever it would wait for the disk; read-later is the same, off the loop. Files are opened on the loop, in both.
A read that waits may be overtaken by compaction. It goes on in the file that it has, which stands for the same offsets; but what it learns
of places there is not remembered, and where that file ends it looks for its offset anew.
"""

from bisect import bisect_right

from penstock.env import Disk
from penstock.log import index_files
from penstock.log.config import LogConfig, LogIdentity
from penstock.log.epochs import Epochs
from penstock.log.faults import LogDamaged, damage_at
from penstock.log.index import SparseIndex
from penstock.log.open_files import OpenFile, OpenFiles
from penstock.log.reading import Asks, take_batches
from penstock.log.segment import Segment, Shelf
from penstock.log.streaming import STREAM_BYTES_MIN, Stream, Stretch
from penstock.vocabulary import Buffer

_PLACES_MAX = 32  # More readers than this at different places fall back on the index.


class Reader:
    __slots__ = ("_disk", "_epochs", "_files", "_identity", "_places", "_shelf", "_suspects", "config", "gaps_below")

    def __init__(
        self, disk: Disk, files: OpenFiles, shelf: Shelf, epochs: Epochs, *, identity: LogIdentity, config: LogConfig, gaps_below: int
    ) -> None:
        self._disk = disk
        self._files = files
        self._shelf = shelf
        self._epochs = epochs
        self._identity = identity
        self.config = config
        self.gaps_below = gaps_below
        self._suspects: dict[Segment, None] = {}
        self._places: dict[int, int] = {}  # Where a batch begins: offset to position in its segment. The oldest first.

    def read(self, offset: int, bytes_max: int, end_offset: int) -> Buffer | None:
        """The offset lies in the log and below `end_offset`."""
        segment = self._shelf.holding(offset)
        held = self._borrow(segment)
        reading = self._begin(segment, held, offset, bytes_max, end_offset)
        if reading is None:
            return None
        try:
            position, size = next(reading)
            while True:
                content = self._disk.read_now(held.file, position, size)
                if content is None:
                    return None
                position, size = reading.send(content)
        except StopIteration as done:
            batches, next_offset, position = done.value
        if batches or not self._goes_on(segment, next_offset, end_offset):
            return self._remember(segment, batches, next_offset, position)
        with damage_at(next_base := self._next_base(segment)):
            return self.read(next_base, bytes_max, end_offset)

    async def read_later(self, offset: int, bytes_max: int, end_offset: int) -> Buffer:
        segment = self._shelf.holding(offset)
        held = self.pin(segment)
        try:
            await self.index_of(segment, held)
            if segment.is_replaced:  # While its index was read: what is known of places is about its successor.
                return await self.read_later(offset, bytes_max, end_offset)
            reading = self._begin(segment, held, offset, bytes_max, end_offset)
            assert reading is not None, "the index was just loaded"
            try:
                position, size = next(reading)
                while True:
                    position, size = reading.send(await self._disk.read_later(held.file, position, size))
            except StopIteration as done:
                batches, next_offset, position = done.value
        finally:
            self._files.unpin(held)
        if segment.is_replaced:
            return batches or await self.read_later(offset, bytes_max, end_offset)
        if batches or not self._goes_on(segment, next_offset, end_offset):
            return self._remember(segment, batches, next_offset, position)
        with damage_at(next_base := self._next_base(segment)):
            return await self.read_later(next_base, bytes_max, end_offset)

    def stream(self, offset: int, bytes_max: int, end_offset: int) -> Stream | None:
        """A long read whose length is known beforehand; None where there is none to be had, and `read` must do."""
        segment = self._shelf.holding(offset)
        if bytes_max < STREAM_BYTES_MIN or segment in self._suspects or offset < self.gaps_below:
            return None
        if segment.size - self._places.get(offset, 0) < STREAM_BYTES_MIN:
            return None  # What is left of it is short: the usual case at the end of a log.
        held = self._borrow(segment)
        index = segment.index or held.index
        stretch = None if index is None else self._plan(segment, index, offset, bytes_max, end_offset)
        if stretch is None:
            return None
        return Stream(self, self._disk, self._epochs.copy(), segment, stretch)

    def suspect(self, segment: Segment) -> None:
        """Something in it was not what was written: it is read in one piece from now on, so that damage is found before a reply begins."""
        self._suspects[segment] = None

    def trust(self, segment: Segment) -> None:
        """It was mended."""
        self._suspects.pop(segment, None)

    def unpin(self, held: OpenFile) -> None:
        self._files.unpin(held)

    def _plan(self, segment: Segment, index: SparseIndex, offset: int, bytes_max: int, end_offset: int) -> Stretch | None:
        """From the batch that begins with the offset to the last place below the bounds where the index knows of a batch."""
        start = 0 if offset == segment.base_offset else self._places.get(offset, -1)
        if start < 0:
            entry = index.find(offset)
            if entry < 0 or index.offsets[entry] != offset:
                return None
            start = index.positions[entry]
        last = min(bisect_right(index.positions, start + bytes_max), bisect_right(index.offsets, end_offset)) - 1
        end = index.positions[last] if last >= 0 else 0
        return Stretch(offset, start, end) if end - start >= STREAM_BYTES_MIN else None

    def pin(self, segment: Segment) -> OpenFile:
        try:
            return self._files.pin(segment.path)
        except FileNotFoundError:
            raise LogDamaged(f"{segment.path} is missing") from None

    async def index_of(self, segment: Segment, held: OpenFile) -> SparseIndex:
        """The segment's index, read or made anew if nobody has it. The caller has the file pinned."""
        index = segment.index or held.index
        if index is not None:
            return index
        index = await index_files.load(self._disk, segment, self._identity)
        if index is None:
            gaps = segment.base_offset < self.gaps_below
            index = await index_files.rebuild(self._disk, held.file, segment, self.config.index_interval_bytes, gaps=gaps)
            index_files.save_if_possible(self._disk, segment, index, self._identity)
        held.index = index
        return index

    def forget_places(self) -> None:
        """What they point at has been cut off."""
        self._places.clear()

    def _begin(self, segment: Segment, held: OpenFile, offset: int, bytes_max: int, end_offset: int) -> Asks | None:
        """A read of the segment; None when nobody in memory knows where to begin."""
        position = 0 if offset == segment.base_offset else self._places.get(offset, -1)
        known_offset, seek_bytes, gaps = offset, 0, offset < self.gaps_below
        if position < 0:
            index = segment.index or held.index
            if index is None:
                return None
            entry = index.find(offset)
            if entry >= 0:
                known_offset, position = index.offsets[entry], index.positions[entry]
                seek_bytes = index.stretch_end(entry, segment.size) - position if known_offset != offset else 0
            elif gaps:
                position = 0  # Compaction took what stood before the first batch.
            else:
                raise LogDamaged(f"{segment.path}: the batches before offset {offset} cannot be followed")
        return take_batches(
            segment.path, offset, position=position, known_offset=known_offset, seek_bytes=seek_bytes, segment_size=segment.size,
            bytes_max=bytes_max, end_offset=end_offset, epochs=self._epochs, gaps=gaps,
        )  # fmt: skip

    def _remember(self, segment: Segment, batches: Buffer, next_offset: int, position: int) -> Buffer:
        if position < segment.size or segment is self._shelf.active:
            places = self._places
            places[next_offset] = position
            if len(places) > _PLACES_MAX:
                del places[next(iter(places))]
        return batches

    def _borrow(self, segment: Segment) -> OpenFile:
        try:
            return self._files.borrow(segment.path)
        except FileNotFoundError:
            raise LogDamaged(f"{segment.path} is missing") from None

    def _goes_on(self, segment: Segment, next_offset: int, end_offset: int) -> bool:
        """Whether compaction took the rest of this segment, so that what the reader wants is in the next one."""
        is_spent = next_offset < self.gaps_below and segment is not self._shelf.active
        return is_spent and self._next_base(segment) < end_offset

    def _next_base(self, segment: Segment) -> int:
        return self._shelf.segments[self._shelf.place_of(segment.base_offset) + 1].base_offset

