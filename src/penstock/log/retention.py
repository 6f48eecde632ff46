"""Which segments are too old or too many. Deciding only; `Log.delete_segments` carries it out.

Whole segments, oldest first: those below the start offset, those whose newest record is older than `retention_ms`, and those without
which the log is still at least `retention_bytes` large. Nothing at or above `end_offset_max` goes. The active segment goes only when
everything before it goes too and it has aged itself; it is closed first, so that the log goes on in an empty one.
"""

from dataclasses import dataclass

from penstock.log.config import UNLIMITED, LogConfig
from penstock.log.segment import Segment, Shelf


@dataclass(frozen=True, slots=True)
class Expired:
    """The first `segments` of the log may go. After that it starts at `start_offset`."""

    segments: tuple[Segment, ...]
    start_offset: int


def find_expired(
    shelf: Shelf, config: LogConfig, *, start_offset: int, end_offset: int, end_offset_max: int, wall_ms: int
) -> Expired | None:
    excess_bytes = shelf.size_bytes - config.retention_bytes if config.retention_bytes != UNLIMITED else -1
    taken: list[Segment] = []
    new_start = start_offset
    for place, segment in enumerate(shelf.segments):
        segment_end = shelf.end_of(place, end_offset)
        excess_bytes -= segment.size
        is_needless = segment_end <= start_offset or excess_bytes >= 0 or _is_old(shelf, place, config, wall_ms)
        is_empty = not segment.size and segment is shelf.active  # Compaction may have left nothing of one that is closed.
        if is_empty or not is_needless or segment_end > end_offset_max:
            break
        taken.append(segment)
        new_start = max(new_start, segment_end)
    return Expired(tuple(taken), new_start) if taken else None


def ages_out_ms(shelf: Shelf, config: LogConfig, *, offset: int, wall_ms: int) -> int | None:
    """In how many milliseconds the segment that holds the offset is old enough to go: negative when it is already, None when none ever is.

    At the earliest: segments go in order, so an older one with a newer record keeps it; and one that is still written to grows younger.
    """
    if config.retention_ms == UNLIMITED:
        return None
    return _newest_ms(shelf, max(0, shelf.place_of(offset)), wall_ms) + config.retention_ms - wall_ms


def _is_old(shelf: Shelf, place: int, config: LogConfig, wall_ms: int) -> bool:
    return config.retention_ms != UNLIMITED and wall_ms - _newest_ms(shelf, place, wall_ms) > config.retention_ms


def _newest_ms(shelf: Shelf, place: int, wall_ms: int) -> int:
    newest_ms = shelf.segments[place].max_timestamp
    if newest_ms < 0:  # No record has a time: it can be no newer than the segment after it.
        is_last = place + 1 == len(shelf.segments)
        newest_ms = wall_ms if is_last else shelf.segments[place + 1].opened_ms
    return newest_ms
