"""What a config request is about: the topic, node or group that a resource's type and name stand for."""

from typing import TYPE_CHECKING

from penstock.cluster.records import EVERY_NODE
from penstock.errors import ErrorCode, Refusal
from penstock.vocabulary import NodeId
from penstock.wire.configs import ResourceType

if TYPE_CHECKING:
    from penstock.broker.node import Node


def configured_node(node: "Node", name: str) -> NodeId:
    """The node that a resource of type BROKER names: this one, or with an empty name every one."""
    if not name:
        return EVERY_NODE
    if name != str(node.settings.node_id):
        raise Refusal(ErrorCode.INVALID_REQUEST, f"this is node {node.settings.node_id}, not {name!r}; an empty name stands for every node")
    return NodeId(node.settings.node_id)


def configured_group(name: str) -> str:
    if not name:
        raise Refusal(ErrorCode.INVALID_REQUEST, "name a group: what holds for all of them are settings of nodes")
    return name


def not_configurable(resource_type: int) -> Refusal:
    names = {kind.value: kind.name for kind in ResourceType}
    return Refusal(ErrorCode.INVALID_REQUEST, f"resources of type {names.get(resource_type, resource_type)} have no configs here")
