"""What configs are about, in the protocol's terms: a type and a name (KIP-133, KIP-412, KIP-1142)."""

from enum import IntEnum
from typing import TYPE_CHECKING

from penstock.cluster.records import EVERY_NODE
from penstock.errors import ErrorCode, Refusal
from penstock.vocabulary import NodeId

if TYPE_CHECKING:
    from penstock.broker.node import Node


class ResourceType(IntEnum):
    """By Kafka's numbers."""

    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    CLIENT_METRICS = 16
    GROUP = 32


def configured_node(node: "Node", name: str) -> NodeId:
    """The node that a resource of type BROKER names: this one, or with an empty name every one."""
    if not name:
        return EVERY_NODE
    if name != str(node.settings.node_id):
        raise Refusal(ErrorCode.INVALID_REQUEST, f"this is node {node.settings.node_id}, not {name!r}; an empty name stands for every node")
    return NodeId(node.settings.node_id)


def not_configurable(resource_type: int) -> Refusal:
    names = {kind.value: kind.name for kind in ResourceType}
    return Refusal(ErrorCode.INVALID_REQUEST, f"resources of type {names.get(resource_type, resource_type)} have no configs here")
