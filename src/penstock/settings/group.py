"""What holds for one group: what the nodes have for all of them, then what the group was told (resource type GROUP, as Kafka 4.3 has it).

Some of what a group may be told lies between bounds that the nodes were told (KIP-1240). A value outside is refused; one that was taken
before the bounds were drawn closer is moved to the nearest bound when it is used.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, cast

from penstock.errors import ErrorCode, Refusal
from penstock.settings.node import NodeSettings
from penstock.settings.setting import (
    DAY_MS,
    HOUR_MS,
    INT_MAX,
    MINUTE_MS,
    SECOND_MS,
    Value,
    as_text,
    attributes_by_name,
    setting,
    settings_by_name,
)

BY_DURATION = "by_duration:"
_DURATION = re.compile(r"P(?=\w)(?:(\d{1,6})D)?(?:T(?=\d)(?:(\d{1,6})H)?(?:(\d{1,8})M)?(?:(\d{1,10}(?:\.\d{1,9})?)S)?)?", re.IGNORECASE)

# Kafka's other group settings: taken and kept for tools that set them, and without effect here.
KAFKA_GROUP_NAMES_WITHOUT_EFFECT = frozenset({
    "consumer.assignor.offload.enable", "share.assignor.offload.enable", "share.assignment.interval.ms", "consumer.assignment.interval.ms",
})  # fmt: skip


@dataclass(frozen=True, slots=True)
class GroupConfig:
    consumer_session_timeout_ms: int = setting(
        "consumer.session.timeout.ms",
        45 * SECOND_MS,
        bounds=(1, INT_MAX),
        reason="A member of the consumer group (of the new protocol) that is not heard of for this long is taken for dead.",
    )
    consumer_heartbeat_interval_ms: int = setting(
        "consumer.heartbeat.interval.ms",
        5 * SECOND_MS,
        bounds=(1, INT_MAX),
        reason="How often members of the consumer group (of the new protocol) are told to send heartbeats.",
    )
    share_session_timeout_ms: int = setting(
        "share.session.timeout.ms",
        45 * SECOND_MS,
        bounds=(1, INT_MAX),
        reason="A member of the share group that is not heard of for this long is taken for dead.",
    )
    share_heartbeat_interval_ms: int = setting(
        "share.heartbeat.interval.ms",
        5 * SECOND_MS,
        bounds=(1, INT_MAX),
        reason="How often members of the share group are told to send heartbeats.",
    )
    share_record_lock_duration_ms: int = setting(
        "share.record.lock.duration.ms",
        30 * SECOND_MS,
        bounds=(1, 12 * HOUR_MS),
        reason="How long a record is lent to a member of the share group. What a dead member holds, others get after that.",
    )
    share_delivery_count_limit: int = setting(
        "share.delivery.count.limit",
        5,
        bounds=(1, 1_000),
        reason="How often a record is delivered to the share group before it is done with.",
    )
    share_partition_max_record_locks: int = setting(
        "share.partition.max.record.locks",
        2_000,
        bounds=(1, 1_000_000),
        reason="How many records of a partition may be lent to members of the share group at once.",
    )
    share_auto_offset_reset: str = setting(
        "share.auto.offset.reset",
        "latest",
        reason="Where the share group begins in a partition that it has never read: earliest, latest, or by_duration:P1DT2H for so long ago.",
    )
    share_isolation_level: str = setting(
        "share.isolation.level",
        "read_committed",
        choices=("read_committed",),
        reason="A share group gets no records of transactions that are open or were aborted: one ledger of a partition serves all groups and "
        "doors, and lends what is settled. Kafka's own default, read_uncommitted, is refused here.",
    )
    share_renew_acknowledge_enable: bool = setting(
        "share.renew.acknowledge.enable",
        True,
        reason="Whether members may extend the time for which a record is lent to them.",
    )

    @classmethod
    def of(cls, node: NodeSettings, overrides: Mapping[str, str]) -> "GroupConfig":
        """What holds for a group that was told this. What only another version of Penstock takes is passed over."""
        config = cls(**{GROUP_ATTRIBUTES[name]: getattr(node, source.default) for name, source in _SOURCES.items()})
        for name, text in overrides.items():
            try:
                config = config._with(node, name, text, is_strict=False)
            except Refusal:
                continue
        return config

    @classmethod
    def checked(cls, node: NodeSettings, overrides: Mapping[str, str]) -> "GroupConfig":
        """The same for what is to be taken: a bad name or value is refused."""
        config = cls.of(node, {})
        for name, text in overrides.items():
            config = config._with(node, name, text, is_strict=True)
        for kind in ("consumer", "share"):
            session, heartbeat = getattr(config, f"{kind}_session_timeout_ms"), getattr(config, f"{kind}_heartbeat_interval_ms")
            told = (f"{kind}.session.timeout.ms", f"{kind}.heartbeat.interval.ms")
            if session <= heartbeat and any(name in overrides for name in told):
                raise _no(f"{told[0]} ({session}) must be longer than {told[1]} ({heartbeat}), or every member is taken for dead")
        return config

    def as_texts(self) -> dict[str, str]:
        return {name: as_text(getattr(self, attribute)) for name, attribute in GROUP_ATTRIBUTES.items()}

    def _with(self, node: NodeSettings, name: str, text: str, *, is_strict: bool) -> "GroupConfig":
        if name in KAFKA_GROUP_NAMES_WITHOUT_EFFECT:
            return self
        known = GROUP_SETTINGS.get(name)
        if known is None:
            raise _no(f"there is no group setting {name!r}")
        try:
            value = known.parse(text)
            if name == "share.auto.offset.reset":
                check_reset(str(value))
        except ValueError as wrong:
            raise _no(str(wrong)) from None
        return replace(self, **cast(dict[str, Any], {GROUP_ATTRIBUTES[name]: _within(node, name, value, is_strict=is_strict)}))


class _Source(NamedTuple):
    """Of a group's setting: the node's attribute that holds for groups which were told nothing, and those that bound it."""

    default: str
    least: str = ""
    most: str = ""


_SOURCES = {
    "consumer.session.timeout.ms": _Source("group_consumer_session_timeout_ms"),
    "consumer.heartbeat.interval.ms": _Source("group_consumer_heartbeat_interval_ms"),
    "share.session.timeout.ms": _Source("group_share_session_timeout_ms"),
    "share.heartbeat.interval.ms": _Source("group_share_heartbeat_interval_ms"),
    "share.record.lock.duration.ms": _Source(
        "group_share_record_lock_ms", "group_share_min_record_lock_ms", "group_share_max_record_lock_ms"
    ),
    "share.delivery.count.limit": _Source("group_share_deliveries", "group_share_min_deliveries", "group_share_max_deliveries"),
    "share.partition.max.record.locks": _Source("group_share_locks", "group_share_min_locks", "group_share_max_locks"),
}  # fmt: skip
GROUP_ATTRIBUTES = attributes_by_name(GroupConfig)
GROUP_SETTINGS = settings_by_name(GroupConfig)
_NODE_NAMES = {attribute: name for name, attribute in attributes_by_name(NodeSettings).items()}


def check_reset(text: str) -> int | None:
    """How many milliseconds ago a group begins; None where it names an end of the log. Raises ValueError."""
    if text in ("earliest", "latest"):
        return None
    found = _DURATION.fullmatch(text.removeprefix(BY_DURATION)) if text.startswith(BY_DURATION) else None
    if found is None:
        raise ValueError(
            f"share.auto.offset.reset must be earliest, latest or by_duration: with an ISO 8601 duration (P1DT2H3M4S), not {text!r}"
        )
    days, hours, minutes, seconds = (float(part or 0) for part in found.groups())
    return round(days * DAY_MS + hours * HOUR_MS + minutes * MINUTE_MS + seconds * SECOND_MS)


def node_setting_behind(name: str) -> str | None:
    """The node's setting that holds where a group was told nothing about this."""
    source = _SOURCES.get(name)
    return None if source is None else _NODE_NAMES[source.default]


def _within(node: NodeSettings, name: str, value: Value, *, is_strict: bool) -> Value:
    source = _SOURCES.get(name)
    if source is None or not source.least or not isinstance(value, int):
        return value
    least, most = int(getattr(node, source.least)), int(getattr(node, source.most))
    if is_strict and not least <= value <= most:
        raise _no(f"{name} must lie between {least} and {most} on these nodes (group.share.min and max settings), not {value}")
    return max(least, min(value, most))


def _no(reason: str) -> Refusal:
    return Refusal(ErrorCode.INVALID_CONFIG, reason)
