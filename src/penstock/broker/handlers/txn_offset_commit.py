"""TxnOffsetCommit, versions 0 to 5 (KIP-98, KIP-447 members from 3, KIP-890 in 4 and 5): offsets that hold when their transaction commits.

The transaction's coordinator is asked first whether it is open and knows of the group; from version 5 it is told of the group by this. A
guard is taken before that, so that an answer which was overtaken by the transaction's end adds nothing to it any more.
Partitions that don't exist are refused each by itself; the others are kept together.
"""

from typing import TYPE_CHECKING, Any

from penstock.broker.askers import Asker
from penstock.broker.calls import Call
from penstock.errors import ErrorCode, Refusal
from penstock.groups.commands import CommitPending, NewOffset
from penstock.groups.pending_records import NO_NUMBER
from penstock.groups.replies import CommitReply
from penstock.links.transaction_calls import AddToTransaction, Place
from penstock.vocabulary import ProducerId
from penstock.wire import schemas

if TYPE_CHECKING:
    from penstock.broker.node import Node

_ABORTABLE_FROM = 4
_TRANSACTION_V2_FROM = 5

Codes = dict[tuple[str, int], ErrorCode]


async def txn_offset_commit(node: "Node", call: Call) -> dict[str, Any]:
    request = schemas.read_request(call.api_key, call.version, call.frame, call.body_at)
    wanted = [(str(topic.name), int(each.partition_index)) for topic in request.topics for each in topic.partitions]
    try:
        codes = await _commit(node, call.version, request)
    except Refusal as refusal:
        codes = dict.fromkeys(wanted, refusal.code)
    return {
        "topics": [
            {
                "name": topic.name,
                "partitions": [
                    {
                        "partition_index": each.partition_index,
                        "error_code": _spoken(codes[str(topic.name), int(each.partition_index)], call.version),
                    }
                    for each in topic.partitions
                ],
            }
            for topic in request.topics
        ]
    }


def _take(node: "Node", wish: Any, codes: Codes, offsets: list[NewOffset]) -> None:
    topic = node.image.topics.get(wish.name)
    for partition in wish.partitions:
        if topic is None or not 0 <= partition.partition_index < len(topic.partitions):
            codes[str(wish.name), int(partition.partition_index)] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            continue
        epoch = getattr(partition, "committed_leader_epoch", -1)
        row = (partition.partition_index, partition.committed_offset, epoch, partition.committed_metadata)
        offsets.append(NewOffset(topic.name, *row, topic.topic_id))


async def _commit(node: "Node", version: int, request: Any) -> Codes:
    if not request.group_id:
        raise Refusal(ErrorCode.INVALID_GROUP_ID, "a group needs a name")
    coordinator = node.groups.find(request.group_id)
    state = coordinator.state
    if state is None:
        raise Refusal(coordinator.unavailable, "the coordinator is not available")
    if not node.groups.has_room(state, request.group_id):
        raise Refusal(ErrorCode.COORDINATOR_NOT_AVAILABLE, "no room for another group (setting groups.max)")
    producer_id = ProducerId(request.producer_id)
    guard, number = None, NO_NUMBER
    if state.needs_verification(producer_id, request.producer_epoch):
        guard = state.guard(producer_id)
        number = await _verify(node, request, is_v2=version >= _TRANSACTION_V2_FROM)
    # Now, and not before the question: a topic that is deleted meanwhile takes no offsets.
    codes: Codes = {}
    offsets: list[NewOffset] = []
    for topic in request.topics:
        _take(node, topic, codes, offsets)
    if not offsets:
        return codes

    def order(asker: Asker) -> CommitPending:
        return CommitPending(
            token=asker,
            group=request.group_id,
            generation=getattr(request, "generation_id", -1),
            member_id=getattr(request, "member_id", ""),
            instance_id=getattr(request, "group_instance_id", None),
            producer_id=producer_id,
            producer_epoch=request.producer_epoch,
            number=number,
            offsets=tuple(offsets),
            guard=guard,
        )

    reply: CommitReply = await coordinator.ask(order)
    return codes | {(topic, partition): code for topic, partition, code in reply.offsets}


async def _verify(node: "Node", request: Any, *, is_v2: bool) -> int:
    """The number of the transaction, which is open and knows of the group. Raises Refusal."""
    place = node.transactions.place_of_group(request.group_id)
    added = await node.transactions.add(
        AddToTransaction(
            str(request.transactional_id), ProducerId(request.producer_id), request.producer_epoch, not is_v2, (Place(*place),)
        )
    )  # fmt: skip
    (code,) = added.codes
    if code is not ErrorCode.NONE:
        raise Refusal(code, "the transaction is not open, or does not know of the group")
    return added.number


def _spoken(code: ErrorCode, version: int) -> ErrorCode:
    """What a client of this version understands, and does the right thing about."""
    if code is ErrorCode.PRODUCER_FENCED:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    if code in (ErrorCode.INVALID_TXN_STATE, ErrorCode.TRANSACTION_ABORTABLE):
        return ErrorCode.TRANSACTION_ABORTABLE if version >= _ABORTABLE_FROM else ErrorCode.INVALID_TXN_STATE
    if code is ErrorCode.CONCURRENT_TRANSACTIONS and version < _TRANSACTION_V2_FROM:
        return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS  # It comes again.
    return code
