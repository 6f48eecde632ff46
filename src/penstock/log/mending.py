"""Replaces the damaged batches of a closed segment by those from another copy of the partition.

Replicas store batches as they came, so a good copy has the same bytes, and the batch that is fetched fits exactly where the damaged one
was. Only compaction changes that. A segment that it has made there does not fit here, and the segment cannot be mended. In one that it has
made here, whatever the other copy has of the same offsets takes the place of what cannot be read (`CompactedMending`): a record that the
other one lacks has been replaced by a later one.

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
from penstock.log.tail import Rule, find_valid_batch
from penstock.log.walking import CHUNK_BYTES, Walk
from penstock.vocabulary import Buffer
from penstock.wire.batches import HEADER_BYTES, BatchHeader, read_header
from penstock.wire.records import scan_batches

ASIDE = ".damaged"
_ANY_OFFSET = 2**63 - 1

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


class CompactedMending:
    """Writes a compacted segment anew, as one of a later generation. Its batches need not be those of the other copy: all that the other
    one has between the last good batch here and the next good one is taken."""

    def __init__(self, disk: Disk, source: File, segment: Segment, target: Segment, *, epochs: Epochs, fetch: Fetch) -> None:
        self._disk = disk
        self._source = source
        self._segment = segment
        self._target = target
        self._end_offset = target.name.end_offset
        self._epochs = epochs
        self._fetch = fetch
        self._position = 0  # Where the next batch begins here.
        self._offset = segment.base_offset  # Which it has at least.
        self.mended = Mended()

    async def write_anew(self) -> None:
        """Leaves the whole segment, flushed, under the target's temporary name; nothing at all if it raises."""
        path = self._target.path + TEMPORARY
        file = write_fresh(self._disk, path, b"")
        is_whole = False
        try:
            while self._position < self._segment.size:
                await self._copy_good(file)
                if self._position < self._segment.size:
                    await self._fetch_bad(file)
            if failures := await self._disk.sync([file]):
                raise DiskFailed(f"{failures[0][0]}: {failures[0][1]}")
            is_whole = True
        finally:
            self._disk.close(file)
            if not is_whole:
                with suppress(DiskFailed):
                    self._disk.unlink(path)

    async def _copy_good(self, file: File) -> None:
        with suppress(DiskFailed):  # Bytes that cannot be read are damaged, too.
            while True:
                walk = Walk(self._disk, self._source, self._position, self._segment.size, first_offset=self._offset, verify=True)
                chunk = await walk.next_chunk()
                taken = self._take(file, chunk.content, chunk.scan.valid_bytes, self._end_offset)
                self._position += taken
                self.mended.bytes_copied += taken
                if not taken:
                    return

    async def _fetch_bad(self, file: File) -> None:
        rule = Rule(offset_min=self._offset, epoch_max=self._epochs.latest)
        position = await find_valid_batch(self._disk, self._source, self._position + 1, self._segment.size, rule)
        end_offset = self._end_offset
        if position >= 0:
            end_offset = read_header(await self._disk.read_later(self._source, position, HEADER_BYTES)).base_offset
        if not self._offset <= end_offset <= self._end_offset:
            raise CannotMend(f"{self._segment.path}: what follows position {self._position} is not what was written")
        while self._offset < end_offset:
            content = await self._fetch(self._offset)
            scan = scan_batches(content, first_offset=self._offset, end_offset_max=_ANY_OFFSET, bytes_max=len(content))
            if not scan.batches:
                raise CannotMend(f"{self._segment.path}: the good copy has no batch that fits at offset {self._offset}")
            taken = self._take(file, content, scan.valid_bytes, end_offset)
            if taken < scan.valid_bytes:
                following = read_header(content, taken)
                if following.base_offset < end_offset:
                    raise CannotMend(f"{self._segment.path}: the good copy has another batch at offset {following.base_offset}")
                self._offset = end_offset
        if position < 0:
            position = self._segment.size
        self.mended.stretches.append((self._position, position - self._position))
        self._position = position

    def _take(self, file: File, content: Buffer, size: int, end_offset: int) -> int:
        """Writes those of the batches that end no later; returns their bytes."""
        at, index = 0, self._target.index
        assert index is not None
        while at < size:
            header = read_header(content, at)
            if header.end_offset > end_offset or header.leader_epoch != self._epochs.epoch_at(header.base_offset):
                break
            index.note(header.base_offset, self._target.size + at, header.newest_timestamp)
            at, self._offset = at + header.size, header.end_offset
        if at:
            self._disk.append(file, (memoryview(content)[:at],))
            self._target.size += at
        return at


async def keep_damaged(disk: Disk, source: File, segment: Segment, directory: str, mended: Mended) -> None:
    """Keeps what was there for whoever wants to know what has happened to the disk. On a full disk it is not kept."""
    with suppress(DiskFailed):
        disk.mkdir(directory + ASIDE)
        for position, size in mended.stretches:
            content = await disk.read_later(source, position, min(size, CHUNK_BYTES))
            disk.close(write_fresh(disk, f"{directory}{ASIDE}/{segment.name}-{position}", content))
