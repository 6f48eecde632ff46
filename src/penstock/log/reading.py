"""Reads of whole batches from one segment, every byte of them checked before it is served.

A batch's checksum does not cover the first 21 bytes of its header. What vouches for them: the format must be 2; a wrong length or
checksum field makes the checksum fail; offsets must follow each other without a gap, starting from an offset that the index or an earlier
read has vouched for; the leader epoch must be the one that the log's history has for the offset.

`take_batches` is one story for reads that may wait and reads that may not: a generator that asks for bytes (position, size), is sent
them, and returns batches. It runs once per fetch and partition, so it makes no object per batch.
"""

from collections.abc import Generator
from functools import partial

from penstock.log.epochs import Epochs
from penstock.log.faults import LogDamaged
from penstock.vocabulary import Buffer
from penstock.wire.batches import HEADER_BYTES, MAGIC, crc_is_right, read_header
from penstock.wire.records import scan_batches

Asks = Generator[tuple[int, int], bytes, tuple[Buffer, int, int]]


def take_batches(
    path: str, offset: int, *, position: int, known_offset: int, seek_bytes: int, segment_size: int,
    bytes_max: int, end_offset: int, epochs: Epochs, gaps: bool,
) -> Asks:  # fmt: skip
    """Asks for what it needs, then returns (batches, their end offset, the position after them).

    At `position` begins the batch with `known_offset`; the one that holds `offset` begins there or less than `seek_bytes` further on.
    Nothing is returned past `end_offset`, nor past the offset's leader epoch. The first batch is returned even if it is larger than
    `bytes_max`. With `gaps`, offsets may be missing between batches.
    """
    wanted = seek_bytes + max(bytes_max, HEADER_BYTES)
    content = yield position, min(wanted, segment_size - position)
    at = 0
    if offset != known_offset:
        # Damage on the way is found where it matters: the batch that this leads to must begin with the offset that was reached.
        sought = scan_batches(content, first_offset=known_offset, end_offset_max=offset, bytes_max=len(content), verify=False)
        at = sought.valid_bytes
        known_offset = sought.end_offset
    if gaps and position + at == segment_size:
        return b"", known_offset, segment_size  # Compaction left nothing at or after the offset in this segment.
    epoch = epochs.epoch_at(_base_offset(content, at, offset) if gaps else offset)
    follow = partial(scan_batches, first_offset=known_offset, end_offset_max=end_offset, is_dense=not gaps, leader_epoch=epoch)
    scan = follow(content, start=at, bytes_max=bytes_max)
    if not scan.batches and len(content) - at >= HEADER_BYTES and (size := read_header(content, at).size) > len(content) - at:
        position, at = position + at, 0
        if size > segment_size - position:
            raise LogDamaged(f"{path}: the batch at position {position} claims to end past its segment")
        content = yield position, size
        scan = follow(content, bytes_max=size)
    if not scan.batches:
        if not _is_just_too_late(content, at, None if gaps else known_offset, end_offset):
            raise LogDamaged(f"{path}: the batch at position {position + at} is not what was written")
        return b"", known_offset, position + at
    end = at + scan.valid_bytes
    return content if not at and end == len(content) else memoryview(content)[at:end], scan.end_offset, position + end


def _base_offset(content: bytes, at: int, unknown: int) -> int:
    return read_header(content, at).base_offset if len(content) - at >= HEADER_BYTES else unknown


def _is_just_too_late(content: bytes, at: int, offset: int | None, end_offset: int) -> bool:
    """Whether nothing could be taken for a good reason: a whole batch that reaches past the reader's end."""
    if len(content) - at < HEADER_BYTES:
        return False
    header = read_header(content, at)
    return (
        header.end_offset > end_offset
        and (offset is None or offset == header.base_offset)
        and header.magic == MAGIC
        and crc_is_right(content, at, header.size)
    )
