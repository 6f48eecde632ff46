"""What a node is told about share groups: what holds for those that were told nothing, and between which bounds a group may be told otherwise."""

from dataclasses import dataclass

from penstock.settings.setting import HOUR_MS, INT_MAX, MINUTE_MS, SECOND_MS, setting


@dataclass(frozen=True)
class ShareGroupsSettings:
    group_share_session_timeout_ms: int = setting(
        "group.share.session.timeout.ms",
        45 * SECOND_MS,
        bounds=(1, INT_MAX),
        dynamic=True,
        reason="A member of a share group that is not heard of for this long is taken for dead; a group's own share.session.timeout.ms holds against it.",
    )
    group_share_heartbeat_interval_ms: int = setting(
        "group.share.heartbeat.interval.ms",
        5 * SECOND_MS,
        bounds=(1, INT_MAX),
        dynamic=True,
        reason="How often members of share groups are told to send heartbeats, by which they hear of their partitions; a group's own share.heartbeat.interval.ms holds against it.",
    )
    group_share_max_size: int = setting(
        "group.share.max.size",
        1_000,
        bounds=(1, INT_MAX),
        dynamic=True,
        reason="The most members of one share group.",
    )
    group_share_sessions: int = setting(
        "group.share.max.share.sessions",
        2_000,
        bounds=(1, 1_000_000),
        dynamic=True,
        reason="The most members of share groups that may fetch from this node at once; each keeps a list of its partitions.",
    )
    group_share_record_lock_ms: int = setting(
        "group.share.record.lock.duration.ms",
        30 * SECOND_MS,
        bounds=(1, 12 * HOUR_MS),
        dynamic=True,
        reason="How long a record is lent to a member of a share group that was told nothing else (share.record.lock.duration.ms).",
    )
    group_share_min_record_lock_ms: int = setting(
        "group.share.min.record.lock.duration.ms",
        15 * SECOND_MS,
        bounds=(1, 12 * HOUR_MS),
        dynamic=True,
        reason="The least that a share group may be told as share.record.lock.duration.ms.",
    )
    group_share_max_record_lock_ms: int = setting(
        "group.share.max.record.lock.duration.ms",
        MINUTE_MS,
        bounds=(1, 12 * HOUR_MS),
        dynamic=True,
        reason="The most that a share group may be told as share.record.lock.duration.ms: what a dead member holds, nobody gets for so long.",
    )
    group_share_deliveries: int = setting(
        "group.share.delivery.count.limit",
        5,
        bounds=(1, 1_000),
        dynamic=True,
        reason="How often a record is delivered to a share group that was told nothing else (share.delivery.count.limit) before it is done with.",
    )
    group_share_min_deliveries: int = setting(
        "group.share.min.delivery.count.limit",
        2,
        bounds=(1, 1_000),
        dynamic=True,
        reason="The least that a share group may be told as share.delivery.count.limit.",
    )
    group_share_max_deliveries: int = setting(
        "group.share.max.delivery.count.limit",
        10,
        bounds=(1, 1_000),
        dynamic=True,
        reason="The most that a share group may be told as share.delivery.count.limit.",
    )
    group_share_locks: int = setting(
        "group.share.partition.max.record.locks",
        2_000,
        bounds=(1, 1_000_000),
        dynamic=True,
        reason="How many records of a partition may be lent at once to a share group that was told nothing else (share.partition.max.record.locks).",
    )
    group_share_min_locks: int = setting(
        "group.share.min.partition.max.record.locks",
        100,
        bounds=(1, 1_000_000),
        dynamic=True,
        reason="The least that a share group may be told as share.partition.max.record.locks.",
    )
    group_share_max_locks: int = setting(
        "group.share.max.partition.max.record.locks",
        4_000,
        bounds=(1, 1_000_000),
        dynamic=True,
        reason="The most that a share group may be told as share.partition.max.record.locks: each takes memory.",
    )
