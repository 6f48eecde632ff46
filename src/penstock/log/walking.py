"""A segment read from front to back, a chunk at a time and off the loop: for recovery, for rebuilding an index, for looking up a time."""

from collections.abc import Iterator
from typing import NamedTuple

from penstock.env import Disk, File
from penstock.wire.batches import HEADER_BYTES, BatchHeader, read_header
from penstock.wire.records import Scan, scan_batches

CHUNK_BYTES = 1 << 20  # Some milliseconds of work on the loop for the smallest batches; then others have their turn.
_ANY_OFFSET = 2**63 - 1


class Chunk(NamedTuple):
    position: int  # In the file.
    content: bytes
    scan: Scan  # Of whole batches from the chunk's start.

    def headers(self) -> Iterator[tuple[int, BatchHeader]]:
        """(position in the file, header) of every whole batch."""
        content, at = self.content, 0
        while at < self.scan.valid_bytes:
            header = read_header(content, at)
            yield self.position + at, header
            at += header.size

    def batch_at(self, position: int, header: BatchHeader) -> bytes:
        """The batch that begins at this position of the file."""
        return self.content[position - self.position : position - self.position + header.size]

    def epoch_after(self, position: int, header: BatchHeader) -> int:
        """The leader epoch of the batch after this one; -1 when this is the chunk's last."""
        at = position - self.position + header.size
        return read_header(self.content, at).leader_epoch if at < self.scan.valid_bytes else -1


class Walk:
    """Goes from `position`, where a batch begins, towards `end`. Not an async generator: those are ended by whoever finds them last."""

    __slots__ = ("_disk", "_end", "_file", "_verify", "offset", "position")

    def __init__(self, disk: Disk, file: File, position: int, end: int, *, first_offset: int, verify: bool) -> None:
        self._disk = disk
        self._file = file
        self._end = end
        self._verify = verify
        self.position = position  # Where the next batch begins.
        self.offset = first_offset  # It has at least this offset.

    async def next_chunk(self, bytes_max: int = CHUNK_BYTES) -> Chunk:
        """The next whole batches. None in it: the end is reached, or they cannot be followed further."""
        position, left = self.position, self._end - self.position
        content = await self._disk.read_later(self._file, position, min(bytes_max, left))
        scan = self._scan(content)
        if not scan.batches and HEADER_BYTES <= len(content) < (size := read_header(content).size) <= left:
            content = await self._disk.read_later(self._file, position, size)  # One batch that is longer than a chunk.
            scan = self._scan(content)
        self.position += scan.valid_bytes
        self.offset = scan.end_offset
        return Chunk(position, content, scan)

    def _scan(self, content: bytes) -> Scan:
        return scan_batches(content, first_offset=self.offset, end_offset_max=_ANY_OFFSET, bytes_max=len(content), verify=self._verify)
