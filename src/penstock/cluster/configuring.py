"""Changing what a topic, a node or a group was told otherwise than its default: from the overrides that hold to those that will.

Two manners, as Kafka has them. Changes: set, delete, append to and subtract from a list; what is not named stays. Or `replaces_all`: what
is not named goes back to its default. One bad name or value and nothing of the command is stored. A name that is deleted need not be known,
so that what an older or newer Penstock has left behind can be taken away.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from penstock.cluster import records
from penstock.cluster.companions import not_directly
from penstock.cluster.image import ClusterImage
from penstock.cluster.records import EVERY_NODE
from penstock.cluster.topic_names import INTERNAL_TOPICS, check_topic_name
from penstock.errors import ErrorCode, Refusal
from penstock.settings import (
    DYNAMIC_SETTINGS,
    KAFKA_NAMES_WITHOUT_EFFECT,
    TOPIC_PREFIX,
    TOPIC_SETTINGS,
    GroupConfig,
    NodeSettings,
    TopicConfig,
)
from penstock.vocabulary import NodeId
from penstock.wire.configs import Operation

MIN_INSYNC = "min.insync.replicas"
AGREED_ON = (MIN_INSYNC, "flush", "flush.messages")  # Settings of topics that no node has for itself alone.
VALUE_BYTES_MAX = 32_767  # What fits a text of the older versions of the protocol; some settings have a bound of their own.

# Kafka's settings that are lists and that we only keep.
_KEPT_LISTS = {"follower.replication.throttled.replicas", "leader.replication.throttled.replicas"} & KAFKA_NAMES_WITHOUT_EFFECT


class Change(NamedTuple):
    name: str
    operation: Operation
    value: str = ""  # Of no meaning for DELETE.


@dataclass(frozen=True, slots=True)
class ConfigureTopic:
    topic: str
    changes: tuple[Change, ...]
    replaces_all: bool = False
    # What its asker has read, and the changes stand on: name and value, null where there is none. Refused where that is so no more.
    expected: tuple[tuple[str, str | None], ...] = ()


@dataclass(frozen=True, slots=True)
class ConfigureNode:
    node_id: NodeId  # Or EVERY_NODE.
    changes: tuple[Change, ...]
    replaces_all: bool = False


@dataclass(frozen=True, slots=True)
class ConfigureGroup:
    group: str
    changes: tuple[Change, ...]
    replaces_all: bool = False


def topic_configured(image: ClusterImage, defaults: TopicConfig, command: ConfigureTopic) -> records.TopicConfigured:
    name = check_topic_name(command.topic)
    topic = image.topics.get(name)
    held = {} if topic is None else topic.overrides

    def listed(setting: str) -> str | None:
        if setting in _KEPT_LISTS:
            return held.get(setting, "")
        is_list = setting in TOPIC_SETTINGS and TOPIC_SETTINGS[setting].is_list
        return defaults.with_overrides(held).as_texts()[setting] if is_list else None

    overrides = _changed(held, command, listed)
    check_together(name, defaults.with_overrides(overrides))
    if topic is not None and image.data_of(topic.topic_id) is not None:
        raise not_directly(name)
    if overrides != held:  # What is so already may be the same command's doing, asked a second time.
        _check_expected(held, command)
    if topic is None:  # Last, as at Kafka: a wrong setting is told of before a wrong topic.
        raise Refusal(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {name!r}")
    if not _is_torn(defaults.with_known(held), len(topic.partitions)):  # One that an older Penstock made may be changed otherwise.
        check_partitions(name, defaults.with_overrides(overrides), len(topic.partitions))
    return records.TopicConfigured(topic.topic_id, overrides)


def _check_expected(held: Mapping[str, str], command: ConfigureTopic) -> None:
    for name, value in command.expected:
        if held.get(name) != value:
            reason = f"{name} of the topic {command.topic!r} was changed by somebody else meanwhile: read it again"
            raise Refusal(ErrorCode.INVALID_UPDATE_VERSION, reason)


def check_together(name: str, config: TopicConfig) -> None:
    """What nodes keep in a topic of their own is the last record of each key: age must never take one. In a queue every message is work,
    whatever its key: compaction must never take one."""
    if name in INTERNAL_TOPICS and config.cleanup_policy != "compact":
        raise Refusal(ErrorCode.INVALID_CONFIG, f"topic {name!r} is the cluster's own: its cleanup.policy is compact and stays so")
    if name in INTERNAL_TOPICS and config.queue_enabled:
        raise Refusal(ErrorCode.INVALID_CONFIG, f"topic {name!r} is the cluster's own: it cannot be used as a queue")
    if config.queue_enabled and "compact" in config.cleanup_policy:
        reason = f"topic {name!r} cannot be a queue and be compacted: jobs with one key would be lost; let its cleanup.policy be delete"
        raise Refusal(ErrorCode.INVALID_CONFIG, reason)
    if config.queue_dead_letter == name:
        reason = f"the dead letters of {name!r} cannot go to {name!r} itself: they would fail there for ever; name another queue"
        raise Refusal(ErrorCode.INVALID_CONFIG, reason)


def check_partitions(name: str, config: TopicConfig, partitions: int) -> None:
    """Partitions do not know of each other's deduplication ids. On other queues the id chooses the partition, here the group must."""
    if _is_torn(config, partitions):
        reason = f"{name!r} is a FIFO queue of {partitions} partitions, whose deduplication ids cannot count in the whole queue: "
        raise Refusal(ErrorCode.INVALID_CONFIG, reason + "let queue.dedup.scope be group, or make it with one partition")


def _is_torn(config: TopicConfig, partitions: int) -> bool:
    return config.queue_enabled and config.queue_fifo and config.queue_dedup_scope == "queue" and partitions > 1


def node_configured(image: ClusterImage, command: ConfigureNode) -> records.NodeConfigured:
    if command.node_id != EVERY_NODE and command.node_id not in image.nodes:
        raise Refusal(ErrorCode.INVALID_REQUEST, f"there is no node {command.node_id}")
    held = image.node_overrides.get(command.node_id, {})

    def listed(setting: str) -> str | None:
        known = DYNAMIC_SETTINGS.get(setting)
        return held.get(setting, str(known.default)) if known is not None and known.is_list else None

    overrides = _changed(held, command, listed)
    NodeSettings().with_changes(overrides)
    for name in AGREED_ON if command.node_id != EVERY_NODE else ():
        if overrides.get(TOPIC_PREFIX + name) not in (None, held.get(TOPIC_PREFIX + name)):
            reason = f"{name} tells which replicas may lead, so all nodes must agree on it: set it for every node, or for a topic"
            raise Refusal(ErrorCode.INVALID_CONFIG, reason)
    return records.NodeConfigured(command.node_id, overrides)


def group_configured(image: ClusterImage, settings: NodeSettings, command: ConfigureGroup) -> records.GroupConfigured:
    """A group is told something before it has members, as at Kafka; so how many are told anything is bounded as groups are."""
    if not command.group or len(command.group.encode()) > VALUE_BYTES_MAX:
        raise Refusal(ErrorCode.INVALID_REQUEST, f"name a group, in {VALUE_BYTES_MAX} bytes at most")
    held = image.group_configs.get(command.group, {})
    overrides = _changed(held, command, lambda _: None)
    GroupConfig.checked(settings, overrides)
    if overrides and not held and len(image.group_configs) >= settings.groups_max:
        reason = f"{settings.groups_max} groups have settings of their own (groups.max): take those of others away first"
        raise Refusal(ErrorCode.POLICY_VIOLATION, reason)
    return records.GroupConfigured(command.group, overrides)


def _changed(
    held: Mapping[str, str], command: ConfigureTopic | ConfigureNode | ConfigureGroup, listed: Callable[[str], str | None]
) -> dict[str, str]:  # fmt: skip
    """`listed` tells the list that a setting holds now, None for one that is no list."""
    overrides = {} if command.replaces_all else dict(held)
    for name, operation, value in command.changes:
        known = TOPIC_SETTINGS.get(name)
        bytes_max = VALUE_BYTES_MAX if known is None or known.bytes_max is None else known.bytes_max
        if len(value.encode()) > bytes_max:
            raise Refusal(ErrorCode.INVALID_CONFIG, f"{name}: a value has at most {bytes_max} bytes")
        if operation is Operation.DELETE:
            overrides.pop(name, None)
        elif operation is Operation.SET:
            overrides[name] = value
        else:
            overrides[name] = _edited(name, listed(name), operation, value.split(","))
    return overrides


def _edited(name: str, current: str | None, operation: Operation, words: list[str]) -> str:
    if current is None:
        raise Refusal(ErrorCode.INVALID_CONFIG, f"{name} is not a list: it can be set or deleted only")
    listed = [word for word in current.split(",") if word]
    if operation is Operation.APPEND:
        return ",".join(dict.fromkeys([*listed, *words]))
    return ",".join(word for word in listed if word not in words)
