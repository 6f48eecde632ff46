"""Every setting, once: its name, default, bounds, the reason to change it, and whether a running node takes a new value.

Two scopes. `TopicConfig` holds what a topic may override, under Kafka's names where Kafka has one; all of it may change while the topic is
in use. `NodeSettings` holds what a node is started with; those marked `dynamic` may be changed through the protocol while it runs, and so
may what topics start from (`topic.` in front of a topic setting's name). A setting is dynamic only where the new value holds at once.
The reference page is made from this file, so a reason is written for the person who reads it there.
Not here: where values come from (flags, variables, a file): server/configuration.py.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any, cast

from penstock.errors import ErrorCode, Refusal

KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30
SECOND_MS, MINUTE_MS, HOUR_MS = 1_000, 60_000, 3_600_000
DAY_MS = 24 * HOUR_MS
INT_MAX = (1 << 31) - 1
LONG_MAX = (1 << 63) - 1

TOPIC_PREFIX = "topic."  # In front of a topic setting's name: what every topic of the node starts from.

Value = int | float | bool | str


@dataclass(frozen=True, slots=True)
class Setting:
    """What a person may set. `bounds` are inclusive; `choices` are the only words taken."""

    name: str
    default: Value
    reason: str
    bounds: tuple[int | float, int | float] | None = None
    choices: tuple[str, ...] | None = None
    is_dynamic: bool = False  # A running node takes a new value.

    @property
    def is_list(self) -> bool:
        """Whether it is made of words with commas between them, of which single ones may be added and taken away."""
        return self.choices is not None and any("," in choice for choice in self.choices)

    @property
    def kind(self) -> str:
        return {bool: "boolean", int: "integer", float: "number", str: "word" if self.choices else "text"}[type(self.default)]

    def parse(self, text: str) -> Value:
        """The value that a text stands for. Raises ValueError with a sentence that says what is allowed."""
        value = self._read(text.strip())
        if self.choices is not None and value not in self.choices:
            raise ValueError(f"{self.name} must be one of {', '.join(self.choices)}, not {text!r}")
        if self.bounds is not None and isinstance(value, int | float) and not self.bounds[0] <= value <= self.bounds[1]:
            raise ValueError(f"{self.name} must lie between {self.bounds[0]} and {self.bounds[1]}, not {text}")
        return value

    def spelled(self, text: str) -> str:
        """The text as this module would write its value; as it came where it has none."""
        try:
            return _as_text(self.parse(text))
        except ValueError:
            return text

    def _read(self, text: str) -> Value:
        if isinstance(self.default, bool):
            if text.lower() in ("true", "false"):
                return text.lower() == "true"
            raise ValueError(f"{self.name} must be true or false, not {text!r}")
        try:
            return type(self.default)(text)
        except ValueError:
            raise ValueError(f"{self.name} must be a {self.kind}, not {text!r}") from None


def _setting(
    name: str,
    default: Any,
    reason: str,
    *,
    bounds: tuple[int | float, int | float] | None = None,
    choices: tuple[str, ...] | None = None,
    dynamic: bool = False,
) -> Any:
    return field(default=default, metadata={"setting": Setting(name, default, reason, bounds, choices, dynamic)})


@dataclass(frozen=True, slots=True)
class TopicConfig:
    """What holds for one topic: the defaults below, then the node's `[topic]` defaults, then the topic's own overrides."""

    cleanup_policy: str = _setting(
        "cleanup.policy", "delete", choices=("delete", "compact", "compact,delete", "delete,compact"),
        reason="delete: old segments are dropped by age and size. compact: every record must have a key, nothing is dropped by age, and of the "
        "records with one key only the last is kept for good; a record without a value deletes its key. compact,delete: both. A topic that "
        "becomes a compacted one loses its records without a key when they are compacted.",
    )
    compression_type: str = _setting(
        "compression.type", "producer", choices=("producer",),
        reason="Batches are stored as the producer compressed them and never encoded again, so this is the only choice.",
    )
    flush: str = _setting(
        "flush", "ack", choices=("ack", "interval", "os"),
        reason="When bytes are forced to the disk. ack: before the producer hears back, so that an acknowledged record survives a power cut. "
        "interval: every flush.ms, whatever was acknowledged meanwhile can be lost by a power cut. "
        "os: when the operating system likes, as Apache Kafka does by default.",
    )
    flush_messages: int = _setting(
        "flush.messages", LONG_MAX, bounds=(1, LONG_MAX),
        reason="Under interval and os: flush after this many records as well. 1 makes every acknowledgement wait for the flush, as `ack` does.",
    )
    flush_ms: int = _setting(
        "flush.ms", LONG_MAX, bounds=(0, LONG_MAX),
        reason="Under interval and os: flush at the latest this long after a record came. Left alone it means one second under interval, never under os.",
    )
    index_interval_bytes: int = _setting(
        "index.interval.bytes", 4096, bounds=(0, INT_MAX),
        reason="One index entry for this many bytes of log. Smaller finds an offset with less reading; larger needs less memory.",
    )
    max_message_bytes: int = _setting(
        "max.message.bytes", 1_048_588, bounds=(0, 128 * MIB),
        reason="The largest batch a producer may send, after compression. Clients split and retry when a batch is larger.",
    )
    message_timestamp_type: str = _setting(
        "message.timestamp.type", "CreateTime", choices=("CreateTime", "LogAppendTime"),
        reason="Whose clock a record carries: the producer's, or the node's at the moment it is appended.",
    )
    message_timestamp_after_max_ms: int = _setting(
        "message.timestamp.after.max.ms", HOUR_MS, bounds=(0, LONG_MAX),
        reason="A record from further in the future than this is refused: one wrong clock would keep its segment from ever expiring.",
    )
    message_timestamp_before_max_ms: int = _setting(
        "message.timestamp.before.max.ms", LONG_MAX, bounds=(0, LONG_MAX),
        reason="A record older than this is refused.",
    )
    min_insync_replicas: int = _setting(
        "min.insync.replicas", 1, bounds=(1, 1000),
        reason="With acks=all, how many replicas must have a record before it is acknowledged.",
    )
    retention_bytes: int = _setting(
        "retention.bytes", -1, bounds=(-1, LONG_MAX),
        reason="Drop the oldest segments of a partition while it is larger than this. -1: no bound by size.",
    )
    retention_ms: int = _setting(
        "retention.ms", 7 * DAY_MS, bounds=(-1, LONG_MAX),
        reason="Drop a segment when its newest record is older than this. -1: keep for ever.",
    )
    segment_bytes: int = _setting(
        "segment.bytes", GIB, bounds=(1 * KIB, INT_MAX),
        reason="A partition's log is cut into files of this size. Space comes back in whole files, so smaller ones follow retention more closely.",
    )
    segment_ms: int = _setting(
        "segment.ms", 7 * DAY_MS, bounds=(1, LONG_MAX),
        reason="Begin a new file after this long even when the old one isn't full, so that a quiet topic's old records can expire.",
    )
    delete_retention_ms: int = _setting(
        "delete.retention.ms", DAY_MS, bounds=(0, LONG_MAX),
        reason="How long a compacted topic keeps the mark of a deleted key after compaction has first met it. Whoever reads the topic from its "
        "start must come to its end within this time, or may miss that a key was deleted.",
    )
    min_cleanable_dirty_ratio: float = _setting(
        "min.cleanable.dirty.ratio", 0.5, bounds=(0, 1),
        reason="A compacted topic is compacted when more than this part of it is new since the last time. Lower keeps it smaller and rewrites it "
        "more often.",
    )
    min_compaction_lag_ms: int = _setting(
        "min.compaction.lag.ms", 0, bounds=(0, LONG_MAX),
        reason="A record stays for at least this long though a later one has its key, so that readers can see every change.",
    )
    max_compaction_lag_ms: int = _setting(
        "max.compaction.lag.ms", LONG_MAX, bounds=(1, LONG_MAX),
        reason="Compact a segment at the latest this long after it was begun, however little of the topic is new: for what must be gone in time.",
    )

    unclean_leader_election_enable: bool = _setting(
        "unclean.leader.election.enable", False,
        reason="Let a replica lead that may lack acknowledged records when no other is left. On: the topic can be written to again at once, and "
        "loses what that replica never had. Off: it waits for a replica that has everything, or for an operator's word.",
    )

    queue_enabled: bool = _setting(
        "queue.enabled", False,
        reason="Use the topic as a work queue: it gets a ledger of who holds which message and what is done, kept as safe as its records. Off: "
        "the ledger stays as it is, and a share group may still use it.",
    )

    @property
    def is_compacted(self) -> bool:
        return "compact" in self.cleanup_policy

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

    def as_texts(self) -> dict[str, str]:
        """Every setting by name, as it would be written."""
        return {name: _as_text(getattr(self, attribute)) for name, attribute in _TOPIC_ATTRIBUTES.items()}

    def with_overrides(self, overrides: Mapping[str, str]) -> "TopicConfig":
        """This config with the named values in place of its own; a bad name or value is refused and nothing is changed."""
        changes: dict[str, Value] = {}
        for name, text in overrides.items():
            if name in KAFKA_NAMES_WITHOUT_EFFECT:
                continue
            attribute = _TOPIC_ATTRIBUTES.get(name)
            if attribute is None:
                raise Refusal(ErrorCode.INVALID_CONFIG, f"there is no topic setting {name!r}")
            try:
                changes[attribute] = TOPIC_SETTINGS[name].parse(text)
            except ValueError as wrong:
                raise Refusal(ErrorCode.INVALID_CONFIG, str(wrong)) from None
        return replace(self, **cast(dict[str, Any], changes))


def _as_text(value: Value) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


# Kafka's other topic settings. Tools set them without asking; they are taken and kept so that those tools work, and change nothing here.
KAFKA_NAMES_WITHOUT_EFFECT = frozenset({
    "file.delete.delay.ms", "follower.replication.throttled.replicas", "leader.replication.throttled.replicas",
    "message.downconversion.enable", "message.format.version", "preallocate", "segment.index.bytes", "segment.jitter.ms",
})  # fmt: skip


@dataclass(frozen=True, slots=True)
class NodeSettings:
    """What a node is started with."""

    node_id: int = _setting("node.id", 1, bounds=(0, INT_MAX), reason="This node's number in its cluster. It never changes for a data directory.")
    advertised_host: str = _setting(
        "advertised.host", "", reason="The host that clients are told to connect to. Needed when the node listens on every address (0.0.0.0).",
    )
    advertised_port: int = _setting(
        "advertised.port", 0, bounds=(0, 65535), reason="The port that clients are told to connect to. 0: the one it listens on.",
    )
    http_hosts: str = _setting(
        "http.hosts", "", dynamic=True,
        reason="Names, with commas between them, under which browsers and tools may reach the admin API, the status page and /metrics besides its addresses, localhost and the advertised host. "
        "Others are refused: a web page can let its own name point here.",
    )
    num_partitions: int = _setting(
        "num.partitions", 1, bounds=(1, 10_000), dynamic=True, reason="Partitions of a topic that is made without saying how many.",
    )
    auto_create_topics_enable: bool = _setting(
        "auto.create.topics.enable", True, dynamic=True, reason="Make a topic the first time a client asks for it. Off: a misspelt name is an error instead of a new topic.",
    )
    partitions_max: int = _setting(
        "partitions.max", 20_000, bounds=(1, 200_000), dynamic=True, reason="The most partitions this node will hold; past it, creating topics is refused.",
    )
    request_bytes_max: int = _setting(
        "socket.request.max.bytes", 100 * MIB, bounds=(64 * KIB, GIB), reason="The largest request. A connection that announces more is closed before anything is allocated.",
    )
    memory_bytes_max: int = _setting(
        "memory.bytes.max", GIB, bounds=(128 * MIB, 1 << 44),
        reason="What the whole process may take. Requests and replies in flight share a part of it; past that, connections wait. "
        "Groups and what they commit have an eighth of it; past that, what is new must come again.",
    )
    connections_max: int = _setting(
        "connections.max", 10_000, bounds=(1, 1_000_000), dynamic=True, reason="The most client connections at once; more are closed as they come.",
    )
    connections_max_idle_ms: int = _setting(
        "connections.max.idle.ms", 10 * MINUTE_MS, bounds=(1_000, LONG_MAX), dynamic=True, reason="Close a connection that has been silent this long.",
    )
    connections_max_stalled_ms: int = _setting(
        "connections.max.stalled.ms", 60 * SECOND_MS, bounds=(1_000, LONG_MAX), dynamic=True,
        reason="Close a connection that takes none of its replies, or sends no more of a begun request, for this long: it holds memory that others need.",
    )
    requests_in_flight_max: int = _setting(
        "connection.requests.in.flight.max", 64, bounds=(1, 10_000), dynamic=True, reason="Requests of one connection that may be under way; past it the node stops reading from it.",
    )
    fetch_max_bytes: int = _setting(
        "fetch.max.bytes", 55 * MIB, bounds=(1 * KIB, GIB), dynamic=True, reason="The largest reply to a fetch, whatever the client asks for.",
    )
    fetch_sessions_max: int = _setting(
        "max.incremental.fetch.session.cache.slots", 1_000, bounds=(0, 100_000),
        reason="Fetch sessions kept at once. A consumer without one sends its whole list of partitions each time.",
    )
    decompressed_bytes_max: int = _setting(
        "decompressed.batch.bytes.max", 64 * MIB, bounds=(1 * MIB, GIB), dynamic=True,
        reason="The most that a compressed batch may unpack to. A small batch can unpack to gigabytes; such a bomb is refused.",
    )
    producer_id_expiration_ms: int = _setting(
        "producer.id.expiration.ms", DAY_MS, bounds=(1_000, LONG_MAX), dynamic=True, reason="Forget an idempotent producer that has been silent this long.",
    )
    producers_max: int = _setting(
        "producers.per.partition.max", 100_000, bounds=(1, 10_000_000),
        reason="Idempotent producers remembered per partition; past it the one that has been silent longest is forgotten.",
    )
    retention_check_ms: int = _setting(
        "log.retention.check.interval.ms", 5 * MINUTE_MS, bounds=(1, LONG_MAX), dynamic=True, reason="How often old segments are looked for.",
    )
    cleaner_backoff_ms: int = _setting(
        "log.cleaner.backoff.ms", 15 * SECOND_MS, bounds=(10, LONG_MAX), dynamic=True,
        reason="How often compacted topics are looked at for something to compact.",
    )
    cleaner_keys_bytes: int = _setting(
        "log.cleaner.dedupe.buffer.size", 64 * MIB, bounds=(1 * KIB, 16 * GIB), dynamic=True,
        reason="The most memory for the keys of one compaction: 32 bytes or so each. With less it takes more rounds over a log with many keys.",
    )
    checkpoint_bytes: int = _setting(
        "checkpoint.interval.bytes", 64 * MIB, bounds=(1 * KIB, GIB),
        reason="Note how far a log is known to be good after this many new bytes. Starting after a crash reads what came since.",
    )
    open_files_max: int = _setting(
        "open.files.max", 4_000, bounds=(16, 1_000_000), reason="Log files kept open at once; those not used for longest are closed.",
    )
    group_initial_rebalance_delay_ms: int = _setting(
        "group.initial.rebalance.delay.ms", 3 * SECOND_MS, bounds=(0, INT_MAX), dynamic=True,
        reason="How long the first member of an empty group waits for others to join, so that a service that starts ten consumers is assigned once and not ten times. 0 in tests.",
    )
    group_min_session_timeout_ms: int = _setting(
        "group.min.session.timeout.ms", 6 * SECOND_MS, bounds=(1, INT_MAX), dynamic=True,
        reason="The shortest session time-out that a consumer may ask for. Shorter finds a dead one sooner and takes more heartbeats.",
    )
    group_max_session_timeout_ms: int = _setting(
        "group.max.session.timeout.ms", 30 * MINUTE_MS, bounds=(1, INT_MAX), dynamic=True,
        reason="The longest session time-out that a consumer may ask for: a dead one keeps its partitions that long.",
    )
    group_max_size: int = _setting(
        "group.max.size", 10_000, bounds=(1, INT_MAX), dynamic=True,
        reason="The most members of one consumer group. Every member of a group is told of every change, so large ones are slow to settle; Kafka sets no bound.",
    )
    group_consumer_session_timeout_ms: int = _setting(
        "group.consumer.session.timeout.ms", 45 * SECOND_MS, bounds=(1, INT_MAX), dynamic=True,
        reason="A member of the new group protocol that is not heard of for this long is taken for dead, and what it had goes to others.",
    )
    group_consumer_heartbeat_interval_ms: int = _setting(
        "group.consumer.heartbeat.interval.ms", 5 * SECOND_MS, bounds=(1, INT_MAX), dynamic=True,
        reason="How often members of the new group protocol are told to send heartbeats. They hear of a rebalance by them, so shorter settles sooner and costs more requests.",
    )
    group_consumer_max_size: int = _setting(
        "group.consumer.max.size", 10_000, bounds=(1, INT_MAX), dynamic=True, reason="The most members of one group of the new protocol.",
    )
    group_consumer_assignors: str = _setting(
        "group.consumer.assignors", "uniform,range", choices=("uniform,range", "range,uniform", "uniform", "range"),
        reason="How partitions may be shared out in groups of the new protocol; the first is taken where the members don't ask for one. uniform: evenly, and nothing moves that needn't. range: neighbouring partitions, alike for all topics.",
    )
    group_consumer_assignment_interval_ms: int = _setting(
        "group.consumer.assignment.interval.ms", SECOND_MS, bounds=(0, 15 * SECOND_MS), dynamic=True,
        reason="The least time between two assignments of one group of the new protocol, so that a service that starts a hundred consumers is assigned a few times and not a hundred.",
    )
    group_consumer_migration_policy: str = _setting(
        "group.consumer.migration.policy", "bidirectional", choices=("bidirectional", "upgrade", "downgrade", "disabled"), dynamic=True,
        reason="Whether a running classic group becomes one of the new protocol when a member of that joins (upgrade), and goes back when the last such member leaves (downgrade).",
    )
    group_share_session_timeout_ms: int = _setting(
        "group.share.session.timeout.ms", 45 * SECOND_MS, bounds=(1, INT_MAX), dynamic=True,
        reason="A member of a share group that is not heard of for this long is taken for dead; a group's own share.session.timeout.ms holds against it.",
    )
    group_share_heartbeat_interval_ms: int = _setting(
        "group.share.heartbeat.interval.ms", 5 * SECOND_MS, bounds=(1, INT_MAX), dynamic=True,
        reason="How often members of share groups are told to send heartbeats, by which they hear of their partitions; a group's own share.heartbeat.interval.ms holds against it.",
    )
    group_share_max_size: int = _setting(
        "group.share.max.size", 1_000, bounds=(1, INT_MAX), dynamic=True, reason="The most members of one share group.",
    )
    groups_max: int = _setting(
        "groups.max", 100_000, bounds=(1, INT_MAX), dynamic=True,
        reason="The most consumer groups this node holds; past it a new group is refused, and those that are there go on. Each takes memory, and anybody can make one by naming it.",
    )
    offset_metadata_max_bytes: int = _setting(
        "offset.metadata.max.bytes", 4096, bounds=(0, MIB), dynamic=True,
        reason="The longest note, in characters, that a consumer may leave with a committed offset.",
    )
    offsets_retention_minutes: int = _setting(
        "offsets.retention.minutes", 7 * 24 * 60, bounds=(1, INT_MAX), dynamic=True,
        reason="Forget the committed offsets of a group that has been empty this long; of a consumer without a group, those not committed again for this long.",
    )
    offsets_retention_check_interval_ms: int = _setting(
        "offsets.retention.check.interval.ms", 10 * MINUTE_MS, bounds=(1, LONG_MAX), dynamic=True, reason="How often offsets that are to be forgotten are looked for.",
    )
    offsets_topic_num_partitions: int = _setting(
        "offsets.topic.num.partitions", 50, bounds=(1, 10_000),
        reason="Partitions of `__consumer_offsets`, over which the groups are spread. It holds when that topic is made, and never changes for a data directory.",
    )
    transaction_partitions: int = _setting(
        "transaction.state.log.num.partitions", 50, bounds=(1, 10_000),
        reason="Partitions of `__transaction_state`, over which the transactional ids are spread. It holds when that topic is made, and never changes for a data directory.",
    )
    transaction_replication_factor: int = _setting(
        "transaction.state.log.replication.factor", 3, bounds=(1, 32_767),
        reason="Replicas of `__transaction_state`; as many as there are brokers in the cluster when it is made, if those are fewer. Brokers that are away then get theirs too.",
    )
    transaction_min_insync: int = _setting(
        "transaction.state.log.min.isr", 2, bounds=(1, 1000),
        reason="How many replicas of `__transaction_state` must have what became of a transaction before anybody hears of it; all of them, where it has fewer. It holds when that topic is made; afterwards change the topic's min.insync.replicas.",
    )
    transaction_max_timeout_ms: int = _setting(
        "transaction.max.timeout.ms", 15 * MINUTE_MS, bounds=(1, INT_MAX), dynamic=True,
        reason="The longest time-out that a producer may ask for its transactions. Consumers that read committed records only wait behind an open transaction for so long.",
    )
    transactional_id_expiration_ms: int = _setting(
        "transactional.id.expiration.ms", 7 * DAY_MS, bounds=(1, LONG_MAX), dynamic=True,
        reason="Forget a transactional id that has not been used for this long. A producer that comes back later is told so, and begins anew.",
    )
    transaction_abort_interval_ms: int = _setting(
        "transaction.abort.timed.out.transaction.cleanup.interval.ms", 10 * SECOND_MS, bounds=(1, INT_MAX), dynamic=True,
        reason="A transaction is aborted when its time-out is over. Where that could not be recorded (a full disk, too few replicas), it is tried again after this long.",
    )
    cluster_id: str = _setting(
        "cluster.id", "", reason="The cluster that this node belongs to. It never changes for a data directory; a node alone draws one at its first start.",
    )
    quorum_voters: str = _setting(
        "controller.quorum.voters", "",
        reason="The nodes that vote on the cluster's metadata, as 1@host:port,2@host:port,3@host:port: their numbers and the addresses of the nodes' own "
        "listeners. Three bear the loss of one, five of two. Empty: this node is a cluster of its own.",
    )
    joins_cluster: bool = _setting(
        "cluster.join", False,
        reason="This node's disk is new in a cluster that is there already: it votes only once it has been made a voter. Without it, voters that find "
        "their disks empty found a cluster together; a voter that has lost its disk must not.",
    )
    process_roles: str = _setting(
        "process.roles", "broker,controller", choices=("broker,controller", "controller,broker", "broker", "controller"),
        reason="broker: holds partitions and serves clients. controller: votes on the cluster's metadata, and must be one of the voters.",
    )
    rack: str = _setting("broker.rack", "", reason="Where this node stands. Replicas of a partition are spread over as many racks as there are.")
    heartbeat_interval_ms: int = _setting(
        "broker.heartbeat.interval.ms", 300, bounds=(10, 60_000), reason="How often a broker tells the controller that it is there.",
    )
    session_timeout_ms: int = _setting(
        "broker.session.timeout.ms", 2 * SECOND_MS, bounds=(50, 10 * MINUTE_MS),
        reason="The controller moves leadership away from a broker that it has not heard of for this long. Shorter fails over sooner; longer rides out "
        "pauses. A broker whose process ends is noticed sooner, by its connection.",
    )
    election_timeout_ms: int = _setting(
        "controller.quorum.election.timeout.ms", 800, bounds=(20, 10 * MINUTE_MS),
        reason="A voter that hears from no controller for this long, or up to three quarters longer, stands for election. It must be several flushes long.",
    )
    quorum_heartbeat_ms: int = _setting(
        "controller.quorum.heartbeat.interval.ms", 150, bounds=(5, 60_000), reason="How often the controller tells the other nodes that it leads.",
    )
    replica_lag_ms: int = _setting(
        "replica.lag.time.max.ms", 10 * SECOND_MS, bounds=(100, HOUR_MS), dynamic=True,
        reason="A follower that has not caught up for this long leaves the in-sync set. Shorter frees producers from a slow disk sooner; longer rides out "
        "pauses without shrinking the set.",
    )
    replica_fetch_bytes: int = _setting(
        "replica.fetch.max.bytes", 1 * MIB, bounds=(1, GIB), dynamic=True, reason="What a follower asks for of one partition at a time; a larger batch comes whole.",
    )
    replica_response_bytes: int = _setting(
        "replica.fetch.response.max.bytes", 8 * MIB, bounds=(1, GIB), dynamic=True, reason="What a follower asks for of one leader at a time.",
    )
    replica_wait_ms: int = _setting(
        "replica.fetch.wait.max.ms", 500, bounds=(1, MINUTE_MS), dynamic=True, reason="How long a leader keeps a follower's question while there is nothing new.",
    )
    replication_throttle: int = _setting(
        "replication.throttled.rate", 0, bounds=(0, LONG_MAX), dynamic=True,
        reason="Bytes a second that a node takes in for replicas that are catching up; those in the in-sync set are never held back. 0: no bound.",
    )
    follower_throttle: int = _setting(
        "follower.replication.throttled.rate", 0, bounds=(0, LONG_MAX), dynamic=True,
        reason="The same under Kafka's name, which kafka-reassign-partitions --throttle sets and takes back. The smaller of the two holds. 0: no bound.",
    )
    leader_throttle: int = _setting(
        "leader.replication.throttled.rate", 0, bounds=(0, LONG_MAX), dynamic=True,
        reason="Set by the same tool, and without effect here: who is held back at the follower asks its leader for less.",
    )
    default_replication_factor: int = _setting(
        "default.replication.factor", 1, bounds=(1, 32_767), dynamic=True, reason="Replicas of a topic that is made without saying how many.",
    )
    offsets_replication_factor: int = _setting(
        "offsets.topic.replication.factor", 3, bounds=(1, 32_767),
        reason="Replicas of `__consumer_offsets`; as many as there are brokers in the cluster when it is made, if those are fewer. Brokers that are away then get theirs too.",
    )
    auto_leader_rebalance: bool = _setting(
        "auto.leader.rebalance.enable", True, dynamic=True, reason="Give leadership back to the first replica of each partition when it is in sync again.",
    )
    leader_imbalance_seconds: int = _setting(
        "leader.imbalance.check.interval.seconds", 30, bounds=(1, INT_MAX), dynamic=True, reason="How often leadership is looked at for being given back.",
    )
    replica_selector: str = _setting(
        "replica.selector", "", choices=("", "rack"), dynamic=True,
        reason="rack: a consumer that says where it stands reads from an in-sync replica in its own rack (KIP-392), a little later than from the leader. Empty: always from the leader.",
    )
    disk_free_bytes_min: int = _setting(
        "disk.free.bytes.min", 256 * MIB, bounds=(0, 1 << 44), dynamic=True,
        reason="Refuse produce requests while the disk has less room than this. Reading and deleting go on, and writing again needs no restart.",
    )
    topic_defaults: Mapping[str, str] = field(default_factory=dict)  # The `[topic]` table: overrides of TopicConfig for every topic.

    @property
    def catch_up_rate(self) -> int:
        """Bytes a second for replicas that are catching up; 0: no bound."""
        return min((rate for rate in (self.replication_throttle, self.follower_throttle) if rate), default=0)

    def default_topic_config(self) -> TopicConfig:
        return TopicConfig().with_overrides(self.topic_defaults)

    def as_texts(self) -> dict[str, str]:
        """Every setting of the node itself by name, as it would be written."""
        return {name: _as_text(getattr(self, attribute)) for name, attribute in _NODE_ATTRIBUTES.items()}

    def with_changes(self, changes: Mapping[str, str]) -> "NodeSettings":
        """These settings with the named values in place of their own; a name or value that a running node cannot take is refused."""
        values: dict[str, Value] = {}
        topic_defaults = dict(self.topic_defaults)
        for name, text in changes.items():
            setting = DYNAMIC_SETTINGS.get(name)
            if setting is None:
                raise _refused_name(name)
            try:
                value = setting.parse(text)
            except ValueError as wrong:
                raise Refusal(ErrorCode.INVALID_REQUEST, str(wrong)) from None
            if name in NODE_SETTINGS:
                values[_NODE_ATTRIBUTES[name]] = value
            else:
                topic_defaults[name.removeprefix(TOPIC_PREFIX)] = text
        changed = replace(self, **cast(dict[str, Any], values), topic_defaults=topic_defaults)
        changed.default_topic_config()
        return changed


def _refused_name(name: str) -> Refusal:
    if name in NODE_SETTINGS:
        return Refusal(ErrorCode.INVALID_REQUEST, f"{name} holds from one start to the next and cannot be changed while the node runs")
    return Refusal(ErrorCode.INVALID_CONFIG, f"there is no node setting {name!r}")


def _attributes_by_name(scope: type[TopicConfig] | type[NodeSettings]) -> dict[str, str]:
    return {slot.metadata["setting"].name: slot.name for slot in fields(scope) if "setting" in slot.metadata}


def _settings_by_name(scope: type[TopicConfig] | type[NodeSettings]) -> dict[str, Setting]:
    return {slot.metadata["setting"].name: slot.metadata["setting"] for slot in fields(scope) if "setting" in slot.metadata}


_TOPIC_ATTRIBUTES = _attributes_by_name(TopicConfig)
_NODE_ATTRIBUTES = _attributes_by_name(NodeSettings)
TOPIC_SETTINGS = _settings_by_name(TopicConfig)
NODE_SETTINGS = _settings_by_name(NodeSettings)

# What a running node takes: some of its own settings, and everything that its topics start from.
DYNAMIC_SETTINGS = {name: setting for name, setting in NODE_SETTINGS.items() if setting.is_dynamic} | {
    TOPIC_PREFIX + name: setting for name, setting in TOPIC_SETTINGS.items()
}


def node_settings(values: Mapping[str, str], topic_defaults: Mapping[str, str] | None = None) -> NodeSettings:
    """Settings from texts by name. Raises ValueError with a sentence for a bad name or value."""
    changes: dict[str, Any] = {}
    for name, text in values.items():
        if name not in NODE_SETTINGS:
            raise ValueError(f"there is no node setting {name!r}")
        changes[_NODE_ATTRIBUTES[name]] = NODE_SETTINGS[name].parse(text)
    settings = NodeSettings(**changes, topic_defaults=dict(topic_defaults or {}))
    try:
        settings.default_topic_config()
    except Refusal as refusal:
        raise ValueError(refusal.reason) from None
    return settings
