"""What a log remembers so that a start need not read it all: a cache, except for the start offset, which nothing else knows.

A checkpoint stands for everything below its end offset, is written only once all of that is flushed, and carries beside the log's own
facts some bytes of its owner (`extra`: what the owner would otherwise have to replay from the first batch).
Two are kept. The older one serves when the newer one is damaged.

Before a log is cut, its checkpoints are replaced by one that says only where the log starts (`encode_start`): all else that they claim may
go, and a start that was moved by request is in no other file.
What it lists of segments may be older than a swap of compaction: the names in the directory tell (recovery.py).
Format 2 has names of compacted segments and how far compaction came; format 1 is read as if there were none. Format 3 is laid out like 2:
the owner's bytes may tell of transactions, and who does not know of those must not open the log.
"""

from dataclasses import dataclass
from struct import Struct, error

from penstock.env import Disk, File
from penstock.errors import DiskFull, OutOfHandles
from penstock.log import index_files
from penstock.log.config import LogIdentity
from penstock.log.epochs import Epochs
from penstock.log.index import SparseIndex
from penstock.log.segment import NO_END, Segment, SegmentName, Shelf
from penstock.log.small_files import read_whole, replace_file, seal, unseal, version_of

CHECKPOINT = "checkpoint"
PREVIOUS = "checkpoint.previous"
VERSION = 3

_KIND = b"pnstk-cp"
_HEAD = Struct("<16siqqqqI")  # topic id, partition, start offset, end offset, gaps below, clean end, segments
_SEGMENT = Struct("<qqqqqI")  # base offset, bytes, highest timestamp, opened at, end offset and generation of a compacted one
_HEAD_1 = Struct("<16siqqqI")  # In format 1: without clean end.
_SEGMENT_1 = Struct("<qqqq")
_EXTRA = Struct("<I")


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """Captured at one moment, to be written later."""

    number: int  # In the order of capture: an older one never replaces a newer one.
    end_offset: int
    start_offset: int
    last_base: int  # Of the segment that was active.
    appended_bytes: int
    extra_bytes: int
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
    clean_end: int = 0
    is_newest: bool = True  # False: a newer one was there and cannot be read.

    @property
    def says_only_start(self) -> bool:
        """Whether it was left by a cut, and tells where the log starts and nothing else."""
        return self.end_offset == NO_END


def capture(
    number: int, identity: LogIdentity, shelf: Shelf, epochs: Epochs,
    *, start_offset: int, end_offset: int, gaps_below: int, clean_end: int, appended_bytes: int, extra: bytes,
) -> Checkpoint:  # fmt: skip
    # Segments wholly below the start are on their way out; a start must not miss them.
    segments = shelf.segments[shelf.place_of(start_offset) :]
    content = encode(identity, Remembered(start_offset, end_offset, gaps_below, segments, epochs, extra, clean_end))
    return Checkpoint(number, end_offset, start_offset, shelf.active.base_offset, appended_bytes, len(extra), content)


def encode_start(identity: LogIdentity, start_offset: int) -> bytes:
    """A checkpoint that tells where the log starts and nothing else."""
    return encode(identity, Remembered(start_offset, NO_END, 0, [], Epochs(), b""))


def encode(identity: LogIdentity, remembered: Remembered) -> bytes:
    segments, extra = remembered.segments, remembered.extra
    head = _HEAD.pack(
        identity.topic_id, identity.partition, remembered.start_offset, remembered.end_offset, remembered.gaps_below, remembered.clean_end,
        len(segments),
    )  # fmt: skip
    rows = [_SEGMENT.pack(each.base_offset, each.size, each.max_timestamp, each.opened_ms, *each.name[1:]) for each in segments]
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
        return _read(body, directory, identity, is_first_format=version_of(content) == 1)
    except (error, ValueError):
        return None


def _read(body: memoryview, directory: str, identity: LogIdentity, *, is_first_format: bool) -> Remembered | None:
    head, row = (_HEAD_1, _SEGMENT_1) if is_first_format else (_HEAD, _SEGMENT)
    topic_id, partition, start_offset, end_offset, gaps_below, *clean_end, count = head.unpack_from(body)
    if (topic_id, partition) != (identity.topic_id, identity.partition):
        return None
    at = head.size + count * row.size
    segments = [_segment(directory, row.unpack_from(body, head.size + number * row.size)) for number in range(count)]
    epochs, at = Epochs.decode(body, at)
    index, at = SparseIndex.decode(body, at)
    if segments:
        segments[-1].index = index
    (extra_bytes,) = _EXTRA.unpack_from(body, at)
    extra = bytes(body[at + _EXTRA.size :])
    if extra_bytes != len(extra):
        return None
    return Remembered(start_offset, end_offset, gaps_below, segments, epochs, extra, *clean_end)


def _segment(directory: str, row: tuple[int, ...]) -> Segment:
    base_offset, size, max_timestamp, opened_ms, *compacted = row
    segment = Segment(directory, SegmentName(base_offset, *compacted), opened_ms, None)
    segment.size = size
    segment.closed_max_timestamp = max_timestamp
    return segment
