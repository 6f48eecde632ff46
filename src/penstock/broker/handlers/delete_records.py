"""DeleteRecords, versions 0 to 2 (KIP-107).

Moves a partition's log start forward, durably and on every in-sync replica before the answer; space comes back when whole segments fall
below it. Where that takes longer than the request's time-out: REQUEST_TIMED_OUT, and it goes on. What is waited for beside it is this
node's own disk, which has no time-out.
Offset -1 means the high watermark. Past the watermark or below zero: OFFSET_OUT_OF_RANGE. Topics that are compacted and nothing else:
POLICY_VIOLATION. The cluster's own topics: INVALID_TOPIC_EXCEPTION.
"""

from functools import partial
from typing import TYPE_CHECKING, Any

from penstock.broker.calls import Call
from penstock.broker.together import together
from penstock.broker.trimming import trim_everywhere
from penstock.cluster.topic_names import is_internal
from penstock.errors import ErrorCode, Refusal
from penstock.vocabulary import Instant, Offset
from penstock.wire import schemas

if TYPE_CHECKING:
    from penstock.broker.node import Node

HIGH_WATERMARK = -1
NO_LOW_WATERMARK = -1
SECONDS_MAX = 60.0  # Whoever asks may be gone long before.


async def delete_records(node: "Node", call: Call) -> dict[str, Any]:
    request = schemas.read_request(call.api_key, call.version, call.frame, call.body_at)
    deadline = Instant(node.env.now() + min(request.timeout.total_seconds(), SECONDS_MAX))
    asked = [partial(_row, node, topic.name, wish, deadline) for topic in request.topics for wish in topic.partitions]
    rows = iter(await together(asked))
    return {"topics": [{"name": topic.name, "partitions": [next(rows) for _ in topic.partitions]} for topic in request.topics]}


async def _row(node: "Node", topic: str, wish: Any, deadline: Instant) -> dict[str, Any]:
    index, offset = wish.partition_index, wish.offset
    try:
        code, low_watermark = ErrorCode.NONE, await _delete(node, topic, index, offset, deadline)
    except Refusal as refusal:
        code, low_watermark = refusal.code, NO_LOW_WATERMARK
    return {"partition_index": index, "low_watermark": low_watermark, "error_code": code}


async def _delete(node: "Node", topic: str, index: int, offset: int, deadline: Instant) -> int:
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
    return await trim_everywhere(node, partition, Offset(wanted), deadline)
