"""The stored batches that hold the records which were lent: as they lie in the log, each once, in the order of the log.

A batch is sent whole if any of its records was lent, since nothing is ever re-encoded; batches between them are left out. So records of
aborted transactions and markers, which are never lent, are mostly not sent, and where they are, no acquired range names them.
Lent records that did not fit into the reply are told apart from those that are not in the log any more.
"""

from bisect import bisect_left
from collections.abc import Generator, Sequence
from typing import NamedTuple

from penstock.broker.queues.leading import QueuePartition
from penstock.partition.partition import Partition
from penstock.settings import KIB, MIB
from penstock.vocabulary import Buffer
from penstock.wire.batches import read_header

READ_BYTES_MIN, READ_BYTES_MAX = 16 * KIB, 1 * MIB
READ_ALL = 1 << 62
RECORD_BYTES = 256  # A first guess, where nothing is known of the log.


class Found(NamedTuple):
    pieces: list[Buffer]
    size: int
    gone: list[int]  # Offsets at which there is no batch any more.
    unread: int  # From this one of the wanted on, by position, they did not fit.


Asks = Generator[tuple[int, int], Buffer, Found]


async def read_batches(queue: QueuePartition, wanted: Sequence[int], bytes_max: int, *, is_first: bool) -> Found:
    """The batches of these offsets, which ascend. `is_first`: one batch is read however large it is. Raises DiskFailed."""
    stored, reading = queue.stored, _gather(queue.data, wanted, bytes_max, is_first=is_first)
    try:
        offset, size = next(reading)
        while True:
            content = stored.at_hand(offset, size)
            offset, size = reading.send(await stored.read_later(offset, size) if content is None else content)
    except StopIteration as done:
        found: Found = done.value
        return found


def batches_at_hand(queue: QueuePartition, wanted: Sequence[int], bytes_max: int) -> Found | None:
    """The same for the first of a reply, at once. None: some of it must wait for the disk. Raises DiskFailed."""
    stored, reading = queue.stored, _gather(queue.data, wanted, bytes_max, is_first=True)
    try:
        asked = next(reading)
        while (content := stored.at_hand(*asked)) is not None:
            asked = reading.send(content)
    except StopIteration as done:
        found: Found = done.value
        return found
    return None


def _gather(partition: Partition, wanted: Sequence[int], bytes_max: int, *, is_first: bool) -> Asks:
    """Asks for about so many bytes of batches from an offset on, is sent them, or nothing where there are none any more."""
    pieces: list[Buffer] = []
    gone: list[int] = []
    at = size = 0
    while at < len(wanted):
        left = bytes_max - size
        if left <= 0 and (pieces or not is_first):
            break
        content = yield wanted[at], max(1, min(_likely_bytes(partition, len(wanted) - at), left))
        if not content:
            gone.append(wanted[at])
            at += 1
            continue
        seen = pick(memoryview(content), wanted, at, gone, left)
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


def pick(view: memoryview, wanted: Sequence[int], at: int, gone: list[int], bytes_max: int = READ_ALL) -> Seen:
    """Of whole batches those that hold a wanted offset, up to so many bytes, but at least one; side by side ones stay one piece."""
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
            start = end
        elif size and size + header.size > bytes_max:
            break
        else:
            size += header.size
        at, position = behind, end
    if start < position:
        pieces.append(view[start:position])
    return Seen(pieces, size, at)


def _likely_bytes(partition: Partition, count: int) -> int:
    return max(READ_BYTES_MIN, min(count * (READ_BYTES_MIN // likely_count(partition, READ_BYTES_MIN)), READ_BYTES_MAX))
