"""The index of a closed segment, as a file beside it.

A cache: written some time after the segment was closed, believed only if its checksum, owner, segment and size are right, and made anew
from the batches otherwise.
"""

from struct import Struct, error

from penstock.env import Disk, File
from penstock.errors import DiskFailed, ReadFailed
from penstock.log.config import LogIdentity
from penstock.log.index import ANY_TIMESTAMP, SparseIndex
from penstock.log.segment import Segment
from penstock.log.small_files import seal, unseal, write_fresh
from penstock.log.tail import Rule, find_valid_batch
from penstock.log.walking import Walk
from penstock.wire.batches import HEADER_BYTES, read_header

VERSION = 1

_KIND = b"pnstk-ix"
_HEAD = Struct("<16siqq")  # topic id, partition, base offset, bytes of the segment


def save(disk: Disk, segment: Segment, index: SparseIndex, identity: LogIdentity) -> File:
    """Writes the index of a closed segment; the open file is the caller's to flush, if it likes, and to close."""
    head = _HEAD.pack(identity.topic_id, identity.partition, segment.base_offset, segment.size)
    return write_fresh(disk, segment.index_path, seal(_KIND, VERSION, head + index.encode()))


def save_if_possible(disk: Disk, segment: Segment, index: SparseIndex, identity: LogIdentity) -> bool:
    """Without room on the disk nothing is lost but time."""
    try:
        disk.close(save(disk, segment, index, identity))
    except DiskFailed:
        return False
    return True


async def load(disk: Disk, segment: Segment, identity: LogIdentity) -> SparseIndex | None:
    """The saved index; None when there is none to believe."""
    body = unseal(await _read(disk, segment.index_path), _KIND, VERSION, segment.index_path)
    if body is None:
        return None
    try:
        owner = _HEAD.unpack_from(body)
        index, end = SparseIndex.decode(body, _HEAD.size)
    except (error, ValueError):
        return None
    is_ours = owner == (identity.topic_id, identity.partition, segment.base_offset, segment.size)
    return index if is_ours and end == len(body) else None


async def rebuild(disk: Disk, file: File, segment: Segment, interval_bytes: int, *, gaps: bool) -> SparseIndex:
    """Makes the index anew from the batches. Where they cannot be followed, it goes on at the next one that is whole."""
    index = SparseIndex(interval_bytes)
    position, offset = 0, segment.base_offset
    while 0 <= position < segment.size:
        walk = Walk(disk, file, position, segment.size, first_offset=offset, verify=True)
        position, offset = await _follow(walk, index, gaps=gaps)
        if position < segment.size:
            if index.times:
                index.times[-1] = ANY_TIMESTAMP
            position = await find_valid_batch(disk, file, position + 1, segment.size, Rule(offset_min=offset))
            offset = read_header(await disk.read_later(file, position, HEADER_BYTES)).base_offset if position >= 0 else offset
    return index


async def _follow(walk: Walk, index: SparseIndex, *, gaps: bool) -> tuple[int, int]:
    """Notes the batches that follow each other; returns where that ends. No entry may vouch for an offset that changed on the disk."""
    position, offset = walk.position, walk.offset
    while (chunk := await walk.next_chunk()).scan.batches:
        for at, header in chunk.headers():
            if header.base_offset != offset and not gaps:
                return at, offset
            index.note(header.base_offset, at, header.newest_timestamp)
            position, offset = at + header.size, header.end_offset
    return position, offset


async def _read(disk: Disk, path: str) -> bytes:
    try:
        file = disk.open(path)
    except FileNotFoundError:
        return b""
    try:
        return await disk.read_later(file, 0, disk.size(file))
    except ReadFailed:
        return b""
    finally:
        disk.close(file)
