"""InitProducerId, versions 0 to 5 (KIP-98, KIP-360), for idempotent producers.

Whoever asks without a transactional id gets a new producer id and epoch 0, also when it names an old one, as Kafka does.
Gaps: transactional ids are refused until there are transactions.
"""

from typing import TYPE_CHECKING, Any

from penstock.broker.calls import Call
from penstock.errors import ErrorCode, Refusal
from penstock.wire import schemas

if TYPE_CHECKING:
    from penstock.broker.node import Node

_NOBODY = {"producer_id": -1, "producer_epoch": -1}


async def init_producer_id(node: "Node", call: Call) -> dict[str, Any]:
    request = schemas.read_request(call.api_key, call.version, call.frame, call.body_at)
    if request.transactional_id is not None:
        return {"error_code": ErrorCode.INVALID_REQUEST, **_NOBODY}
    try:
        return {"error_code": ErrorCode.NONE, "producer_id": await node.producer_ids.next_id(), "producer_epoch": 0}
    except Refusal as refusal:
        return {"error_code": refusal.code, **_NOBODY}
