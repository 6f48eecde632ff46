"""WriteTxnMarkers, versions 1 and 2 (KIP-98, KIP-664): the way out of a transaction that hangs, for an operator's tool.

Nodes end transactions over their own links. From clients only aborts are taken, of partitions that this node leads: what commits is the
coordinator's alone to say. A hanging transaction is one that no coordinator knows of any more, and that holds back readers of committed
records.
"""

from typing import TYPE_CHECKING, Any

from penstock.broker.calls import Call
from penstock.errors import ErrorCode
from penstock.links.transaction_calls import Ended, Place
from penstock.vocabulary import ProducerId, TopicId
from penstock.wire import schemas
from penstock.wire.markers import NO_NUMBER

if TYPE_CHECKING:
    from penstock.broker.node import Node

_NO_TOPIC = TopicId(bytes(16))


async def write_txn_markers(node: "Node", call: Call) -> dict[str, Any]:
    request = schemas.read_request(call.api_key, call.version, call.frame, call.body_at)
    ends = [_end(node, marker) for marker in request.markers]
    refused = [marker.transaction_result for marker in request.markers]
    written = iter(await node.marker_writing.write_all([end for end, is_commit in zip(ends, refused, strict=True) if not is_commit]))
    rows = []
    for marker, end in zip(request.markers, ends, strict=True):
        codes = (ErrorCode.CLUSTER_AUTHORIZATION_FAILED,) * len(end.places) if marker.transaction_result else next(written)
        rows.append({"producer_id": marker.producer_id, "topics": _topics(marker, iter(codes))})
    return {"markers": rows}


def _end(node: "Node", marker: Any) -> Ended:
    places = tuple(_place(node, str(topic.name), int(index)) for topic in marker.topics for index in topic.partition_indexes)
    return Ended(
        ProducerId(marker.producer_id), marker.producer_epoch, NO_NUMBER, is_commit=False, is_v2=False,
        coordinator_epoch=marker.coordinator_epoch, places=places,
    )  # fmt: skip


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
