"""DescribeConfigs, versions 1 to 4 (KIP-133, KIP-226 synonyms, KIP-569 types and documentation).

A topic tells every topic setting; this node every node setting, and with `topic.` in front what its topics start from; the node without a
name what every node was told while it ran. Asked for single names, those that don't exist are left out, as at Kafka.
A group tells every group setting, whether it is there or not (KIP-848, KIP-1240). A subscription to client metrics was never told anything:
no settings, and no error, since tools ask about all that they see.
Gaps: brokers' loggers have no configs here: INVALID_REQUEST.
"""

from collections.abc import Hashable
from typing import TYPE_CHECKING, Any

from penstock.broker.calls import Call
from penstock.broker.config_entries import ConfigEntry, every_node_entries, group_entries, node_entries, topic_entries
from penstock.broker.config_resources import configured_group, configured_node, not_configurable
from penstock.broker.patience import Patience
from penstock.cluster.configuring import VALUE_BYTES_MAX
from penstock.cluster.image import Topic
from penstock.cluster.records import EVERY_NODE
from penstock.cluster.topic_names import check_topic_name
from penstock.errors import ErrorCode, Refusal
from penstock.vocabulary import Buffer, NodeId
from penstock.wire import schemas
from penstock.wire.configs import ResourceType
from penstock.wire.describe_configs import ConfigResult, ConfigRow, encode_configs, write_describe_configs_response

if TYPE_CHECKING:
    from penstock.broker.node import Node

LONG_TEXTS_FROM = 4

Described = Topic | NodeId | str  # The last: a group.


async def describe_configs(node: "Node", call: Call) -> list[Buffer]:
    request = schemas.read_request(call.api_key, call.version, call.frame, call.body_at)
    describing, patience, results = Describing(node, call.version, request), Patience(node.env), []
    for resource in request.resources:
        results.append(describing.result(resource))
        await patience.pause_if_over()
    return [write_describe_configs_response(call.version, call.correlation_id, results)]


class Describing:
    """One request. Most topics were told the same, so what was encoded for one is kept for the others."""

    def __init__(self, node: "Node", version: int, request: Any) -> None:
        self._node = node
        self._version = version
        self._has_synonyms = request.include_synonyms
        self._has_documentation = getattr(request, "include_documentation", False)
        self._encoded: dict[Hashable, bytes] = {}

    def result(self, resource: Any) -> ConfigResult:
        kind, name = resource.resource_type, resource.resource_name
        if kind == ResourceType.CLIENT_METRICS and name:
            return ConfigResult(kind, name, encode_configs(self._version, ()))
        try:
            return ConfigResult(kind, name, self._configs(_described(self._node, kind, name), resource.configuration_keys or ()))
        except Refusal as refusal:
            return ConfigResult(kind, name, encode_configs(self._version, ()), refusal.code, refusal.reason)

    def _configs(self, described: Described, wanted: tuple[str, ...]) -> bytes:
        told = tuple(described.overrides.items()) if isinstance(described, Topic) else described
        encoded = self._encoded.get((told, wanted))
        if encoded is None:
            rows = [self._row(entry) for entry in self._entries(described) if not wanted or entry.name in wanted]
            encoded = self._encoded[told, wanted] = encode_configs(self._version, rows)
        return encoded

    def _entries(self, described: Described) -> list[ConfigEntry]:
        if isinstance(described, Topic):
            return topic_entries(self._node, described.overrides)
        if isinstance(described, str):
            return group_entries(self._node, described)
        return every_node_entries(self._node) if described == EVERY_NODE else node_entries(self._node)

    def _row(self, entry: ConfigEntry) -> ConfigRow:
        documentation = entry.documentation if self._has_documentation else None
        synonyms = [(layer.name, self._told(layer.value), layer.source) for layer in entry.layers] if self._has_synonyms else ()
        return ConfigRow(entry.name, self._told(entry.value), entry.is_read_only, entry.source, entry.config_type, documentation, synonyms)

    def _told(self, value: str) -> str | None:
        """Longer texts don't fit the older versions, which leave them out."""
        return value if self._version >= LONG_TEXTS_FROM or len(value.encode()) <= VALUE_BYTES_MAX else None


def _described(node: "Node", kind: int, name: str) -> Described:
    if kind == ResourceType.GROUP:
        return configured_group(name)
    if kind == ResourceType.BROKER:
        return configured_node(node, name)
    if kind != ResourceType.TOPIC:
        raise not_configurable(kind)
    topic = node.image.topics.get(check_topic_name(name))
    if topic is None:
        raise Refusal(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {name!r}")
    return topic
