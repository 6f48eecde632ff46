"""InitProducerId, versions 0 to 5 (KIP-98, KIP-360, KIP-588 errors from 4, KIP-890 in 5).

Whoever asks without a transactional id gets a new producer id and epoch 0, also when it names an old one, as Kafka does. With one, its
coordinator decides: what another producer has open under the id is aborted first, and the asker comes again (CONCURRENT_TRANSACTIONS).
Gaps: two-phase commits (KIP-939, version 6).
"""

from typing import TYPE_CHECKING, Any

from penstock.broker.askers import Asker
from penstock.broker.calls import Call
from penstock.errors import ErrorCode, Refusal
from penstock.transactions.commands import InitProducer
from penstock.transactions.replies import InitReply
from penstock.vocabulary import NO_PRODUCER, ProducerId
from penstock.wire import schemas

if TYPE_CHECKING:
    from penstock.broker.node import Node

_NOBODY = {"producer_id": -1, "producer_epoch": -1}
_FENCED_FROM = 4
_TRANSACTION_V2_FROM = 5


async def init_producer_id(node: "Node", call: Call) -> dict[str, Any]:
    request = schemas.read_request(call.api_key, call.version, call.frame, call.body_at)
    try:
        if request.transactional_id is None:
            return {"error_code": ErrorCode.NONE, "producer_id": await node.producer_ids.next_id(), "producer_epoch": 0}
        reply = await _begin(node, call.version, request)
    except Refusal as refusal:
        return {"error_code": refusal.code, **_NOBODY}
    error = spoken(reply.error, call.version, _FENCED_FROM)
    return {"error_code": error, "producer_id": reply.producer_id, "producer_epoch": reply.producer_epoch}


async def _begin(node: "Node", version: int, request: Any) -> InitReply:
    transactional_id = str(request.transactional_id)
    if not transactional_id:
        raise Refusal(ErrorCode.INVALID_REQUEST, "a transactional id is not empty")
    coordinator = node.transactions.find(transactional_id)
    fresh = await node.producer_ids.next_id() if node.transactions.needs_producer_id(transactional_id) else NO_PRODUCER

    def order(asker: Asker) -> InitProducer:
        return InitProducer(
            token=asker,
            transactional_id=transactional_id,
            timeout_ms=schemas.milliseconds(request.transaction_timeout),
            producer_id=ProducerId(getattr(request, "producer_id", NO_PRODUCER)),
            producer_epoch=getattr(request, "producer_epoch", -1),
            fresh_producer_id=fresh,
            is_transaction_v2=version >= _TRANSACTION_V2_FROM,
        )

    reply: InitReply = await coordinator.ask(order)
    return reply


def spoken(error: ErrorCode, version: int, fenced_from: int) -> ErrorCode:
    """Older clients know their being fenced by another name (KIP-588)."""
    return ErrorCode.INVALID_PRODUCER_EPOCH if error is ErrorCode.PRODUCER_FENCED and version < fenced_from else error
