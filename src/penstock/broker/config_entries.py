"""What every setting of a topic, a node or a group is now, and where that comes from: for all who describe it.

A value has layers; the first that speaks holds, and all are its synonyms (KIP-226): the topic's own override, what this node was told
while it ran, what every node was told, what the node was started with, the default. A node setting that was given its default at start
counts as the default. On a node the settings that topics start from are named with `topic.` in front, as in its configuration file.
"""

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, NamedTuple

from penstock.cluster.records import EVERY_NODE
from penstock.settings import (
    DYNAMIC_SETTINGS,
    GROUP_SETTINGS,
    INHERITED_SETTINGS,
    INT_MAX,
    NODE_SETTINGS,
    TOPIC_PREFIX,
    TOPIC_SETTINGS,
    GroupConfig,
    NodeSettings,
    Setting,
    TopicConfig,
)
from penstock.settings.group import node_setting_behind
from penstock.vocabulary import NodeId
from penstock.wire.configs import ConfigType, Source

if TYPE_CHECKING:
    from penstock.broker.node import Node


Values = tuple[Mapping[str, str], Source]


class Layer(NamedTuple):
    name: str
    value: str
    source: Source


class ConfigEntry(NamedTuple):
    name: str
    layers: tuple[Layer, ...]  # The one that holds stands first; never empty.
    setting: Setting | None  # None for those of Kafka's names that are kept and have no effect.
    is_read_only: bool = False

    @property
    def value(self) -> str:
        return self.layers[0].value

    @property
    def source(self) -> Source:
        return self.layers[0].source

    @property
    def config_type(self) -> ConfigType:
        return ConfigType.UNKNOWN if self.setting is None else _type_of(self.setting)

    @property
    def documentation(self) -> str:
        return "Kept for tools that set it; without effect here." if self.setting is None else self.setting.reason


def topic_entries(node: "Node", overrides: Mapping[str, str]) -> list[ConfigEntry]:
    """Of a topic with these overrides."""
    below = _node_layers(node)
    own = (overrides, Source.TOPIC)
    entries = []
    for name, setting in TOPIC_SETTINGS.items():
        default = Layer(name, _TOPIC_DEFAULTS[name], Source.DEFAULT)
        entries.append(ConfigEntry(name, (*_layers(name, setting, [own]), *_layers(TOPIC_PREFIX + name, setting, below), default), setting))
    kept = [name for name in overrides if name not in TOPIC_SETTINGS]
    return entries + [ConfigEntry(name, (Layer(name, overrides[name], Source.TOPIC),), None) for name in kept]


def node_entries(node: "Node") -> list[ConfigEntry]:
    """Of this node: all that it was started with, and all that its topics start from."""
    below = _node_layers(node)
    own = [(name, setting, _NODE_DEFAULTS[name]) for name, setting in NODE_SETTINGS.items()]
    inherited = [(name, setting, _TOPIC_DEFAULTS[setting.name]) for name, setting in INHERITED_SETTINGS.items()]
    entries = []
    for name, setting, default in own + inherited:
        layers = (*_layers(name, setting, below), Layer(name, default, Source.DEFAULT))
        entries.append(ConfigEntry(name, layers, setting, is_read_only=name not in DYNAMIC_SETTINGS))
    return entries


def every_node_entries(node: "Node") -> list[ConfigEntry]:
    """What every node was told while it ran."""
    told = node.image.node_overrides.get(EVERY_NODE, {})
    return [ConfigEntry(name, (Layer(name, value, Source.EVERY_NODE),), DYNAMIC_SETTINGS.get(name)) for name, value in told.items()]


def group_entries(node: "Node", group: str) -> list[ConfigEntry]:
    """Of a group, whether it is there or not: what it was told, then what the nodes have for all groups."""
    told, below = node.image.group_configs.get(group, {}), _node_layers(node)
    entries = []
    for name, setting in GROUP_SETTINGS.items():
        layers = _layers(name, setting, [(told, Source.GROUP)])
        behind = node_setting_behind(name)
        layers += _layers(behind, setting, below) if behind is not None else []
        entries.append(ConfigEntry(name, (*layers, Layer(name, _GROUP_DEFAULTS[name], Source.DEFAULT)), setting))
    kept = [name for name in told if name not in GROUP_SETTINGS]
    return entries + [ConfigEntry(name, (Layer(name, told[name], Source.GROUP),), None) for name in kept]


def _node_layers(node: "Node") -> list[Values]:
    told = node.image.node_overrides
    return [
        (told.get(NodeId(node.settings.node_id), {}), Source.THIS_NODE),
        (told.get(EVERY_NODE, {}), Source.EVERY_NODE),
        (_given_at_start(node.started_with), Source.STARTED_WITH),
    ]


def _given_at_start(settings: NodeSettings) -> dict[str, str]:
    given = {name: text for name, text in settings.as_texts().items() if text != _NODE_DEFAULTS[name]}
    return given | {TOPIC_PREFIX + name: text for name, text in settings.topic_defaults.items()}


def _layers(name: str, setting: Setting, below: Iterable[Values]) -> list[Layer]:
    return [Layer(name, setting.spelled(values[name]), source) for values, source in below if name in values]


def _type_of(setting: Setting) -> ConfigType:
    if isinstance(setting.default, bool):
        return ConfigType.BOOLEAN
    if isinstance(setting.default, int):
        return ConfigType.INT if setting.bounds is not None and setting.bounds[1] <= INT_MAX else ConfigType.LONG
    if isinstance(setting.default, float):
        return ConfigType.DOUBLE
    return ConfigType.LIST if setting.is_list else ConfigType.STRING


_NODE_DEFAULTS, _TOPIC_DEFAULTS, _GROUP_DEFAULTS = NodeSettings().as_texts(), TopicConfig().as_texts(), GroupConfig().as_texts()
