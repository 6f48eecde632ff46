"""EndTxn, versions 0 to 5 (KIP-98, KIP-588 errors from 2, KIP-890 in 5): a transaction is committed, or aborted.

Answered when how it ends is settled for good; the partitions hear of it after that (marker_sending.py). From version 5 every end raises the
producer's epoch, and the answer says to what.
"""

from typing import TYPE_CHECKING, Any

from penstock.broker.askers import Asker
from penstock.broker.calls import Call
from penstock.broker.handlers.init_producer_id import spoken
from penstock.errors import ErrorCode, Refusal
from penstock.transactions.commands import EndTransaction
from penstock.transactions.replies import EndReply
from penstock.vocabulary import NO_PRODUCER, ProducerId
from penstock.wire import schemas

if TYPE_CHECKING:
    from penstock.broker.node import Node

_FENCED_FROM = 2
_TRANSACTION_V2_FROM = 5


async def end_txn(node: "Node", call: Call) -> dict[str, Any]:
    request = schemas.read_request(call.api_key, call.version, call.frame, call.body_at)
    try:
        reply = await _end(node, request, is_v2=call.version >= _TRANSACTION_V2_FROM)
    except Refusal as refusal:
        reply = EndReply(refusal.code)
    error = spoken(reply.error, call.version, _FENCED_FROM)
    return {"error_code": error, "producer_id": reply.producer_id, "producer_epoch": reply.producer_epoch}


async def _end(node: "Node", request: Any, *, is_v2: bool) -> EndReply:
    transactional_id = str(request.transactional_id)
    if not transactional_id:
        raise Refusal(ErrorCode.INVALID_REQUEST, "a transactional id is not empty")
    coordinator = node.transactions.find(transactional_id)
    fresh = await node.producer_ids.next_id() if is_v2 and node.transactions.needs_producer_id(transactional_id) else NO_PRODUCER

    def order(asker: Asker) -> EndTransaction:
        return EndTransaction(
            token=asker,
            transactional_id=transactional_id,
            producer_id=ProducerId(request.producer_id),
            producer_epoch=request.producer_epoch,
            is_commit=request.committed,
            is_transaction_v2=is_v2,
            fresh_producer_id=fresh,
        )

    reply: EndReply = await coordinator.ask(order)
    return reply
