"""OffsetDelete, version 0 (KIP-496).

Forgets what a group has committed for some partitions. Topics that the group's members are subscribed to: GROUP_SUBSCRIBED_TO_TOPIC.
Partitions that don't exist are refused each by itself, as at Kafka; what was committed for a deleted topic is gone with it.
"""

from typing import TYPE_CHECKING, Any

from penstock.broker.calls import Call
from penstock.errors import ErrorCode, Refusal
from penstock.groups.commands import DeleteOffsets
from penstock.wire import schemas

if TYPE_CHECKING:
    from penstock.broker.node import Node


async def offset_delete(node: "Node", call: Call) -> dict[str, Any]:
    request = schemas.read_request(call.api_key, call.version, call.frame, call.body_at)
    wanted = [(topic.name, partition.partition_index) for topic in request.topics for partition in topic.partitions]
    there = tuple(where for where in wanted if _is_there(node, *where))
    try:
        if not request.group_id:
            raise Refusal(ErrorCode.INVALID_GROUP_ID, "a group needs a name")
        coordinator = node.groups.find(request.group_id)
        reply = await coordinator.ask(lambda asker: DeleteOffsets(token=asker, group=request.group_id, partitions=there))
    except Refusal as refusal:
        return {"error_code": refusal.code}
    if reply.error is not ErrorCode.NONE:
        return {"error_code": reply.error}
    told = iter(reply.partitions)
    return {
        "error_code": ErrorCode.NONE,
        "topics": [
            {
                "name": topic.name,
                "partitions": [
                    {
                        "partition_index": partition.partition_index,
                        "error_code": next(told)[2]
                        if _is_there(node, topic.name, partition.partition_index)
                        else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                    }
                    for partition in topic.partitions
                ],
            }
            for topic in request.topics
        ],
    }


def _is_there(node: "Node", name: str, index: int) -> bool:
    topic = node.image.topics.get(name)
    return topic is not None and 0 <= index < len(topic.partitions)
