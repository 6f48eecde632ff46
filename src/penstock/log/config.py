"""What a log is told from outside: whose it is, and how large and how old it may become."""

from dataclasses import dataclass

from penstock.vocabulary import TopicId

MIB = 1 << 20
DAY_MS = 24 * 60 * 60 * 1000
UNLIMITED = -1

SEGMENT_BYTES_MAX = 2**31 - 1  # A position in a segment is kept in 32 bits.


@dataclass(frozen=True, slots=True)
class LogIdentity:
    """Written into every file of ours, so that a file that strayed in from another partition is not believed."""

    topic_id: TopicId
    partition: int


@dataclass(frozen=True, slots=True)
class LogConfig:
    """May be replaced while the log is open: nothing on the disk depends on it."""

    segment_bytes: int = 1024 * MIB  # A segment is closed before it grows past this. A single larger batch gets a segment of its own.
    segment_ms: int = 7 * DAY_MS  # A segment that was begun this long ago is closed.
    retention_ms: int = 7 * DAY_MS  # Segments whose newest record is older are dropped; UNLIMITED: never.
    retention_bytes: int = UNLIMITED  # Oldest segments are dropped while the log is at least one segment larger than this.
    index_interval_bytes: int = 4096  # At most one index entry for this many bytes. Long segments have fewer, see index.py.
    is_compacted: bool = False  # Of records with the same key only the last is kept.
    dirty_ratio_min: float = 0.5  # Compaction begins when more than this part of what it could look at is new to it.
    compaction_lag_min_ms: int = 0  # Segments with a record that is younger stay as they are.
    compaction_lag_max_ms: int = 2**63 - 1  # A segment that was begun this long ago is compacted however little there is to do.
    delete_retention_ms: int = DAY_MS  # How long a tombstone stays after compaction has first met it.
    checkpoint_bytes: int = 64 * MIB  # After this many appended bytes a checkpoint is due: it bounds what a start after a crash scans.

    def __post_init__(self) -> None:
        if not 0 < self.segment_bytes <= SEGMENT_BYTES_MAX:
            raise ValueError(f"segment_bytes is {self.segment_bytes}, but must be 1 to {SEGMENT_BYTES_MAX}")
