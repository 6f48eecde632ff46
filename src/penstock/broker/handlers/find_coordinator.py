"""FindCoordinator, versions 0 to 6 (KIP-699 several keys at once from version 4, KIP-890 and KIP-932 in 5 and 6).

The coordinator of a group or of a transactional id is the node that leads its partition of their internal topic. Whoever asks first has
that topic made, and is answered once it is there.
A share group has the coordinator of any group; a coordinator of what it has acknowledged, for which Kafka's brokers ask each other, is
refused with INVALID_REQUEST: here that lies with the partitions' leaders.
"""

from typing import TYPE_CHECKING, Any

from penstock.broker.calls import Call
from penstock.broker.coordinators import Coordinators
from penstock.errors import ErrorCode, Refusal
from penstock.vocabulary import NO_NODE
from penstock.wire import schemas

if TYPE_CHECKING:
    from penstock.broker.node import Node

GROUP, TRANSACTION = 0, 1
_MANY_FROM = 4
_NOBODY = (-1, "", -1)


async def find_coordinator(node: "Node", call: Call) -> dict[str, Any]:
    request = schemas.read_request(call.api_key, call.version, call.frame, call.body_at)
    key_type = getattr(request, "key_type", GROUP)
    if call.version < _MANY_FROM:
        return await _find(node, key_type, request.key)
    return {"coordinators": [{"key": key, **await _find(node, key_type, key)} for key in request.coordinator_keys]}


async def _find(node: "Node", key_type: int, key: str) -> dict[str, Any]:
    try:
        if key_type not in (GROUP, TRANSACTION) or (key_type == TRANSACTION and not key):
            raise Refusal(ErrorCode.INVALID_REQUEST, "this node coordinates consumer groups and transactions, which have a name")
        coordinators: Coordinators[Any, Any, Any] = node.groups if key_type == GROUP else node.transactions
        await coordinators.prepare()
        return _found(ErrorCode.NONE, None, _coordinator(node, coordinators, key))
    except Refusal as refusal:
        code = ErrorCode.COORDINATOR_NOT_AVAILABLE if refusal.code is not ErrorCode.INVALID_REQUEST else refusal.code
        return _found(code, refusal.reason, _NOBODY)


def _coordinator(node: "Node", coordinators: Coordinators[Any, Any, Any], key: str) -> tuple[int, str, int]:
    index = coordinators.partition_of(key)
    topic = node.image.topics.get(coordinators.topic)
    leader = NO_NODE if index is None or topic is None else topic.partitions[index].leader
    if leader == node.settings.node_id and coordinators.find(key).unavailable is ErrorCode.NOT_COORDINATOR:
        raise Refusal(ErrorCode.COORDINATOR_NOT_AVAILABLE, "the coordinator's log is offline")
    for node_id, host, port, _ in node.endpoints():
        if node_id == leader:
            return node_id, host, port
    raise Refusal(ErrorCode.COORDINATOR_NOT_AVAILABLE, "nobody leads the coordinator's log now")


def _found(code: ErrorCode, message: str | None, where: tuple[int, str, int]) -> dict[str, Any]:
    node_id, host, port = where
    return {"error_code": code, "error_message": message, "node_id": node_id, "host": host, "port": port}
