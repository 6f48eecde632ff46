"""What a node is started with, and which of it changes while it runs."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, cast

from penstock.errors import ErrorCode, Refusal
from penstock.settings.clusters import ClusterSettings
from penstock.settings.groups import GroupsSettings
from penstock.settings.serving import ServingSettings
from penstock.settings.setting import Value, as_text, attributes_by_name, settings_by_name
from penstock.settings.share_groups import ShareGroupsSettings
from penstock.settings.topic import TOPIC_SETTINGS, TopicConfig

TOPIC_PREFIX = "topic."  # In front of a topic setting's name: what every topic of the node starts from.


@dataclass(frozen=True)
class NodeSettings(ClusterSettings, ShareGroupsSettings, GroupsSettings, ServingSettings):
    topic_defaults: Mapping[str, str] = field(default_factory=dict)  # The `[topic]` table: overrides of TopicConfig for every topic.

    def default_topic_config(self) -> TopicConfig:
        for name in self.topic_defaults:
            if name in TOPIC_SETTINGS and TOPIC_SETTINGS[name].is_own:
                raise Refusal(ErrorCode.INVALID_CONFIG, f"{name} is told to each topic by itself: it has no default for all of them")
        return TopicConfig().with_overrides(self.topic_defaults)

    def as_texts(self) -> dict[str, str]:
        """Every setting of the node itself by name, as it would be written."""
        return {name: as_text(getattr(self, attribute)) for name, attribute in _ATTRIBUTES.items()}

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
                values[_ATTRIBUTES[name]] = value
            else:
                topic_defaults[name.removeprefix(TOPIC_PREFIX)] = text
        changed = replace(self, **cast(dict[str, Any], values), topic_defaults=topic_defaults)
        changed.default_topic_config()
        return changed


def _refused_name(name: str) -> Refusal:
    if name in NODE_SETTINGS:
        return Refusal(ErrorCode.INVALID_REQUEST, f"{name} holds from one start to the next and cannot be changed while the node runs")
    if name.removeprefix(TOPIC_PREFIX) in TOPIC_SETTINGS and name.startswith(TOPIC_PREFIX):
        return Refusal(ErrorCode.INVALID_CONFIG, f"{name.removeprefix(TOPIC_PREFIX)} is told to each topic by itself: name the topic")
    return Refusal(ErrorCode.INVALID_CONFIG, f"there is no node setting {name!r}")


_ATTRIBUTES = attributes_by_name(NodeSettings)
NODE_SETTINGS = settings_by_name(NodeSettings)

# What topics start from on a node, by the names that it has there.
INHERITED_SETTINGS = {TOPIC_PREFIX + name: setting for name, setting in TOPIC_SETTINGS.items() if not setting.is_own}

# What a running node takes: some of its own settings, and everything that its topics start from.
DYNAMIC_SETTINGS = {name: setting for name, setting in NODE_SETTINGS.items() if setting.is_dynamic} | INHERITED_SETTINGS


def node_settings(values: Mapping[str, str], topic_defaults: Mapping[str, str] | None = None) -> NodeSettings:
    """Settings from texts by name. Raises ValueError with a sentence for a bad name or value."""
    changes: dict[str, Any] = {}
    for name, text in values.items():
        if name not in NODE_SETTINGS:
            raise ValueError(f"there is no node setting {name!r}")
        changes[_ATTRIBUTES[name]] = NODE_SETTINGS[name].parse(text)
    settings = NodeSettings(**changes, topic_defaults=dict(topic_defaults or {}))
    try:
        settings.default_topic_config()
    except Refusal as refusal:
        raise ValueError(refusal.reason) from None
    return settings
