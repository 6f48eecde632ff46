"""The stored batches that hold the records which were lent: as they lie in the log, each once, in the order of the log.

A batch is sent whole if any of its records was lent, since nothing is ever re-encoded; batches between them are left out. So records of
aborted transactions and markers, which are never lent, are mostly not sent, and where they are, no acquired range names them.
Lent records that did not fit into the reply are told apart from those that are not in the log any more.
"""

from bisect import bisect_left
from collections.abc import Sequence
from typing import NamedTuple

from penstock.log.faults import OffsetOutOfRange
from penstock.partition.partition import Partition
from penstock.settings import KIB, MIB
from penstock.vocabulary import Buffer, Offset
from penstock.wire.batches import read_header

READ_BYTES_MIN, READ_BYTES_MAX = 16 * KIB, 1 * MIB
RECORD_BYTES = 256  # A first guess, where nothing is known of the log.


class Found(NamedTuple):
    pieces: list[Buffer]
    size: int
    gone: list[int]  # Offsets at which there is no batch any more.
    unread: int  # From this one of the wanted on, by position, they did not fit.


async def read_batches(partition: Partition, wanted: Sequence[int], bytes_max: int, *, is_first: bool) -> Found:
    """The batches of these offsets, which ascend. `is_first`: one batch is read however large it is. Raises DiskFailed."""
    pieces: list[Buffer] = []
    gone: list[int] = []
    at = size = 0
    while at < len(wanted):
        left = bytes_max - size
        if left <= 0 and (pieces or not is_first):
            break
        content = await _read(partition, wanted[at], len(wanted) - at, left)
        if not content:
            gone.append(wanted[at])
            at += 1
            continue
        seen = pick(memoryview(content), wanted, at, gone)
        if seen.size > left and (pieces or not is_first):
            break
        pieces += seen.pieces
        size += seen.size
        at = seen.at
    return Found(pieces, size, gone, at)


def likely_count(partition: Partition, bytes_max: int) -> int:
    """How many records so many bytes hold, about."""
    log = partition.log
    records = log.end_offset - log.start_offset
    each = max(1, log.size_bytes // records) if records > 0 and log.size_bytes > 0 else RECORD_BYTES
    return max(1, bytes_max // each)


class Seen(NamedTuple):
    pieces: list[Buffer]
    size: int
    at: int


def pick(view: memoryview, wanted: Sequence[int], at: int, gone: list[int]) -> Seen:
    """Of whole batches those that hold a wanted offset; side by side ones stay one piece."""
    pieces: list[Buffer] = []
    position = start = size = 0
    while position < len(view) and at < len(wanted):
        header = read_header(view, position)
        end = position + header.size
        while at < len(wanted) and wanted[at] < header.base_offset:
            gone.append(wanted[at])
            at += 1
        behind = bisect_left(wanted, header.end_offset, at)
        if behind == at:
            if start < position:
                pieces.append(view[start:position])
                size += position - start
            start = end
        at, position = behind, end
    if start < position:
        pieces.append(view[start:position])
        size += position - start
    return Seen(pieces, size, at)


async def _read(partition: Partition, offset: int, count: int, bytes_max: int) -> Buffer:
    log = partition.log
    expected = max(READ_BYTES_MIN, min(count * (READ_BYTES_MIN // max(1, likely_count(partition, READ_BYTES_MIN))), READ_BYTES_MAX))
    size, end_offset = max(1, min(expected, bytes_max)), partition.last_stable_offset
    try:
        content = log.read(offset, bytes_max=size, end_offset=end_offset)
        return content if content is not None else await log.read_later(Offset(offset), bytes_max=size, end_offset=end_offset)
    except OffsetOutOfRange:
        return b""
