"""Replaces the damaged batches of a closed segment by the same batches from another copy of the partition.

Replicas store batches as they came, so a good copy has the same bytes, and the batch that is fetched fits exactly where the damaged one
was. Only compaction changes that: a segment that it has made, here or there, cannot be mended batch by batch.

The segment is written anew beside the old one: what is well here is copied, what is not is fetched, and every batch is checked. Then one
rename puts it in place. The damaged bytes are kept in a directory beside the log.
"""

from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field

from penstock.env import Disk, File
from penstock.errors import DiskFailed
from penstock.log.epochs import Epochs
from penstock.log.segment import Segment
from penstock.log.small_files import TEMPORARY, write_fresh
from penstock.log.walking import CHUNK_BYTES, Walk
from penstock.vocabulary import Buffer
from penstock.wire.batches import BatchHeader, read_header
from penstock.wire.records import scan_batches

ASIDE = ".damaged"

Fetch = Callable[[int], Awaitable[Buffer]]
"""Returns good batches, the first of which begins at the offset. Whatever it raises ends the mending, with nothing changed."""


class CannotMend(Exception):
    """The segment cannot be made whole batch by batch; the message says why."""


@dataclass(slots=True)
class Mended:
    """What was replaced."""

    bytes_copied: int = 0
    stretches: list[tuple[int, int]] = field(default_factory=list)  # Position and size of each batch that was not what was written.


class SegmentMending:
    """Writes the whole segment to a temporary file beside it."""

    def __init__(self, disk: Disk, source: File, segment: Segment, *, epochs: Epochs, end_offset: int, fetch: Fetch) -> None:
        self._disk = disk
        self._source = source
        self._segment = segment
        self._epochs = epochs
        self._end_offset = end_offset
        self._fetch = fetch
        self._position = 0  # Where the next batch begins, in both files.
        self._offset = segment.base_offset  # Which it must have.
        self.mended = Mended()

    async def write_anew(self) -> None:
        """Leaves the whole segment, flushed, under its temporary name; nothing at all if it raises."""
        target = write_fresh(self._disk, self._segment.path + TEMPORARY, b"")
        is_whole = False
        try:
            while self._position < self._segment.size:
                await self._copy_good(target)
                if self._position < self._segment.size:
                    await self._fetch_bad(target)
            if self._offset != self._end_offset:
                raise CannotMend(f"{self._segment.path} would end at offset {self._offset} instead of {self._end_offset}")
            if failures := await self._disk.sync([target]):
                raise DiskFailed(f"{failures[0][0]}: {failures[0][1]}")
            is_whole = True
        finally:
            self._disk.close(target)
            if not is_whole:
                with suppress(DiskFailed):
                    self._disk.unlink(self._segment.path + TEMPORARY)

    async def _copy_good(self, target: File) -> None:
        """Copies up to the first batch here that is not what was written."""
        with suppress(DiskFailed):  # Bytes that cannot be read are damaged, too.
            while (size := await self._copy_chunk(target)) > 0:
                self.mended.bytes_copied += size

    async def _copy_chunk(self, target: File) -> int:
        walk = Walk(self._disk, self._source, self._position, self._segment.size, first_offset=self._offset, verify=True)
        chunk = await walk.next_chunk()
        size, offset = 0, self._offset
        for _, header in chunk.headers():
            if not self._follows(header, offset):
                break
            size, offset = size + header.size, header.end_offset
        if size:
            self._disk.append(target, (memoryview(chunk.content)[:size],))
            self._position, self._offset = self._position + size, offset
        return size

    async def _fetch_bad(self, target: File) -> None:
        """Takes some batches of the good copy. After them this copy may be well again."""
        content = memoryview(await self._fetch(self._offset))
        scan = scan_batches(content, first_offset=self._offset, end_offset_max=self._end_offset, bytes_max=len(content), is_dense=True)
        if not scan.batches or self._position + scan.valid_bytes > self._segment.size:
            raise CannotMend(f"{self._segment.path}: the good copy has no batch that fits at offset {self._offset}")
        own = await self._read_own(scan.valid_bytes)
        at = 0
        while at < scan.valid_bytes:
            header = read_header(content, at)
            if not self._follows(header, self._offset):
                raise CannotMend(f"{self._segment.path}: the batch at offset {self._offset} is another one in the good copy")
            if own[at : at + header.size] != content[at : at + header.size]:
                self.mended.stretches.append((self._position + at, header.size))
            at, self._offset = at + header.size, header.end_offset
        self._disk.append(target, (content[:at],))
        self._position += at

    async def _read_own(self, size: int) -> bytes:
        try:
            return await self._disk.read_later(self._source, self._position, size)
        except DiskFailed:
            return b""

    def _follows(self, header: BatchHeader, offset: int) -> bool:
        """Whether it is the batch at this offset. No checksum covers offset and epoch, so they are compared with what is known."""
        is_next = header.base_offset == offset and header.end_offset <= self._end_offset
        return is_next and header.leader_epoch == self._epochs.epoch_at(offset)


async def keep_damaged(disk: Disk, source: File, segment: Segment, directory: str, mended: Mended) -> None:
    """Keeps what was there for whoever wants to know what has happened to the disk. On a full disk it is not kept."""
    with suppress(DiskFailed):
        disk.mkdir(directory + ASIDE)
        for position, size in mended.stretches:
            content = await disk.read_later(source, position, min(size, CHUNK_BYTES))
            disk.close(write_fresh(disk, f"{directory}{ASIDE}/{segment.name}-{position}", content))
