"""DescribeTopicPartitions, version 0 (KIP-966): topics with their partitions in the order of their names, a bounded number at a time.

No topics means all. Where the answer would grow too long it says where to go on, and the asker sends that back as its cursor. The cursor
may point to a topic that is not there: then the next one begins the answer. A partition that nobody leads comes with LEADER_NOT_AVAILABLE.
The last known eligible leader is the node that led last, while nobody leads and nobody may.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from penstock.broker.calls import Call
from penstock.broker.cluster_views import leader_error, offline_replicas
from penstock.broker.long_answers import written
from penstock.broker.operations import TOPIC_OPERATIONS
from penstock.cluster.image import ClusterImage, PartitionState, Topic
from penstock.cluster.topic_names import check_topic_name, is_internal
from penstock.errors import ErrorCode, Refusal
from penstock.vocabulary import NO_NODE, NO_TOPIC_ID, Buffer
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
        rows.append(_row(node.image, topic, range(start, end)))
        if end < len(topic.partitions):
            return {"topics": rows, "next_cursor": {"topic_name": name, "partition_index": end}}
        limit -= max(0, end - start)
    return {"topics": rows, "next_cursor": None}


def _row(image: ClusterImage, topic: Topic, indexes: range) -> dict[str, Any]:
    return {
        "error_code": ErrorCode.NONE,
        "name": topic.name,
        "topic_id": topic.topic_id,
        "is_internal": is_internal(topic.name),
        "partitions": [_partition(image, index, topic.partitions[index]) for index in indexes],
        "topic_authorized_operations": TOPIC_OPERATIONS,
    }


def _partition(image: ClusterImage, index: int, state: PartitionState) -> dict[str, Any]:
    has_candidate = state.leader != NO_NODE or state.eligible
    return {
        "error_code": leader_error(state),
        "partition_index": index,
        "leader_id": state.leader,
        "leader_epoch": state.leader_epoch,
        "replica_nodes": state.replicas,
        "isr_nodes": state.in_sync,
        "eligible_leader_replicas": state.eligible,
        "last_known_elr": () if has_candidate or state.last_leader == NO_NODE else (state.last_leader,),
        "offline_replicas": offline_replicas(image, state),
    }


def _unknown(name: str) -> dict[str, Any]:
    try:
        check_topic_name(name)
        code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    except Refusal as refusal:
        code = refusal.code
    return {"error_code": code, "name": name, "topic_id": NO_TOPIC_ID, "is_internal": is_internal(name), "partitions": ()}
