"""WriteTxnMarkers, versions 1 and 2 (KIP-98, KIP-664): the way out of a transaction that hangs, for an operator's tool.

Nodes end transactions over their own links. From clients only aborts are taken, of partitions that this node leads and of what is open
there in the epoch that is named: what commits is the coordinator's alone to say, and who is fenced too. A hanging transaction is one that
no coordinator knows of any more, and that holds back readers of committed records. A request that names more partitions than a transaction
can have closes its connection.
"""

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from penstock.broker.calls import Call
from penstock.broker.groups import CONSUMER_OFFSETS
from penstock.broker.long_answers import written
from penstock.broker.marker_writing import Begun
from penstock.broker.patience import Patience
from penstock.errors import ErrorCode, MalformedInput
from penstock.links.transaction_calls import Ended, Place
from penstock.transactions.bounds import PARTITIONS_MAX
from penstock.vocabulary import Buffer, ProducerId, TopicId
from penstock.wire import schemas
from penstock.wire.markers import NO_NUMBER

if TYPE_CHECKING:
    from penstock.broker.node import Node

_NO_TOPIC = TopicId(bytes(16))
_FIRST_COORDINATOR_EPOCH = 0  # Where no marker of the producer was before: no coordinator has a lower one.


async def write_txn_markers(node: "Node", call: Call) -> list[Buffer]:
    request = schemas.read_request(call.api_key, call.version, call.frame, call.body_at)
    wishes = [
        (marker, _place(node, str(topic.name), int(index)))
        for marker in request.markers
        for topic in marker.topics
        for index in topic.partition_indexes
    ]
    if len(wishes) > PARTITIONS_MAX:
        raise MalformedInput(f"WriteTxnMarkers may name {PARTITIONS_MAX} partitions, here are {len(wishes)}")
    codes = iter(await _written(node, wishes))
    answer = {"markers": [{"producer_id": marker.producer_id, "topics": _topics(marker, codes)} for marker in request.markers]}
    return await written(node, call, answer, len(wishes))


async def _written(node: "Node", wishes: Sequence[tuple[Any, Place]]) -> list[ErrorCode]:
    """What became of each. Nobody has a turn between a verdict and its marker: it holds for what is open at that moment."""
    patience = Patience(node.env)
    begun: list[Begun | ErrorCode] = []
    for marker, place in wishes:
        await patience.pause_if_over()
        verdict = _verdict(node, marker, place)
        begun.append(node.marker_writing.begin(verdict, place) if isinstance(verdict, Ended) else verdict)
    codes = iter(await node.marker_writing.finished(one for one in begun if isinstance(one, asyncio.Future)))
    return [next(codes) if isinstance(one, asyncio.Future) else one for one in begun]


def _verdict(node: "Node", marker: Any, place: Place) -> Ended | ErrorCode:
    """What is to be written; or why nothing is, which is NONE where nothing is open any more."""
    if marker.transaction_result:
        return ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    producer_id, epoch = ProducerId(marker.producer_id), int(marker.producer_epoch)
    coordinator_epoch = _FIRST_COORDINATOR_EPOCH
    if place.topic == CONSUMER_OFFSETS:
        for coordinator in node.groups:
            if coordinator.partition.index == place.partition and coordinator.state is not None:
                pending = coordinator.state.epoch_pending(producer_id)
                if pending != epoch:
                    return ErrorCode.NONE if pending is None else ErrorCode.INVALID_PRODUCER_EPOCH
    elif (partition := node.partitions.find_by_id(place.topic_id, place.partition)) is not None:
        found = partition.producers.decide_outside_abort(producer_id, epoch, int(marker.coordinator_epoch))
        if found is None or isinstance(found, ErrorCode):
            return found or ErrorCode.NONE
        coordinator_epoch = max(coordinator_epoch, found.coordinator_epoch)
    return Ended(producer_id, epoch, NO_NUMBER, is_commit=False, is_v2=False, coordinator_epoch=coordinator_epoch, places=(place,))


def _place(node: "Node", name: str, index: int) -> Place:
    known = node.image.topics.get(name)
    return Place(name, _NO_TOPIC if known is None else known.topic_id, index)


def _topics(marker: Any, codes: Any) -> list[dict[str, Any]]:
    return [
        {
            "name": topic.name,
            "partitions": [{"partition_index": index, "error_code": _spoken(next(codes))} for index in topic.partition_indexes],
        }
        for topic in marker.topics
    ]


def _spoken(code: ErrorCode) -> ErrorCode:
    """Topics have names here."""
    return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if code is ErrorCode.UNKNOWN_TOPIC_ID else code
