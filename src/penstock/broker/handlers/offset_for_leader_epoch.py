"""OffsetForLeaderEpoch, versions 2 to 4 (KIP-101, KIP-320): where the records of a leader epoch end.

A consumer asks after a change of leader whether what it has read still stands. For the epoch that leads now the answer is the log's end;
for an earlier one the beginning of the next that wrote anything, with the last epoch not after the one asked for; for one that nobody
here has heard of, -1 and -1. Records below the log's start are forgotten with their epochs.
Refused: replicas, which ask on a listener of the nodes' own.
"""

from typing import TYPE_CHECKING, Any

from penstock.broker.calls import Call
from penstock.errors import ErrorCode, Refusal
from penstock.log.epochs import NEVER, NO_EPOCH
from penstock.partition.partition import Partition
from penstock.wire import schemas

if TYPE_CHECKING:
    from penstock.broker.node import Node

CONSUMER = -1
UNKNOWN_END = (NO_EPOCH, -1)


async def offset_for_leader_epoch(node: "Node", call: Call) -> dict[str, Any]:
    request = schemas.read_request(call.api_key, call.version, call.frame, call.body_at)
    is_replica = getattr(request, "replica_id", CONSUMER) >= 0
    return {
        "topics": [
            {"topic": topic.topic, "partitions": [_row(node, topic.topic, wish, is_replica=is_replica) for wish in topic.partitions]}
            for topic in request.topics
        ]
    }


def _row(node: "Node", topic: str, wish: Any, *, is_replica: bool) -> dict[str, Any]:
    try:
        partition = node.leading(topic, wish.partition)
    except Refusal as refusal:
        return {"partition": wish.partition, "error_code": refusal.code}
    code = ErrorCode.CLUSTER_AUTHORIZATION_FAILED if is_replica else partition.check_leader_epoch(wish.current_leader_epoch)
    if code is not ErrorCode.NONE:
        return {"partition": wish.partition, "error_code": code}
    epoch, end_offset = end_of_epoch(partition, wish.leader_epoch)
    if end_offset == partition.log.end_offset and not partition.end_is_known:
        return {"partition": wish.partition, "error_code": ErrorCode.KAFKA_STORAGE_ERROR}
    return {"partition": wish.partition, "error_code": ErrorCode.NONE, "leader_epoch": epoch, "end_offset": end_offset}


def end_of_epoch(partition: Partition, epoch: int) -> tuple[int, int]:
    """The last epoch not after this one that wrote anything, and where its records end."""
    log = partition.log
    if epoch < 0 or epoch > partition.epoch:
        return UNKNOWN_END
    if epoch == partition.epoch:
        return epoch, log.end_offset
    next_start = log.epochs.first_above(epoch)
    if next_start == NEVER:
        next_start = log.end_offset  # The epoch that leads now has written nothing yet.
    end_offset = max(log.start_offset, next_start)
    return log.epochs.epoch_at(next_start - 1) if next_start > log.start_offset else epoch, end_offset
