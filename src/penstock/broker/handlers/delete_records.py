"""DeleteRecords, versions 0 to 2 (KIP-107).

Moves a partition's log start forward, durably before the answer; space comes back when whole segments fall below it.
Offset -1 means the high watermark. Past the watermark or below zero: OFFSET_OUT_OF_RANGE. Topics that are compacted and nothing else:
POLICY_VIOLATION. The cluster's own topics: INVALID_TOPIC_EXCEPTION.
Gaps: the request's time-out is not looked at; a disk that hangs is waited for.
"""

from typing import TYPE_CHECKING, Any

from penstock.broker.calls import Call
from penstock.broker.trimming import trim
from penstock.cluster.topic_names import is_internal
from penstock.errors import ErrorCode, Refusal
from penstock.vocabulary import Offset
from penstock.wire import schemas

if TYPE_CHECKING:
    from penstock.broker.node import Node

HIGH_WATERMARK = -1
NO_LOW_WATERMARK = -1


async def delete_records(node: "Node", call: Call) -> dict[str, Any]:
    request = schemas.read_request(call.api_key, call.version, call.frame, call.body_at)
    return {
        "topics": [
            {"name": topic.name, "partitions": [await _row(node, topic.name, wish) for wish in topic.partitions]}
            for topic in request.topics
        ]
    }


async def _row(node: "Node", topic: str, wish: Any) -> dict[str, Any]:
    index, offset = wish.partition_index, wish.offset
    try:
        code, low_watermark = ErrorCode.NONE, await _delete(node, topic, index, offset)
    except Refusal as refusal:
        code, low_watermark = refusal.code, NO_LOW_WATERMARK
    return {"partition_index": index, "low_watermark": low_watermark, "error_code": code}


async def _delete(node: "Node", topic: str, index: int, offset: int) -> int:
    partition = node.leading(topic, index)
    if is_internal(topic):
        raise Refusal(ErrorCode.INVALID_TOPIC_EXCEPTION, f"{topic} is the cluster's own")
    if not partition.config.deletes_old_segments:
        raise Refusal(ErrorCode.POLICY_VIOLATION, f"{topic} is compacted: nothing of it is deleted")
    if partition.log.failure is not None:
        raise Refusal(ErrorCode.KAFKA_STORAGE_ERROR, partition.log.failure)
    wanted = partition.high_watermark if offset == HIGH_WATERMARK else offset
    if not 0 <= wanted <= partition.high_watermark:
        raise Refusal(ErrorCode.OFFSET_OUT_OF_RANGE, f"{offset} is not between 0 and {partition.high_watermark}")
    await trim(node, partition, Offset(wanted))
    return partition.log.start_offset
