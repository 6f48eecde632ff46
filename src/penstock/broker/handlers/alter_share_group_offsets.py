"""AlterShareGroupOffsets, version 0 (KIP-932).

A share group without members begins anew at the given offsets, within what the log has: what is below is done, what is above is not, and
whatever was lent is void. With members: NON_EMPTY_GROUP. Each partition is answered by itself.
"""

from functools import partial
from typing import TYPE_CHECKING, Any

from penstock.broker.calls import Call
from penstock.broker.groups import changing_ledgers
from penstock.broker.together import together
from penstock.errors import ErrorCode, Refusal
from penstock.groups.replies import LedgersChanged
from penstock.vocabulary import NO_TOPIC_ID, TopicId
from penstock.wire import schemas

if TYPE_CHECKING:
    from penstock.broker.node import Node


async def alter_share_group_offsets(node: "Node", call: Call) -> dict[str, Any]:
    request = schemas.read_request(call.api_key, call.version, call.frame, call.body_at)
    group, image = request.group_id, node.image
    known = [(image.topics[topic.topic_name], topic) for topic in request.topics if topic.topic_name in image.topics]
    added = tuple((topic.topic_id, topic.name, tuple(row.partition_index for row in wish.partitions)) for topic, wish in known)
    try:
        reply: LedgersChanged = await node.groups.find(group).ask(partial(changing_ledgers, group, added=added))
    except Refusal as refusal:
        return {"error_code": refusal.code, "error_message": refusal.reason, "responses": []}
    if reply.error is not ErrorCode.NONE:
        return {"error_code": reply.error, "error_message": reply.message, "responses": []}
    rows = [await _topic(node, group, topic) for topic in request.topics]
    return {"error_code": ErrorCode.NONE, "error_message": None, "responses": rows}


async def _topic(node: "Node", group: str, wish: Any) -> dict[str, Any]:
    topic = node.image.topics.get(wish.topic_name)
    topic_id = NO_TOPIC_ID if topic is None else topic.topic_id
    starts = (partial(_start, node, group, topic_id, row.partition_index, row.start_offset) for row in wish.partitions)
    return {"topic_name": wish.topic_name, "topic_id": topic_id, "partitions": await together(starts)}


async def _start(node: "Node", group: str, topic_id: TopicId, index: int, offset: int) -> dict[str, Any]:
    try:
        if node.image.partition(topic_id, index) is None:
            raise Refusal(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "there is no such partition")
        if offset < 0:
            raise Refusal(ErrorCode.INVALID_REQUEST, "a start offset is not negative")
        await node.shares.start(topic_id, index, group, offset)
    except Refusal as refusal:
        return {"partition_index": index, "error_code": refusal.code, "error_message": refusal.reason}
    return {"partition_index": index, "error_code": ErrorCode.NONE, "error_message": None}
