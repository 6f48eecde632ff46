"""DescribeConfigs, versions 1 to 4 (KIP-133, KIP-226 synonyms, KIP-569 types and documentation).

A topic tells every topic setting; this node every node setting, and with `topic.` in front what its topics start from; the node without a
name what every node was told while it ran. Asked for single names, those that don't exist are left out, as at Kafka.
Gaps: brokers' loggers, client metrics and groups have no configs here: INVALID_REQUEST, each by itself.
"""

from typing import TYPE_CHECKING, Any

from penstock.broker.calls import Call
from penstock.broker.config_entries import ConfigEntry, every_node_entries, node_entries, topic_entries
from penstock.broker.config_resources import configured_node, not_configurable
from penstock.broker.patience import Patience
from penstock.cluster.records import EVERY_NODE
from penstock.cluster.topic_names import check_topic_name
from penstock.errors import ErrorCode, Refusal
from penstock.vocabulary import Buffer
from penstock.wire import schemas
from penstock.wire.configs import ResourceType

if TYPE_CHECKING:
    from penstock.broker.node import Node

RESOURCES_AT_ONCE = 10  # More are encoded away from the loop: kafka-topics asks for all topics in one request.


async def describe_configs(node: "Node", call: Call) -> dict[str, Any] | list[Buffer]:
    request = schemas.read_request(call.api_key, call.version, call.frame, call.body_at)
    has_documentation = getattr(request, "include_documentation", False)
    results = []
    patience = Patience(node.env)
    for resource in request.resources:
        results.append(_describe(node, resource, request.include_synonyms, has_documentation))
        await patience.pause_if_over()
    answer = {"results": results}
    if len(results) <= RESOURCES_AT_ONCE:
        return answer
    return [await node.env.offload(schemas.write_response, call.api_key, call.version, call.correlation_id, answer)]


def _describe(node: "Node", resource: Any, has_synonyms: bool, has_documentation: bool) -> dict[str, Any]:
    echo = {"resource_type": resource.resource_type, "resource_name": resource.resource_name}
    try:
        entries = _entries(node, resource.resource_type, resource.resource_name)
    except Refusal as refusal:
        return echo | {"error_code": refusal.code, "error_message": refusal.reason}
    wanted = resource.configuration_keys
    chosen = entries if not wanted else [entry for entry in entries if entry.name in wanted]
    return echo | {"configs": [_row(entry, has_synonyms, has_documentation) for entry in chosen]}


def _entries(node: "Node", resource_type: int, name: str) -> list[ConfigEntry]:
    if resource_type == ResourceType.BROKER:
        return every_node_entries(node) if configured_node(node, name) == EVERY_NODE else node_entries(node)
    if resource_type != ResourceType.TOPIC:
        raise not_configurable(resource_type)
    topic = node.image.topics.get(check_topic_name(name))
    if topic is None:
        raise Refusal(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {name!r}")
    return topic_entries(node, topic.overrides)


def _row(entry: ConfigEntry, has_synonyms: bool, has_documentation: bool) -> dict[str, Any]:
    return {
        "name": entry.name,
        "value": entry.value,
        "read_only": entry.is_read_only,
        "config_source": entry.source,
        "is_sensitive": False,
        "synonyms": [layer._asdict() for layer in entry.layers] if has_synonyms else [],
        "config_type": entry.config_type,
        "documentation": entry.documentation if has_documentation else None,
    }
