"""What a topic may be told about its logs, under Kafka's names where Kafka has one."""

from dataclasses import dataclass

from penstock.settings.setting import DAY_MS, GIB, HOUR_MS, INT_MAX, KIB, LONG_MAX, MIB, SECOND_MS, setting


@dataclass(frozen=True)
class LogSettings:
    cleanup_policy: str = setting(
        "cleanup.policy",
        "delete",
        choices=("delete", "compact", "compact,delete", "delete,compact"),
        reason="delete: old segments are dropped by age and size. compact: every record must have a key, nothing is dropped by age, and of the "
        "records with one key only the last is kept for good; a record without a value deletes its key. compact,delete: both. A topic that "
        "becomes a compacted one loses its records without a key when they are compacted.",
    )
    compression_type: str = setting(
        "compression.type",
        "producer",
        choices=("producer",),
        reason="Batches are stored as the producer compressed them and never encoded again, so this is the only choice.",
    )
    flush: str = setting(
        "flush",
        "ack",
        choices=("ack", "interval", "os"),
        reason="When bytes are forced to the disk. ack: before the producer hears back, so that an acknowledged record survives a power cut. "
        "interval: every flush.ms, whatever was acknowledged meanwhile can be lost by a power cut. "
        "os: when the operating system likes, as Apache Kafka does by default.",
    )
    flush_messages: int = setting(
        "flush.messages",
        LONG_MAX,
        bounds=(1, LONG_MAX),
        reason="Under interval and os: flush after this many records as well. 1 makes every acknowledgement wait for the flush, as `ack` does.",
    )
    flush_ms: int = setting(
        "flush.ms",
        LONG_MAX,
        bounds=(0, LONG_MAX),
        reason="Under interval and os: flush at the latest this long after a record came. Left alone it means one second under interval, never under os.",
    )
    index_interval_bytes: int = setting(
        "index.interval.bytes",
        4096,
        bounds=(0, INT_MAX),
        reason="One index entry for this many bytes of log. Smaller finds an offset with less reading; larger needs less memory.",
    )
    max_message_bytes: int = setting(
        "max.message.bytes",
        1_048_588,
        bounds=(0, 128 * MIB),
        reason="The largest batch a producer may send, after compression. Clients split and retry when a batch is larger.",
    )
    message_timestamp_type: str = setting(
        "message.timestamp.type",
        "CreateTime",
        choices=("CreateTime", "LogAppendTime"),
        reason="Whose clock a record carries: the producer's, or the node's at the moment it is appended.",
    )
    message_timestamp_after_max_ms: int = setting(
        "message.timestamp.after.max.ms",
        HOUR_MS,
        bounds=(0, LONG_MAX),
        reason="A record from further in the future than this is refused: one wrong clock would keep its segment from ever expiring.",
    )
    message_timestamp_before_max_ms: int = setting(
        "message.timestamp.before.max.ms",
        LONG_MAX,
        bounds=(0, LONG_MAX),
        reason="A record older than this is refused.",
    )
    min_insync_replicas: int = setting(
        "min.insync.replicas",
        1,
        bounds=(1, 1000),
        reason="With acks=all, how many replicas must have a record before it is acknowledged.",
    )
    retention_bytes: int = setting(
        "retention.bytes",
        -1,
        bounds=(-1, LONG_MAX),
        reason="Drop the oldest segments of a partition while it is larger than this. -1: no bound by size.",
    )
    retention_ms: int = setting(
        "retention.ms",
        7 * DAY_MS,
        bounds=(-1, LONG_MAX),
        reason="Drop a segment when its newest record is older than this. -1: keep for ever.",
    )
    segment_bytes: int = setting(
        "segment.bytes",
        GIB,
        bounds=(1 * KIB, INT_MAX),
        reason="A partition's log is cut into files of this size. Space comes back in whole files, so smaller ones follow retention more closely.",
    )
    segment_ms: int = setting(
        "segment.ms",
        7 * DAY_MS,
        bounds=(1, LONG_MAX),
        reason="Begin a new file after this long even when the old one isn't full, so that a quiet topic's old records can expire.",
    )
    delete_retention_ms: int = setting(
        "delete.retention.ms",
        DAY_MS,
        bounds=(0, LONG_MAX),
        reason="How long a compacted topic keeps the mark of a deleted key after compaction has first met it. Whoever reads the topic from its "
        "start must come to its end within this time, or may miss that a key was deleted.",
    )
    min_cleanable_dirty_ratio: float = setting(
        "min.cleanable.dirty.ratio",
        0.5,
        bounds=(0, 1),
        reason="A compacted topic is compacted when more than this part of it is new since the last time. Lower keeps it smaller and rewrites it "
        "more often.",
    )
    min_compaction_lag_ms: int = setting(
        "min.compaction.lag.ms",
        0,
        bounds=(0, LONG_MAX),
        reason="A record stays for at least this long though a later one has its key, so that readers can see every change.",
    )
    max_compaction_lag_ms: int = setting(
        "max.compaction.lag.ms",
        LONG_MAX,
        bounds=(1, LONG_MAX),
        reason="Compact a segment at the latest this long after it was begun, however little of the topic is new: for what must be gone in time.",
    )

    unclean_leader_election_enable: bool = setting(
        "unclean.leader.election.enable",
        False,
        reason="Let a replica lead that may lack acknowledged records when no other is left. On: the topic can be written to again at once, and "
        "loses what that replica never had. Off: it waits for a replica that has everything, or for an operator's word.",
    )

    @property
    def deletes_old_segments(self) -> bool:
        return "delete" in self.cleanup_policy

    @property
    def acknowledges_after_flush(self) -> bool:
        return self.flush == "ack" or self.flush_messages == 1

    @property
    def flush_interval_ms(self) -> int | None:
        """How long an appended record may stay unflushed; None where only the operating system decides."""
        if self.flush_ms != LONG_MAX:
            return self.flush_ms
        return SECOND_MS if self.flush == "interval" else None
