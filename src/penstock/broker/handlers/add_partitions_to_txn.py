"""AddPartitionsToTxn, versions 0 to 3 (KIP-98, KIP-360, KIP-588 errors from 2): partitions that a transaction is going to write to.

All of them or none: where one does not exist, the others hear OPERATION_NOT_ATTEMPTED, as at Kafka. Later versions are between brokers
there; here nodes ask each other over their links, and clients of the second transaction protocol need not ask at all (KIP-890).
"""

from typing import TYPE_CHECKING, Any

from penstock.broker.askers import Asker
from penstock.broker.calls import Call
from penstock.broker.handlers.init_producer_id import spoken
from penstock.cluster.topic_names import is_internal
from penstock.errors import ErrorCode, Refusal
from penstock.transactions.commands import AddPartitions
from penstock.transactions.records import TransactionPartition
from penstock.transactions.replies import AddReply
from penstock.vocabulary import ProducerId
from penstock.wire import schemas

if TYPE_CHECKING:
    from penstock.broker.node import Node

_FENCED_FROM = 2

Codes = dict[tuple[str, int], ErrorCode]


async def add_partitions_to_txn(node: "Node", call: Call) -> dict[str, Any]:
    request = schemas.read_request(call.api_key, call.version, call.frame, call.body_at)
    wanted = [(str(topic.name), int(index)) for topic in request.v3_and_below_topics for index in topic.partitions]
    places = {each: node.transactions.place(*each) for each in wanted}
    faults = {each: _fault_of(each[0], place) for each, place in places.items()}
    codes: Codes
    if any(faults.values()):
        codes = {each: fault or ErrorCode.OPERATION_NOT_ATTEMPTED for each, fault in faults.items()}
    else:
        codes = await _add(node, request, tuple(place for place in places.values() if place is not None), wanted)
    codes = {each: spoken(code, call.version, _FENCED_FROM) for each, code in codes.items()}
    return {
        "results_by_topic_v3_and_below": [
            {
                "name": topic.name,
                "results_by_partition": [
                    {"partition_index": index, "partition_error_code": codes[str(topic.name), int(index)]} for index in topic.partitions
                ],
            }
            for topic in request.v3_and_below_topics
        ]
    }


def _fault_of(topic: str, place: TransactionPartition | None) -> ErrorCode:
    """What nodes keep their own state in is nobody's to write to; offsets get into a transaction by AddOffsetsToTxn."""
    if is_internal(topic):
        return ErrorCode.TOPIC_AUTHORIZATION_FAILED
    return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if place is None else ErrorCode.NONE


async def _add(node: "Node", request: Any, places: tuple[TransactionPartition, ...], wanted: list[tuple[str, int]]) -> Codes:
    transactional_id = str(request.v3_and_below_transactional_id)

    def order(asker: Asker) -> AddPartitions:
        return AddPartitions(
            token=asker,
            transactional_id=transactional_id,
            producer_id=ProducerId(request.v3_and_below_producer_id),
            producer_epoch=request.v3_and_below_producer_epoch,
            partitions=places,
        )

    try:
        if not transactional_id:
            raise Refusal(ErrorCode.INVALID_REQUEST, "a transactional id is not empty")
        reply: AddReply = await node.transactions.find(transactional_id).ask(order)
    except Refusal as refusal:
        return dict.fromkeys(wanted, refusal.code)
    return {(place.topic, place.partition): code for place, code in reply.partitions}
