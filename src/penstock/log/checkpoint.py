"""What a log remembers so that a start need not read it all: a cache, except for the start offset, which nothing else knows.

A checkpoint stands for everything below its end offset, is written only once all of that is flushed, and carries beside the log's own
facts some bytes of its owner (`extra`: what the owner would otherwise have to replay from the first batch).
Two are kept. The older one serves when the newer one is damaged.
"""

from dataclasses import dataclass
from struct import Struct, error

from penstock.env import Disk, File
from penstock.errors import DiskFull, OutOfHandles
from penstock.log import index_files
from penstock.log.config import LogIdentity
from penstock.log.epochs import Epochs
from penstock.log.index import SparseIndex
from penstock.log.segment import Segment, Shelf
from penstock.log.small_files import read_whole, replace_file, seal, unseal

CHECKPOINT = "checkpoint"
PREVIOUS = "checkpoint.previous"
VERSION = 1

_KIND = b"pnstk-cp"
_HEAD = Struct("<16siqqqI")  # topic id, partition, start offset, end offset, gaps below, segments
_SEGMENT = Struct("<qqqq")  # base offset, bytes, highest timestamp, opened at
_EXTRA = Struct("<I")


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """Captured at one moment, to be written later."""

    number: int  # In the order of capture: an older one never replaces a newer one.
    end_offset: int
    start_offset: int
    appended_bytes: int
    content: bytes


@dataclass(slots=True)
class Remembered:
    """A checkpoint as it was found."""

    start_offset: int
    end_offset: int
    gaps_below: int
    segments: list[Segment]  # The last one was active; its size is where the scan goes on.
    epochs: Epochs
    extra: bytes
    is_newest: bool = True  # False: a newer one was there and cannot be read.


def capture(
    number: int, identity: LogIdentity, shelf: Shelf, epochs: Epochs,
    *, start_offset: int, end_offset: int, gaps_below: int, appended_bytes: int, extra: bytes,
) -> Checkpoint:  # fmt: skip
    # Segments wholly below the start are on their way out; a start must not miss them.
    segments = shelf.segments[shelf.place_of(start_offset) :]
    content = encode(identity, Remembered(start_offset, end_offset, gaps_below, segments, epochs, extra))
    return Checkpoint(number, end_offset, start_offset, appended_bytes, content)


def encode(identity: LogIdentity, remembered: Remembered) -> bytes:
    segments, extra = remembered.segments, remembered.extra
    head = _HEAD.pack(
        identity.topic_id, identity.partition, remembered.start_offset, remembered.end_offset, remembered.gaps_below, len(segments)
    )
    rows = [_SEGMENT.pack(segment.base_offset, segment.size, segment.max_timestamp, segment.opened_ms) for segment in segments]
    index = (segments[-1].index if segments else None) or SparseIndex(1)
    return seal(_KIND, VERSION, b"".join((head, *rows, remembered.epochs.encode(), index.encode(), _EXTRA.pack(len(extra)), extra)))


async def write(disk: Disk, directory: str, identity: LogIdentity, content: bytes, closed: list[Segment]) -> None:
    """Replaces the checkpoint, and writes the indexes of closed segments in the same flush."""
    saved = [(segment, file) for segment in closed if (file := _save_index(disk, segment, identity)) is not None]
    files = [file for _, file in saved]
    try:
        try:
            await replace_file(disk, directory, CHECKPOINT, content, previous=PREVIOUS, also=files)
        except OutOfHandles:
            raise
        except DiskFull:
            disk.unlink(f"{directory}/{PREVIOUS}")  # A full disk may need this very checkpoint for retention to free any room.
            await replace_file(disk, directory, CHECKPOINT, content, previous=PREVIOUS, also=files)
    finally:
        for file in files:
            disk.close(file)
    for segment, _ in saved:
        segment.let_index_go()


def _save_index(disk: Disk, segment: Segment, identity: LogIdentity) -> File | None:
    try:
        return index_files.save(disk, segment, segment.index, identity) if segment.index is not None else None
    except DiskFull:
        return None


def load(disk: Disk, directory: str, identity: LogIdentity, names: list[str]) -> Remembered | None:
    """The newest checkpoint that can be believed. A damaged or foreign one is removed, lest it be kept as the previous one."""
    for name in (CHECKPOINT, PREVIOUS):
        if name not in names:
            continue
        path = f"{directory}/{name}"
        remembered = _decode(read_whole(disk, path) or b"", directory, identity, path)
        if remembered is not None:
            remembered.is_newest = name == CHECKPOINT
            return remembered
        disk.unlink(path)
    return None


def _decode(content: bytes, directory: str, identity: LogIdentity, path: str) -> Remembered | None:
    body = unseal(content, _KIND, VERSION, path)
    if body is None:
        return None
    try:
        return _read(body, directory, identity)
    except (error, ValueError):
        return None


def _read(body: memoryview, directory: str, identity: LogIdentity) -> Remembered | None:
    topic_id, partition, start_offset, end_offset, gaps_below, count = _HEAD.unpack_from(body)
    if (topic_id, partition) != (identity.topic_id, identity.partition):
        return None
    at = _HEAD.size + count * _SEGMENT.size
    segments = [_read_segment(body, _HEAD.size + number * _SEGMENT.size, directory) for number in range(count)]
    epochs, at = Epochs.decode(body, at)
    index, at = SparseIndex.decode(body, at)
    if segments:
        segments[-1].index = index
    (extra_bytes,) = _EXTRA.unpack_from(body, at)
    extra = bytes(body[at + _EXTRA.size :])
    if extra_bytes != len(extra):
        return None
    return Remembered(start_offset, end_offset, gaps_below, segments, epochs, extra)


def _read_segment(body: memoryview, at: int, directory: str) -> Segment:
    base_offset, size, max_timestamp, opened_ms = _SEGMENT.unpack_from(body, at)
    segment = Segment(directory, base_offset, opened_ms, None)
    segment.size = size
    segment.closed_max_timestamp = max_timestamp
    return segment
