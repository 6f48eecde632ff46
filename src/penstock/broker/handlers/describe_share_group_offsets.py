"""DescribeShareGroupOffsets, versions 0 and 1 (KIP-932; lag from 1, KIP-1226).

The start offset of a share group at a partition: everything below it is done. -1 where nobody has fetched yet. Lag is the number of records
that are not done, whoever has them. Asked of the group's coordinator, which asks the partitions' leaders.
"""

from collections.abc import Iterable
from functools import partial
from typing import TYPE_CHECKING, Any

from penstock.broker.calls import Call
from penstock.broker.long_answers import written
from penstock.broker.queues.asking import Place
from penstock.broker.together import together
from penstock.errors import ErrorCode, Refusal
from penstock.groups.share.views import ShareGroupView
from penstock.vocabulary import NO_TOPIC_ID, Buffer, TopicId
from penstock.wire import schemas

if TYPE_CHECKING:
    from penstock.broker.node import Node


async def describe_share_group_offsets(node: "Node", call: Call) -> list[Buffer]:
    request = schemas.read_request(call.api_key, call.version, call.frame, call.body_at)
    rows = [await _describe(node, group.group_id, group.topics) for group in request.groups]
    count = sum(1 + len(topic["partitions"]) for row in rows for topic in row["topics"])
    return await written(node, call, {"groups": rows}, len(rows) + count)


async def _describe(node: "Node", group: str, wanted: Any) -> dict[str, Any]:
    try:
        view = await node.groups.find(group).read(lambda state: state.describe_share(group))
        if view is None:
            raise Refusal(ErrorCode.GROUP_ID_NOT_FOUND, f"there is no share group {group!r}")
        topics = _all_of(node, view) if wanted is None else [_named(node, topic.topic_name, topic.partitions) for topic in wanted]
        await node.shares.learn_of_ledgers([Place(topic_id, index) for _, topic_id, indexes in topics for index in indexes])
    except Refusal as refusal:
        return {"group_id": group, "topics": [], "error_code": refusal.code, "error_message": refusal.reason}
    rows = [
        {
            "topic_name": name,
            "topic_id": topic_id,
            "partitions": await together(partial(_partition, node, topic_id, index, group) for index in indexes),
        }
        for name, topic_id, indexes in topics
    ]
    return {"group_id": group, "topics": rows, "error_code": ErrorCode.NONE, "error_message": None}


Asked = tuple[str, TopicId, tuple[int, ...]]


def _all_of(node: "Node", view: ShareGroupView) -> list[Asked]:
    return [
        (each.topic, topic_id, each.partitions)
        for topic_id, each in sorted(view.ledgers.items(), key=lambda row: row[1].topic)
        if topic_id in node.image.topics_by_id
    ]


def _named(node: "Node", name: str, indexes: Iterable[int]) -> Asked:
    topic = node.image.topics.get(name)
    return name, NO_TOPIC_ID if topic is None else topic.topic_id, tuple(indexes)


async def _partition(node: "Node", topic_id: TopicId, index: int, group: str) -> dict[str, Any]:
    try:
        if node.image.partition(topic_id, index) is None:
            raise Refusal(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "there is no such partition")
        standing = await node.shares.standing(topic_id, index, group)
    except Refusal as refusal:
        return {
            "partition_index": index, "start_offset": -1, "leader_epoch": -1, "lag": -1,
            "error_code": refusal.code, "error_message": refusal.reason,
        }  # fmt: skip
    return {
        "partition_index": index, "start_offset": standing.start_offset, "leader_epoch": standing.leader_epoch, "lag": standing.lag,
        "error_code": ErrorCode.NONE, "error_message": None,
    }  # fmt: skip
