"""What opening a log has found so far."""

from dataclasses import dataclass, field

from penstock.log.epochs import Epochs
from penstock.log.segment import Segment


@dataclass(slots=True)
class Report:
    """How a start went, for the node's own log."""

    scanned_bytes: int = 0
    scanned_batches: int = 0
    cut_bytes: int = 0
    notes: list[str] = field(default_factory=list)
    is_end_lost: bool = False  # Of a log that was on this disk up to a later offset. All that is left of it can be read.


@dataclass(slots=True)
class Found:
    start_offset: int = 0
    end_offset: int = 0
    gaps_below: int = 0  # Below this offset compaction may have left gaps between batches.
    clean_end: int = 0  # Compaction has seen to everything below this.
    segments: list[Segment] = field(default_factory=list)
    epochs: Epochs = field(default_factory=Epochs)
    report: Report = field(default_factory=Report)
    failure: str | None = None
    checkpoint_bases: tuple[int, ...] = ()  # Base offsets of the segments that the checkpoint lists.
    checkpoint_end: int = -1
    generation: int = 0  # The highest of any compacted segment in the directory, also of those that are gone now.
    lists_replaced: bool = False  # The checkpoint on the disk lists segments that compaction has replaced.
    is_start_known: bool = True  # By a checkpoint. False: the log begins where the files do, and some before them may be lost.
    is_saved: bool = False  # The checkpoint on the disk says all of this.
    lacks_directory: bool = False  # A full disk had no room for it.

    @property
    def flushed_end(self) -> int:
        """What was found is flushed before it is handed out, unless that failed."""
        return self.end_offset if self.failure is None else min(self.end_offset, max(self.start_offset, self.checkpoint_end))

    @property
    def has_news(self) -> bool:
        """Whether a segment was closed or an epoch began after the checkpoint."""
        has_rolled = len(self.segments) > 1 and not self.is_checkpointed(self.segments[-1])
        return has_rolled or (self.report.scanned_batches > 0 and self.epochs.latest_start >= self.checkpoint_end)

    def is_checkpointed(self, segment: Segment) -> bool:
        return segment.base_offset in self.checkpoint_bases
