"""What a node is told about groups, their offsets and transactions: bounds and defaults of what clients may ask for."""

from dataclasses import dataclass

from penstock.settings.setting import DAY_MS, INT_MAX, LONG_MAX, MIB, MINUTE_MS, SECOND_MS, setting


@dataclass(frozen=True)
class GroupsSettings:
    group_initial_rebalance_delay_ms: int = setting(
        "group.initial.rebalance.delay.ms",
        3 * SECOND_MS,
        bounds=(0, INT_MAX),
        dynamic=True,
        reason="How long the first member of an empty group waits for others to join, so that a service that starts ten consumers is assigned once and not ten times. 0 in tests.",
    )
    group_min_session_timeout_ms: int = setting(
        "group.min.session.timeout.ms",
        6 * SECOND_MS,
        bounds=(1, INT_MAX),
        dynamic=True,
        reason="The shortest session time-out that a consumer may ask for. Shorter finds a dead one sooner and takes more heartbeats.",
    )
    group_max_session_timeout_ms: int = setting(
        "group.max.session.timeout.ms",
        30 * MINUTE_MS,
        bounds=(1, INT_MAX),
        dynamic=True,
        reason="The longest session time-out that a consumer may ask for: a dead one keeps its partitions that long.",
    )
    group_max_size: int = setting(
        "group.max.size",
        10_000,
        bounds=(1, INT_MAX),
        dynamic=True,
        reason="The most members of one consumer group. Every member of a group is told of every change, so large ones are slow to settle; Kafka sets no bound.",
    )
    group_consumer_session_timeout_ms: int = setting(
        "group.consumer.session.timeout.ms",
        45 * SECOND_MS,
        bounds=(1, INT_MAX),
        dynamic=True,
        reason="A member of the new group protocol that is not heard of for this long is taken for dead, and what it had goes to others.",
    )
    group_consumer_heartbeat_interval_ms: int = setting(
        "group.consumer.heartbeat.interval.ms",
        5 * SECOND_MS,
        bounds=(1, INT_MAX),
        dynamic=True,
        reason="How often members of the new group protocol are told to send heartbeats. They hear of a rebalance by them, so shorter settles sooner and costs more requests.",
    )
    group_consumer_max_size: int = setting(
        "group.consumer.max.size",
        10_000,
        bounds=(1, INT_MAX),
        dynamic=True,
        reason="The most members of one group of the new protocol.",
    )
    group_consumer_assignors: str = setting(
        "group.consumer.assignors",
        "uniform,range",
        choices=("uniform,range", "range,uniform", "uniform", "range"),
        reason="How partitions may be shared out in groups of the new protocol; the first is taken where the members don't ask for one. uniform: evenly, and nothing moves that needn't. range: neighbouring partitions, alike for all topics.",
    )
    group_consumer_assignment_interval_ms: int = setting(
        "group.consumer.assignment.interval.ms",
        SECOND_MS,
        bounds=(0, 15 * SECOND_MS),
        dynamic=True,
        reason="The least time between two assignments of one group of the new protocol, so that a service that starts a hundred consumers is assigned a few times and not a hundred.",
    )
    group_consumer_migration_policy: str = setting(
        "group.consumer.migration.policy",
        "bidirectional",
        choices=("bidirectional", "upgrade", "downgrade", "disabled"),
        dynamic=True,
        reason="Whether a running classic group becomes one of the new protocol when a member of that joins (upgrade), and goes back when the last such member leaves (downgrade).",
    )
    groups_max: int = setting(
        "groups.max",
        100_000,
        bounds=(1, INT_MAX),
        dynamic=True,
        reason="The most consumer groups this node holds; past it a new group is refused, and those that are there go on. Each takes memory, and anybody can make one by naming it.",
    )
    offset_metadata_max_bytes: int = setting(
        "offset.metadata.max.bytes",
        4096,
        bounds=(0, MIB),
        dynamic=True,
        reason="The longest note, in characters, that a consumer may leave with a committed offset.",
    )
    offsets_retention_minutes: int = setting(
        "offsets.retention.minutes",
        7 * 24 * 60,
        bounds=(1, INT_MAX),
        dynamic=True,
        reason="Forget the committed offsets of a group that has been empty this long; of a consumer without a group, those not committed again for this long.",
    )
    offsets_retention_check_interval_ms: int = setting(
        "offsets.retention.check.interval.ms",
        10 * MINUTE_MS,
        bounds=(1, LONG_MAX),
        dynamic=True,
        reason="How often offsets that are to be forgotten are looked for.",
    )
    offsets_topic_num_partitions: int = setting(
        "offsets.topic.num.partitions",
        50,
        bounds=(1, 10_000),
        reason="Partitions of `__consumer_offsets`, over which the groups are spread. It holds when that topic is made, and never changes for a data directory.",
    )
    transaction_partitions: int = setting(
        "transaction.state.log.num.partitions",
        50,
        bounds=(1, 10_000),
        reason="Partitions of `__transaction_state`, over which the transactional ids are spread. It holds when that topic is made, and never changes for a data directory.",
    )
    transaction_replication_factor: int = setting(
        "transaction.state.log.replication.factor",
        3,
        bounds=(1, 32_767),
        reason="Replicas of `__transaction_state`; as many as there are brokers in the cluster when it is made, if those are fewer. Brokers that are away then get theirs too.",
    )
    transaction_min_insync: int = setting(
        "transaction.state.log.min.isr",
        2,
        bounds=(1, 1000),
        reason="How many replicas of `__transaction_state` must have what became of a transaction before anybody hears of it; all of them, where it has fewer. It holds when that topic is made; afterwards change the topic's min.insync.replicas.",
    )
    transaction_max_timeout_ms: int = setting(
        "transaction.max.timeout.ms",
        15 * MINUTE_MS,
        bounds=(1, INT_MAX),
        dynamic=True,
        reason="The longest time-out that a producer may ask for its transactions. Consumers that read committed records only wait behind an open transaction for so long.",
    )
    transactional_id_expiration_ms: int = setting(
        "transactional.id.expiration.ms",
        7 * DAY_MS,
        bounds=(1, LONG_MAX),
        dynamic=True,
        reason="Forget a transactional id that has not been used for this long. A producer that comes back later is told so, and begins anew.",
    )
    transaction_abort_interval_ms: int = setting(
        "transaction.abort.timed.out.transaction.cleanup.interval.ms",
        10 * SECOND_MS,
        bounds=(1, INT_MAX),
        dynamic=True,
        reason="A transaction is aborted when its time-out is over. Where that could not be recorded (a full disk, too few replicas), it is tried again after this long.",
    )
    offsets_replication_factor: int = setting(
        "offsets.topic.replication.factor",
        3,
        bounds=(1, 32_767),
        reason="Replicas of `__consumer_offsets`; as many as there are brokers in the cluster when it is made, if those are fewer. Brokers that are away then get theirs too.",
    )
