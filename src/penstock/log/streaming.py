"""A long stretch of batches, read and checked a piece at a time while the pieces before it are being sent.

Its length is known before its first byte is read: it ends where the index says that a batch begins. A reply can therefore be announced
and then made as fast as its reader takes it, out of memory that stays in the processor's cache, and a reader that takes nothing holds
one piece and not the whole. Each piece is whole batches that were checked as every read checks them.
Should a check fail in the middle, the promise of so many bytes cannot be kept: `LogDamaged`, and the segment is not streamed again. The
next read finds the damage in its first piece and can say so.
"""

from typing import TYPE_CHECKING, NamedTuple

from penstock.env import Disk, File
from penstock.errors import DiskFailed
from penstock.log.epochs import NEVER, Epochs
from penstock.log.open_files import OpenFile
from penstock.log.reading import Asks, take_batches
from penstock.log.segment import Segment
from penstock.vocabulary import Buffer

if TYPE_CHECKING:
    from penstock.log.reader import Reader

STREAM_BYTES_MIN = 256 << 10  # Shorter reads are done at once.
PIECE_BYTES = 512 << 10  # Measured: smaller ones cost more calls than they save in cache misses.


class Stretch(NamedTuple):
    offset: int  # Of the batch that begins
    start: int  # at this position.
    end: int  # Where another batch begins, or the segment ends.


class Stream:
    __slots__ = ("_batch_bytes", "_disk", "_end", "_epochs", "_held", "_offset", "_position", "_reader", "_segment", "_size")

    def __init__(self, reader: "Reader", disk: Disk, epochs: Epochs, segment: Segment, stretch: Stretch) -> None:
        self._reader = reader
        self._disk = disk
        self._segment = segment
        self._held: OpenFile | None = None  # From the first piece on: a stream that was never begun needs no closing.
        self._epochs = epochs
        self._offset, self._position, self._end = stretch
        self._size = self._end - self._position
        self._batch_bytes = 0  # Of a batch that was longer than asked for: others will be, and none is to be read twice.

    def __len__(self) -> int:
        return self._size

    @property
    def is_done(self) -> bool:
        return self._position == self._end

    def next_piece(self, bytes_max: int = PIECE_BYTES) -> Buffer | None:
        """The next batches, at least one; None when they must come from the disk: use `next_piece_later`."""
        file = self._hold()
        asks = self._begin(bytes_max)
        try:
            position, size = next(asks)
            while True:
                content = self._disk.read_now(file, position, size)
                if content is None:
                    return None
                position, size = asks.send(content)
        except StopIteration as done:
            return self._moved(bytes_max, *done.value)
        except DiskFailed:
            self._reader.suspect(self._segment)
            raise

    async def next_piece_later(self, bytes_max: int = PIECE_BYTES) -> Buffer:
        file = self._hold()
        asks = self._begin(bytes_max)
        try:
            position, size = next(asks)
            while True:
                position, size = asks.send(await self._disk.read_later(file, position, size))
        except StopIteration as done:
            return self._moved(bytes_max, *done.value)
        except DiskFailed:
            self._reader.suspect(self._segment)
            raise

    def close(self) -> None:
        """Lets go of the file. May be called twice."""
        if self._held is not None:
            self._reader.unpin(self._held)
            self._held = None

    def _hold(self) -> File:
        if self._held is None:
            self._held = self._reader.pin(self._segment)
        return self._held.file

    def _begin(self, bytes_max: int) -> Asks:
        return take_batches(
            self._segment.path, self._offset, position=self._position, known_offset=self._offset, seek_bytes=0, segment_size=self._end,
            bytes_max=max(bytes_max, self._batch_bytes), end_offset=NEVER, epochs=self._epochs, gaps=False,
        )  # fmt: skip

    def _moved(self, bytes_max: int, batches: Buffer, next_offset: int, position: int) -> Buffer:
        self._offset, self._position = next_offset, position
        if len(batches) > bytes_max:
            self._batch_bytes = len(batches)
        return batches
