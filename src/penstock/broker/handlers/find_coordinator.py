"""FindCoordinator, versions 0 to 6 (KIP-699 several keys at once from version 4, KIP-890 and KIP-932 in 5 and 6).

Every group's coordinator is this node. Whoever asks first has the groups' internal topic made, and is answered once it is there.
Refused with INVALID_REQUEST: coordinators of transactions and of share groups, which this node doesn't serve; a client gives up on that
at once, instead of asking again for ever.
"""

from typing import TYPE_CHECKING, Any

from penstock.broker.calls import Call
from penstock.errors import ErrorCode, Refusal
from penstock.wire import schemas

if TYPE_CHECKING:
    from penstock.broker.node import Node

GROUP = 0
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
        if key_type != GROUP:
            raise Refusal(ErrorCode.INVALID_REQUEST, "this node coordinates consumer groups only")
        await node.groups.prepare()
        if node.groups.find(key).unavailable is ErrorCode.NOT_COORDINATOR:
            raise Refusal(ErrorCode.COORDINATOR_NOT_AVAILABLE, "the group's log is offline")
    except Refusal as refusal:
        code = ErrorCode.COORDINATOR_NOT_AVAILABLE if refusal.code is not ErrorCode.INVALID_REQUEST else refusal.code
        return _found(code, refusal.reason, _NOBODY)
    node_id, host, port, _ = node.endpoints()[0]
    return _found(ErrorCode.NONE, None, (node_id, host, port))


def _found(code: ErrorCode, message: str | None, where: tuple[int, str, int]) -> dict[str, Any]:
    node_id, host, port = where
    return {"error_code": code, "error_message": message, "node_id": node_id, "host": host, "port": port}
