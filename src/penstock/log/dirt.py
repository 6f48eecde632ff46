"""How much of a log compaction has not seen to, and how far it may go. Deciding only; compaction.py does it.

Closed segments, in order, as long as all of a segment is committed, flushed, and old enough (`compaction_lag_min_ms`, by its newest
record). What lies above the *clean end* is dirty. The active segment never takes part, nor what stands before the log's start.
"""

from dataclasses import dataclass

from penstock.log.config import LogConfig
from penstock.log.segment import Segment, Shelf


@dataclass(frozen=True, slots=True)
class Dirt:
    segments: tuple[Segment, ...]  # What a round may look at, from the log's start.
    end_offset: int  # Where they end.
    clean_bytes: int
    dirty_bytes: int
    is_overdue: bool  # Some of it has waited for longer than it may.

    @property
    def ratio(self) -> float:
        return self.dirty_bytes / (self.clean_bytes + self.dirty_bytes)


def find_dirt(
    shelf: Shelf, config: LogConfig, *, start_offset: int, clean_end: int, log_end: int, end_offset_max: int, wall_ms: int
) -> Dirt | None:
    """None where there is nothing that compaction could do."""
    first = max(0, shelf.place_of(start_offset))
    taken: list[Segment] = []
    end_offset, clean_bytes, dirty_bytes, is_overdue = start_offset, 0, 0, False
    for place in range(first, len(shelf.segments) - 1):
        segment, segment_end = shelf.segments[place], shelf.end_of(place, log_end)
        is_dirty = segment_end > clean_end
        is_young = is_dirty and config.compaction_lag_min_ms > 0 and segment.max_timestamp > wall_ms - config.compaction_lag_min_ms
        if segment_end > end_offset_max or is_young:
            break
        taken.append(segment)
        end_offset = segment_end
        if is_dirty:
            dirty_bytes += segment.size
            is_overdue |= segment.size > 0 and wall_ms - segment.opened_ms > config.compaction_lag_max_ms
        else:
            clean_bytes += segment.size
    return Dirt(tuple(taken), end_offset, clean_bytes, dirty_bytes, is_overdue) if dirty_bytes else None
