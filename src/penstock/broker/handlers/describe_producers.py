"""DescribeProducers, version 0 (KIP-664): the producers that a partition remembers.

Each with its epoch, its last sequence, the time of its last batch, and where its open transaction began here (-1: it has none).
"""

from typing import TYPE_CHECKING, Any

from penstock.broker.calls import Call
from penstock.broker.long_answers import written
from penstock.broker.patience import Patience
from penstock.cluster.topic_names import check_topic_name
from penstock.errors import ErrorCode, Refusal
from penstock.partition.partition import Partition
from penstock.vocabulary import Buffer
from penstock.wire import schemas

if TYPE_CHECKING:
    from penstock.broker.node import Node


async def describe_producers(node: "Node", call: Call) -> list[Buffer]:
    request = schemas.read_request(call.api_key, call.version, call.frame, call.body_at)
    patience = Patience(node.env)
    topics, producers = [], 0
    for topic in request.topics:
        rows = []
        for index in topic.partition_indexes:
            rows.append(await _row(node, topic.name, index, patience))
            producers += len(rows[-1]["active_producers"])
        topics.append({"name": topic.name, "partitions": rows})
    return await written(node, call, {"topics": topics}, producers)


async def _row(node: "Node", topic: str, index: int, patience: Patience) -> dict[str, Any]:
    try:
        partition = node.leading(check_topic_name(topic), index)
    except Refusal as refusal:
        return {"partition_index": index, "error_code": refusal.code, "error_message": refusal.reason, "active_producers": []}
    producers = await _producers(partition, patience)
    return {"partition_index": index, "error_code": ErrorCode.NONE, "error_message": None, "active_producers": producers}


async def _producers(partition: Partition, patience: Patience) -> list[dict[str, int]]:
    """There may be a hundred thousand. One that is forgotten meanwhile is left out."""
    rows = []
    for producer_id in list(partition.producers.producer_ids()):
        await patience.pause_if_over()
        producer = partition.producers.described(producer_id)
        if producer is not None:
            rows.append(
                {
                    "producer_id": producer.producer_id,
                    "producer_epoch": producer.epoch,
                    "last_sequence": producer.last_sequence,
                    "last_timestamp": producer.last_timestamp_ms,
                    "coordinator_epoch": producer.coordinator_epoch,
                    "current_txn_start_offset": producer.open_since,
                }
            )
    return rows
