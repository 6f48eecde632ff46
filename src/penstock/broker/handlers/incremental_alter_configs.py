"""IncrementalAlterConfigs, versions 0 and 1 (KIP-339): set, delete, append to and subtract from lists.

Each resource stands or falls as a whole and by itself. What is told holds when the reply leaves: the logs that are open follow it. A topic
setting that doesn't exist, or can't be so: INVALID_CONFIG. A node setting that can't be changed while it runs, or can't be so:
INVALID_REQUEST, as Kafka answers (KAFKA-13609); one that doesn't exist: INVALID_CONFIG, where Kafka would keep it for a plugin.
Groups (KIP-848, KIP-1240): what is told holds with the next heartbeat or fetch; the group need not be there yet.
Gaps: brokers' loggers and client metrics are refused with INVALID_REQUEST.
"""

from collections import Counter
from typing import TYPE_CHECKING, Any

from penstock.broker.calls import Call
from penstock.broker.config_resources import configured_group, configured_node, not_configurable
from penstock.cluster.configuring import Change, ConfigureGroup, ConfigureNode, ConfigureTopic
from penstock.errors import ErrorCode, Refusal
from penstock.wire import schemas
from penstock.wire.configs import Operation, ResourceType

if TYPE_CHECKING:
    from penstock.broker.node import Node

Configure = ConfigureTopic | ConfigureNode | ConfigureGroup

_OPERATIONS = {operation.value: operation for operation in Operation}


async def incremental_alter_configs(node: "Node", call: Call) -> dict[str, Any]:
    request = schemas.read_request(call.api_key, call.version, call.frame, call.body_at)
    return await alter(node, request, replaces_all=False)


async def alter(node: "Node", request: Any, *, replaces_all: bool) -> dict[str, Any]:
    """For both ways of altering. Every resource that was named is answered, in order."""
    named = Counter((resource.resource_type, resource.resource_name) for resource in request.resources)
    rows = []
    for resource in request.resources:
        code, reason = ErrorCode.NONE, None
        try:
            if named[resource.resource_type, resource.resource_name] > 1:
                raise Refusal(ErrorCode.INVALID_REQUEST, "the request names this resource more than once")
            await _carry_out(node, _command(node, resource, replaces_all), is_trial=request.validate_only)
        except Refusal as refusal:
            code, reason = refusal.code, refusal.reason
        echo = {"resource_type": resource.resource_type, "resource_name": resource.resource_name}
        rows.append(echo | {"error_code": code, "error_message": reason})
    return {"responses": rows}


async def _carry_out(node: "Node", command: Configure, *, is_trial: bool) -> None:
    (reply,) = node.controller.decide(command).replies if is_trial else await node.submit(command)
    if isinstance(reply, Refusal):
        raise reply


def _command(node: "Node", resource: Any, replaces_all: bool) -> Configure:
    changes = _changes(resource.configs)
    if resource.resource_type == ResourceType.TOPIC:
        if not resource.resource_name:
            raise Refusal(ErrorCode.INVALID_REQUEST, "name a topic: what every topic starts from is a node's setting (topic.NAME)")
        return ConfigureTopic(resource.resource_name, changes, replaces_all)
    if resource.resource_type == ResourceType.BROKER:
        return ConfigureNode(configured_node(node, resource.resource_name), changes, replaces_all)
    if resource.resource_type == ResourceType.GROUP:
        return ConfigureGroup(configured_group(resource.resource_name), changes, replaces_all)
    raise not_configurable(resource.resource_type)


def _changes(configs: Any) -> tuple[Change, ...]:
    changes = []
    for config in configs:
        operation = _OPERATIONS.get(getattr(config, "config_operation", Operation.SET))
        if operation is None:
            raise Refusal(ErrorCode.INVALID_REQUEST, f"there is no operation {config.config_operation}")
        if config.value is None and operation is not Operation.DELETE:
            raise Refusal(ErrorCode.INVALID_REQUEST, f"{config.name} needs a value")
        changes.append(Change(config.name, operation, config.value or ""))
    if len({change.name for change in changes}) < len(changes):
        raise Refusal(ErrorCode.INVALID_REQUEST, "the request names a setting more than once")
    return tuple(changes)
