"""One file of batches, and the shelf on which a log keeps them in order.

A segment is named by the offset of its first batch. The last one on the shelf is *active*: appends go there. The others are closed and
never change. A closed segment's end offset is the next one's base offset.

Compaction replaces closed segments by a *compacted* one. Its name tells what it stands for: all offsets from its base to its end, and its
generation, which no other file of the log ever had. Where two files stand for the same offsets, the later generation holds (`standing`).
So one rename puts a compacted segment in the place of many, whatever else a crash leaves in the directory.
"""

from bisect import bisect_right
from collections.abc import Iterable
from typing import NamedTuple

from penstock.log.index import NO_TIMESTAMP, SparseIndex

BATCHES = ".log"
INDEX = ".index"
DELETED = ".deleted"  # Retention is done with it and with every segment before it.
DROPPED = ".dropped"  # Cut off the end.

NO_END = -1

_NAME_DIGITS = 20
_GENERATION_DIGITS = 8


class SegmentName(NamedTuple):
    base_offset: int
    end_offset: int = NO_END  # Of a compacted one.
    generation: int = 0  # From 1 for compacted ones, and never the same twice.

    @property
    def is_compacted(self) -> bool:
        return self.generation > 0

    def holds(self, offset: int) -> bool:
        """Whether a compacted segment stands for the offset."""
        return self.base_offset <= offset < self.end_offset

    def replaces(self, other: "SegmentName") -> bool:
        """Whether the other one is no longer needed because this one is there."""
        return self.generation > other.generation and (self.holds(other.base_offset) or other.holds(self.base_offset))

    def cut(self, end_offset: int, generation: int) -> "SegmentName":
        return SegmentName(self.base_offset, end_offset, generation)

    def __str__(self) -> str:
        base = f"{self.base_offset:0{_NAME_DIGITS}}"
        return f"{base}-{self.end_offset:0{_NAME_DIGITS}}-{self.generation:0{_GENERATION_DIGITS}}" if self.is_compacted else base


class Segment:
    __slots__ = ("base_offset", "closed_max_timestamp", "index", "is_replaced", "name", "opened_ms", "path", "size")

    def __init__(self, directory: str, name: SegmentName | int, opened_ms: int, index: SparseIndex | None) -> None:
        self.name = name if isinstance(name, SegmentName) else SegmentName(name)
        self.base_offset = self.name.base_offset
        self.path = f"{directory}/{self.name}{BATCHES}"
        self.size = 0  # Bytes of whole batches. The file may be longer for a moment, after a write that failed.
        self.opened_ms = opened_ms  # When its first batch could have come, by the wall clock.
        self.index = index  # None: on the disk, if anywhere.
        self.closed_max_timestamp = NO_TIMESTAMP  # Right once the segment is closed.
        self.is_replaced = False  # By a compacted one: it is on the shelf no more, though somebody may still read it.

    @property
    def max_timestamp(self) -> int:
        """The newest record's; `NO_TIMESTAMP` when none has one."""
        return self.closed_max_timestamp if self.index is None else self.index.max_timestamp()

    def let_index_go(self) -> None:
        """The segment is closed and its index is in a file."""
        self.closed_max_timestamp = self.max_timestamp
        self.index = None

    @property
    def index_path(self) -> str:
        return self.path.removesuffix(BATCHES) + INDEX


def segment_name(file_name: str, suffix: str = BATCHES) -> SegmentName | None:
    """What a file's name says of its segment; None when it is not such a name."""
    parts = file_name.removesuffix(suffix).split("-")
    if not file_name.endswith(suffix) or len(parts) not in (1, 3) or not all(part.isascii() and part.isdigit() for part in parts):
        return None
    name = SegmentName(*map(int, parts))
    return name if str(name) + suffix == file_name else None


def standing(names: Iterable[SegmentName]) -> tuple[list[SegmentName], list[SegmentName]]:
    """Those that hold, in order of offsets, and those that others have replaced. What was replaced itself replaces nothing."""
    kept: list[SegmentName] = []
    replaced: list[SegmentName] = []
    for name in sorted(names, key=lambda name: -name.generation):
        (replaced if any(later.replaces(name) for later in kept if later.is_compacted) else kept).append(name)
    return sorted(kept), replaced


class Shelf:
    """Never empty: a log in which nothing was written has an active segment without a file."""

    __slots__ = ("_bases", "active", "segments")

    def __init__(self, segments: list[Segment]) -> None:
        self.segments = segments
        self._bases = [segment.base_offset for segment in segments]
        self.active = segments[-1]

    def add(self, segment: Segment) -> None:
        self.segments.append(segment)
        self._bases.append(segment.base_offset)
        self.active = segment

    def place_of(self, offset: int) -> int:
        """Which segment holds the offset."""
        return bisect_right(self._bases, offset) - 1

    def holding(self, offset: int) -> Segment:
        return self.segments[bisect_right(self._bases, offset) - 1]

    def end_of(self, place: int, log_end: int) -> int:
        """The end offset of the segment at this place."""
        return self._bases[place + 1] if place + 1 < len(self._bases) else log_end

    def replace(self, place: int, count: int, compacted: Segment) -> list[Segment]:
        """Puts a compacted segment in the place of so many closed ones."""
        replaced = self.segments[place : place + count]
        self.segments[place : place + count] = [compacted]
        self._bases[place : place + count] = [compacted.base_offset]
        for segment in replaced:
            segment.is_replaced = True
        return replaced

    def cut_off_last(self, front: list[Segment], active: Segment) -> None:
        """Puts what stays of the last segment, and an active one after it, in its place."""
        self.segments[-1:] = [*front, active]
        self._bases[-1:] = [segment.base_offset for segment in (*front, active)]
        self.active = active

    def begin_again(self, fresh: Segment) -> list[Segment]:
        """Leaves nothing on the shelf but this one; returns the others that stood there."""
        going = [segment for segment in self.segments if segment is not fresh]
        self.segments[:], self._bases[:], self.active = [fresh], [fresh.base_offset], fresh
        return going

    def remove_first(self, count: int) -> list[Segment]:
        return self._remove(slice(0, count))

    def remove_from(self, place: int) -> list[Segment]:
        return self._remove(slice(place, None))

    def _remove(self, places: slice) -> list[Segment]:
        removed = self.segments[places]
        del self.segments[places]
        del self._bases[places]
        self.active = self.segments[-1]
        return removed

    def closed_with_index(self) -> list[Segment]:
        """Closed segments whose index is in no file yet."""
        return [segment for segment in self.segments[:-1] if segment.index is not None]

    @property
    def size_bytes(self) -> int:
        return sum(segment.size for segment in self.segments)
