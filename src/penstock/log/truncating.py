"""Cutting the end off a log, for a follower whose leader never had it."""

from typing import NamedTuple

from penstock.env import Disk, File
from penstock.errors import DiskFailed
from penstock.log.checkpoint import CHECKPOINT, PREVIOUS
from penstock.log.faults import LogDamaged
from penstock.log.index import SparseIndex
from penstock.log.segment import DROPPED, Segment
from penstock.log.walking import Walk


class Cut(NamedTuple):
    position: int
    end_offset: int
    index_left: SparseIndex  # Of what is left of the segment.


async def find_cut(disk: Disk, file: File, segment: Segment, index: SparseIndex, offset: int) -> Cut:
    """Where the batch that holds the offset begins. The index is made again from its last whole stretch on."""
    entry = index.find(offset)
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
            kept.note(header.base_offset, at, header.max_timestamp)
            end_offset = header.end_offset
    raise LogDamaged(f"{segment.path}: the batch at position {walk.position} is not what was written")


async def forget_checkpoints(disk: Disk, directory: str) -> None:
    """They claim what is about to be cut."""
    for name in (CHECKPOINT, PREVIOUS):
        disk.unlink(f"{directory}/{name}")
    failures = await disk.sync((), [directory])
    if failures:
        raise DiskFailed(f"{failures[0][0]}: {failures[0][1]}")


def drop_file(disk: Disk, segment: Segment) -> None:
    disk.rename(segment.path, segment.path + DROPPED)
    disk.unlink(segment.path + DROPPED)
    disk.unlink(segment.index_path)
