"""AddOffsetsToTxn, versions 0 to 4 (KIP-98, KIP-588 errors from 2): a transaction is going to commit offsets of a group.

To the transaction that is one partition more: the one of the groups' internal topic where the group lives.
"""

from typing import TYPE_CHECKING, Any

from penstock.broker.askers import Asker
from penstock.broker.calls import Call
from penstock.broker.handlers.init_producer_id import spoken
from penstock.errors import ErrorCode, Refusal
from penstock.transactions.commands import AddPartitions
from penstock.transactions.replies import AddReply
from penstock.vocabulary import ProducerId
from penstock.wire import schemas

if TYPE_CHECKING:
    from penstock.broker.node import Node

_FENCED_FROM = 2


async def add_offsets_to_txn(node: "Node", call: Call) -> dict[str, Any]:
    request = schemas.read_request(call.api_key, call.version, call.frame, call.body_at)
    try:
        code = await _add(node, request)
    except Refusal as refusal:
        code = refusal.code
    return {"error_code": spoken(code, call.version, _FENCED_FROM)}


async def _add(node: "Node", request: Any) -> ErrorCode:
    if not request.transactional_id:
        raise Refusal(ErrorCode.INVALID_REQUEST, "a transactional id is not empty")
    if not request.group_id:
        raise Refusal(ErrorCode.INVALID_GROUP_ID, "a group needs a name")
    await node.groups.prepare()
    place = node.transactions.place_of_group(request.group_id)

    def order(asker: Asker) -> AddPartitions:
        return AddPartitions(
            token=asker,
            transactional_id=str(request.transactional_id),
            producer_id=ProducerId(request.producer_id),
            producer_epoch=request.producer_epoch,
            partitions=(place,),
        )

    reply: AddReply = await node.transactions.find(str(request.transactional_id)).ask(order)
    ((_, code),) = reply.partitions
    return code
