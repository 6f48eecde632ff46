"""What a node is told about itself: where it listens, what it holds, and how much it lets clients take."""

from dataclasses import dataclass

from penstock.settings.setting import DAY_MS, GIB, INT_MAX, KIB, LONG_MAX, MIB, MINUTE_MS, SECOND_MS, setting


@dataclass(frozen=True)
class ServingSettings:
    node_id: int = setting(
        "node.id", 1, bounds=(0, INT_MAX), reason="This node's number in its cluster. It never changes for a data directory."
    )
    advertised_host: str = setting(
        "advertised.host",
        "",
        reason="The host that clients are told to connect to. Needed when the node listens on every address (0.0.0.0).",
    )
    advertised_port: int = setting(
        "advertised.port",
        0,
        bounds=(0, 65535),
        reason="The port that clients are told to connect to. 0: the one it listens on.",
    )
    http_hosts: str = setting(
        "http.hosts",
        "",
        dynamic=True,
        reason="Names, with commas between them, under which browsers and tools may reach the admin API, the status page and /metrics besides its addresses, localhost and the advertised host. "
        "Others are refused: a web page can let its own name point here.",
    )
    num_partitions: int = setting(
        "num.partitions",
        1,
        bounds=(1, 10_000),
        dynamic=True,
        reason="Partitions of a topic that is made without saying how many.",
    )
    auto_create_topics_enable: bool = setting(
        "auto.create.topics.enable",
        True,
        dynamic=True,
        reason="Make a topic the first time a client asks for it. Off: a misspelt name is an error instead of a new topic.",
    )
    partitions_max: int = setting(
        "partitions.max",
        20_000,
        bounds=(1, 200_000),
        dynamic=True,
        reason="The most partitions this node will hold; past it, creating topics is refused.",
    )
    request_bytes_max: int = setting(
        "socket.request.max.bytes",
        100 * MIB,
        bounds=(64 * KIB, GIB),
        reason="The largest request. A connection that announces more is closed before anything is allocated.",
    )
    memory_bytes_max: int = setting(
        "memory.bytes.max",
        GIB,
        bounds=(128 * MIB, 1 << 44),
        reason="What the whole process may take. Requests and replies in flight share a part of it; past that, connections wait. "
        "Groups and what they commit have an eighth of it; past that, what is new must come again.",
    )
    connections_max: int = setting(
        "connections.max",
        10_000,
        bounds=(1, 1_000_000),
        dynamic=True,
        reason="The most client connections at once; more are closed as they come.",
    )
    connections_max_idle_ms: int = setting(
        "connections.max.idle.ms",
        10 * MINUTE_MS,
        bounds=(1_000, LONG_MAX),
        dynamic=True,
        reason="Close a connection that has been silent this long.",
    )
    connections_max_stalled_ms: int = setting(
        "connections.max.stalled.ms",
        60 * SECOND_MS,
        bounds=(1_000, LONG_MAX),
        dynamic=True,
        reason="Close a connection that takes none of its replies, or sends no more of a begun request, for this long: it holds memory that others need. "
        "On the HTTP port each mebibyte of a request's body or of an answer has this long.",
    )
    requests_in_flight_max: int = setting(
        "connection.requests.in.flight.max",
        64,
        bounds=(1, 10_000),
        dynamic=True,
        reason="Requests of one connection that may be under way; past it the node stops reading from it.",
    )
    flush_awake_us: int = setting(
        "flush.awake.us",
        500,
        bounds=(0, 10_000),
        reason="For so many microseconds the node stays awake for a flush, where nobody else wants the processor: one that has slept comes late. 0: it sleeps. "
        "With fewer than two processors it always does.",
    )
    fetch_max_bytes: int = setting(
        "fetch.max.bytes",
        55 * MIB,
        bounds=(1 * KIB, GIB),
        dynamic=True,
        reason="The largest reply to a fetch, whatever the client asks for.",
    )
    fetch_sessions_max: int = setting(
        "max.incremental.fetch.session.cache.slots",
        1_000,
        bounds=(0, 100_000),
        reason="Fetch sessions kept at once. A consumer without one sends its whole list of partitions each time.",
    )
    decompressed_bytes_max: int = setting(
        "decompressed.batch.bytes.max",
        64 * MIB,
        bounds=(1 * MIB, GIB),
        dynamic=True,
        reason="The most that a compressed batch may unpack to. A small batch can unpack to gigabytes; such a bomb is refused.",
    )
    producer_id_expiration_ms: int = setting(
        "producer.id.expiration.ms",
        DAY_MS,
        bounds=(1_000, LONG_MAX),
        dynamic=True,
        reason="Forget an idempotent producer that has been silent this long.",
    )
    producers_max: int = setting(
        "producers.per.partition.max",
        100_000,
        bounds=(1, 10_000_000),
        reason="Idempotent producers remembered per partition; past it the one that has been silent longest is forgotten.",
    )
    retention_check_ms: int = setting(
        "log.retention.check.interval.ms",
        5 * MINUTE_MS,
        bounds=(1, LONG_MAX),
        dynamic=True,
        reason="How often old segments are looked for.",
    )
    cleaner_backoff_ms: int = setting(
        "log.cleaner.backoff.ms",
        15 * SECOND_MS,
        bounds=(10, LONG_MAX),
        dynamic=True,
        reason="How often compacted topics are looked at for something to compact.",
    )
    cleaner_keys_bytes: int = setting(
        "log.cleaner.dedupe.buffer.size",
        64 * MIB,
        bounds=(1 * KIB, 16 * GIB),
        dynamic=True,
        reason="The most memory for the keys of one compaction: 32 bytes or so each. With less it takes more rounds over a log with many keys.",
    )
    accepted_losses: str = setting(
        "accept.losses",
        "",
        reason="Partitions (orders-0,payments-3), and metadata for the metadata log, of which this node has the only copy, and that copy is damaged: it goes on with what can be read, and the rest is lost. For one start, by --accept-loss.",
    )
    scrub_rate: int = setting(
        "log.scrub.bytes.per.second",
        4 * MIB,
        bounds=(0, LONG_MAX),
        dynamic=True,
        reason="How fast closed segments are read again, to find bytes that have changed on the disk before a reader does. 0: not at all.",
    )
    scrub_interval_ms: int = setting(
        "log.scrub.interval.ms",
        DAY_MS,
        bounds=(1, LONG_MAX),
        dynamic=True,
        reason="How often all closed segments are read again; at most as often as their bytes can be read at that rate.",
    )
    checkpoint_bytes: int = setting(
        "checkpoint.interval.bytes",
        64 * MIB,
        bounds=(1 * KIB, GIB),
        reason="Note how far a log is known to be good after this many new bytes. Starting after a crash reads what came since.",
    )
    open_files_max: int = setting(
        "open.files.max",
        4_000,
        bounds=(16, 1_000_000),
        reason="Log files kept open at once; those not used for longest are closed.",
    )
    disk_free_bytes_min: int = setting(
        "disk.free.bytes.min",
        256 * MIB,
        bounds=(0, 1 << 44),
        dynamic=True,
        reason="Refuse produce requests while the disk has less room than this. Reading and deleting go on, and writing again needs no restart. "
        "Below one and a half times as much, other nodes of a cluster lead what this one leads, until it has twice as much again.",
    )
    disk_reserve_bytes: int = setting(
        "disk.reserve.bytes",
        64 * MIB,
        bounds=(0, 1 << 40),
        reason="The size of a file in the data directory that keeps room: on a full disk it is given up, so that the metadata log, checkpoints and ledgers "
        "can still be written and the node can be drained. It is made again when twice as much is free. At most a sixteenth of the disk. 0: none.",
    )
