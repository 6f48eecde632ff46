"""One file of batches, and the shelf on which a log keeps them in order.

A segment is named by the offset of its first batch. The last one on the shelf is *active*: appends go there. The others are closed and
never change. A closed segment's end offset is the next one's base offset.
"""

from bisect import bisect_right

from penstock.log.index import NO_TIMESTAMP, SparseIndex

BATCHES = ".log"
INDEX = ".index"
DELETED = ".deleted"  # Retention is done with it and with every segment before it.
DROPPED = ".dropped"  # Cut off the end.

_NAME_DIGITS = 20


class Segment:
    __slots__ = ("base_offset", "closed_max_timestamp", "index", "opened_ms", "path", "size")

    def __init__(self, directory: str, base_offset: int, opened_ms: int, index: SparseIndex | None) -> None:
        self.base_offset = base_offset
        self.path = f"{directory}/{base_offset:0{_NAME_DIGITS}}{BATCHES}"
        self.size = 0  # Bytes of whole batches. The file may be longer for a moment, after a write that failed.
        self.opened_ms = opened_ms  # When its first batch could have come, by the wall clock.
        self.index = index  # None: on the disk, if anywhere.
        self.closed_max_timestamp = NO_TIMESTAMP  # Right once the segment is closed.

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


def base_offset_of(name: str, suffix: str = BATCHES) -> int | None:
    """The base offset in a file's name; None when it is not such a name."""
    digits = name.removesuffix(suffix)
    is_ours = name.endswith(suffix) and len(digits) == _NAME_DIGITS and digits.isascii() and digits.isdigit()
    return int(digits) if is_ours else None


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
