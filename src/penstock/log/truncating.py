"""Cutting the end off a log, for a follower whose leader never had it."""

from collections.abc import Sequence
from typing import NamedTuple

from penstock.env import Disk, File
from penstock.errors import DiskFailed, DiskFull
from penstock.log.checkpoint import CHECKPOINT, PREVIOUS, encode_start
from penstock.log.config import LogIdentity
from penstock.log.faults import LogDamaged
from penstock.log.index import SparseIndex
from penstock.log.segment import DROPPED, Segment
from penstock.log.small_files import TEMPORARY, overwrite_file, write_fresh
from penstock.log.walking import CHUNK_BYTES, Walk


class Cut(NamedTuple):
    position: int
    end_offset: int
    index_left: SparseIndex  # Of what is left of the segment.


async def find_cut(disk: Disk, file: File, segment: Segment, index: SparseIndex, offset: int) -> Cut:
    """Where the batch that holds the offset begins. The index is made again from its last whole stretch on."""
    entry = index.find(offset)
    if entry < 0 and segment.name.is_compacted:
        return Cut(0, segment.base_offset, SparseIndex(index.interval_bytes))  # Compaction took what stood before the first batch.
    if entry < 0:
        raise LogDamaged(f"{segment.path}: the batches before offset {offset} cannot be followed")
    position, end_offset = index.positions[entry], index.offsets[entry]
    kept = SparseIndex.decode(index.encode())[0]
    kept.cut(position)
    walk = Walk(disk, file, position, segment.size, first_offset=end_offset, verify=True)
    while (chunk := await walk.next_chunk()).scan.batches:
        for at, header in chunk.headers():
            if header.end_offset > offset:
                return Cut(at, end_offset, kept)
            kept.note(header.base_offset, at, header.newest_timestamp)
            end_offset = header.end_offset
    if segment.name.is_compacted and walk.position == segment.size:
        return Cut(segment.size, end_offset, kept)  # Compaction took what stood at the offset, and all after it.
    raise LogDamaged(f"{segment.path}: the batch at position {walk.position} is not what was written")


async def copy_front(disk: Disk, source: File, size: int, target: Segment) -> None:
    """Makes what stays of a compacted segment a segment of its own: its name tells where it ends, so it cannot be cut where it is.

    The caller flushes the name, before it drops the old one.
    """
    copy = write_fresh(disk, target.path + TEMPORARY, b"")
    try:
        for position in range(0, size, CHUNK_BYTES):
            disk.append(copy, (await disk.read_later(source, position, min(CHUNK_BYTES, size - position)),))
        failures = await disk.sync([copy])
    finally:
        disk.close(copy)
    if failures:
        raise DiskFailed(f"{failures[0][0]}: {failures[0][1]}")
    disk.rename(target.path + TEMPORARY, target.path)


async def forget_checkpoints(disk: Disk, directory: str) -> None:
    """They claim what is about to be cut."""
    for name in (CHECKPOINT, PREVIOUS):
        disk.unlink(f"{directory}/{name}")
    failures = await disk.sync((), [directory])
    if failures:
        raise DiskFailed(f"{failures[0][0]}: {failures[0][1]}")


async def keep_only_start(disk: Disk, directory: str, identity: LogIdentity, *, start_offset: int, first_base: int) -> None:
    """Replaces the checkpoints by one that says only where the log starts; where the files tell that, by none. Raises DiskFull with nothing
    changed but that the older checkpoint may be gone."""
    if start_offset <= first_base:
        await forget_checkpoints(disk, directory)
        return
    content = encode_start(identity, start_offset)
    try:
        await overwrite_file(disk, directory, CHECKPOINT, content)
    except DiskFull:
        disk.unlink(f"{directory}/{PREVIOUS}")
        await overwrite_file(disk, directory, CHECKPOINT, content)
    disk.unlink(f"{directory}/{PREVIOUS}")
    if failures := await disk.sync((), [directory]):
        raise DiskFailed(f"{failures[0][0]}: {failures[0][1]}")


async def empty(disk: Disk, files: Sequence[File]) -> None:
    """Takes all bytes of these files, durably, before their names go: if the names come back, because their removal was never flushed, no
    batch comes back with them."""
    for file in files:
        disk.truncate(file, 0)
    if files and (failures := await disk.sync(files)):
        raise DiskFailed(f"{failures[0][0]}: {failures[0][1]}")


def drop_file(disk: Disk, segment: Segment) -> None:
    if disk.exists(segment.path):  # A segment in which nothing was written yet may have none.
        disk.rename(segment.path, segment.path + DROPPED)
        disk.unlink(segment.path + DROPPED)
    disk.unlink(segment.index_path)
