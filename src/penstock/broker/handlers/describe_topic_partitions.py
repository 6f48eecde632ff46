"""DescribeTopicPartitions, version 0 (KIP-966): topics with their partitions in the order of their names, a bounded number at a time.

No topics means all. Where the answer would grow too long it says where to go on, and the asker sends that back as its cursor. The cursor
may point to a topic that is not there: then the next one begins the answer.
Gaps: eligible leader replicas are empty, since there is no replication yet.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from penstock.broker.calls import Call
from penstock.broker.long_answers import written
from penstock.broker.operations import TOPIC_OPERATIONS
from penstock.cluster.image import Topic
from penstock.cluster.topic_names import INTERNAL_TOPICS, check_topic_name
from penstock.errors import ErrorCode, Refusal
from penstock.vocabulary import NO_TOPIC_ID, Buffer
from penstock.wire import schemas

if TYPE_CHECKING:
    from penstock.broker.node import Node

PARTITIONS_MAX = 2_000  # Kafka's max.request.partition.size.limit, whatever the client asks for.


async def describe_topic_partitions(node: "Node", call: Call) -> list[Buffer]:
    request = schemas.read_request(call.api_key, call.version, call.frame, call.body_at)
    asked = [topic.name for topic in request.topics]
    first, first_index = ("", 0) if request.cursor is None else (request.cursor.topic_name, request.cursor.partition_index)
    if first_index < 0 or (asked and first and first not in asked):
        refused = [{"name": name, "topic_id": NO_TOPIC_ID, "error_code": ErrorCode.INVALID_REQUEST} for name in asked]
        return await written(node, call, {"topics": refused}, len(asked))
    names = sorted({name for name in asked or node.image.topics if name >= first})
    limit = max(1, min(PARTITIONS_MAX, request.response_partition_limit))
    answer = _describe(node, names, {first: first_index}, limit)
    return await written(node, call, answer, sum(1 + len(row["partitions"]) for row in answer["topics"]))


def _describe(node: "Node", names: Sequence[str], begun: dict[str, int], limit: int) -> dict[str, Any]:
    rows: list[dict[str, Any]] = []
    for name in names:
        if limit <= 0:
            return {"topics": rows, "next_cursor": {"topic_name": name, "partition_index": 0}}
        topic, start = node.image.topics.get(name), begun.get(name, 0)
        if topic is None:
            rows.append(_unknown(name))
            continue
        end = min(len(topic.partitions), start + limit)
        rows.append(_row(topic, range(start, end)))
        if end < len(topic.partitions):
            return {"topics": rows, "next_cursor": {"topic_name": name, "partition_index": end}}
        limit -= max(0, end - start)
    return {"topics": rows, "next_cursor": None}


def _row(topic: Topic, indexes: range) -> dict[str, Any]:
    return {
        "error_code": ErrorCode.NONE,
        "name": topic.name,
        "topic_id": topic.topic_id,
        "is_internal": topic.name in INTERNAL_TOPICS,
        "partitions": [
            {
                "error_code": ErrorCode.NONE,
                "partition_index": index,
                "leader_id": topic.partitions[index].leader,
                "leader_epoch": topic.partitions[index].leader_epoch,
                "replica_nodes": topic.partitions[index].replicas,
                "isr_nodes": topic.partitions[index].in_sync,
                "eligible_leader_replicas": (),
                "last_known_elr": (),
                "offline_replicas": (),
            }
            for index in indexes
        ],
        "topic_authorized_operations": TOPIC_OPERATIONS,
    }


def _unknown(name: str) -> dict[str, Any]:
    try:
        check_topic_name(name)
        code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    except Refusal as refusal:
        code = refusal.code
    return {"error_code": code, "name": name, "topic_id": NO_TOPIC_ID, "is_internal": name in INTERNAL_TOPICS, "partitions": ()}
