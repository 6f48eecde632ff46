"""Every setting, once: its name, default, bounds, the reason to change it, and whether a running node takes a new value.

Three scopes. `TopicConfig` holds what a topic may override, under Kafka's names where Kafka has one; all of it may change while the topic is
in use. `NodeSettings` holds what a node is started with; those marked `dynamic` may be changed through the protocol while it runs, and so
may what topics start from (`topic.` in front of a topic setting's name). A setting is dynamic only where the new value holds at once.
`GroupConfig` holds what a group may override of what the nodes have for all groups.
The reference page is made from these files, so a reason is written for the person who reads it there.
Not here: where values come from (flags, variables, a file): server/configuration.py.
"""

from penstock.settings.group import GROUP_SETTINGS, GroupConfig
from penstock.settings.node import DYNAMIC_SETTINGS, INHERITED_SETTINGS, NODE_SETTINGS, TOPIC_PREFIX, NodeSettings, node_settings
from penstock.settings.setting import DAY_MS, GIB, HOUR_MS, INT_MAX, KIB, LONG_MAX, MIB, MINUTE_MS, SECOND_MS, Setting, Value
from penstock.settings.topic import KAFKA_NAMES_WITHOUT_EFFECT, TOPIC_SETTINGS, TopicConfig

__all__ = [
    "DAY_MS", "DYNAMIC_SETTINGS", "GIB", "GROUP_SETTINGS", "HOUR_MS", "INHERITED_SETTINGS", "INT_MAX", "KAFKA_NAMES_WITHOUT_EFFECT", "KIB",
    "LONG_MAX", "MIB", "MINUTE_MS", "NODE_SETTINGS", "SECOND_MS", "TOPIC_PREFIX", "TOPIC_SETTINGS", "GroupConfig", "NodeSettings", "Setting",
    "TopicConfig", "Value", "node_settings",
]  # fmt: skip
