"""ListOffsets, versions 1 to 11 (KIP-207 epochs, KIP-734 max timestamp, KIP-405 and KIP-1005 tiers).

Latest is the high watermark, or for readers of committed records the last stable offset. It never goes back: a new leader that does not
know yet how far the one before it had come answers OFFSET_NOT_AVAILABLE (KIP-207).
A timestamp finds the first record at or after it; where there is none the answer is offset -1.
Of a damaged log nobody knows the end, so whatever depends on it is refused with KAFKA_STORAGE_ERROR.
Local log start is the log start and nothing is tiered, since there is one tier.
"""

from typing import TYPE_CHECKING, NamedTuple

from penstock.broker.calls import Call
from penstock.broker.patience import Patience
from penstock.errors import DiskFailed, ErrorCode, Refusal
from penstock.partition.partition import Partition
from penstock.vocabulary import Buffer
from penstock.wire.list_offsets import (
    EARLIEST,
    EARLIEST_LOCAL,
    EARLIEST_PENDING_UPLOAD,
    LATEST,
    LATEST_TIERED,
    MAX_TIMESTAMP,
    OffsetFound,
    OffsetWish,
    read_list_offsets_request,
    write_list_offsets_response,
)

if TYPE_CHECKING:
    from penstock.broker.node import Node

READ_COMMITTED = 1
# The version in which a special timestamp was brought in; a client that sends it earlier means something else.
_KNOWN_FROM = {MAX_TIMESTAMP: 7, EARLIEST_LOCAL: 8, LATEST_TIERED: 9, EARLIEST_PENDING_UPLOAD: 11}


async def list_offsets(node: "Node", call: Call) -> list[Buffer]:
    request = read_list_offsets_request(call.frame, call.body_at, call.version)
    patience, topics = Patience(node.env), []
    for topic, wishes in request.topics:
        found = []
        for wish in wishes:
            await patience.pause_if_over()
            asker = _Asker(call.version, is_replica=request.replica_id >= 0, reads_committed=request.isolation_level == READ_COMMITTED)
            found.append(await _find(node, asker, topic, wish))
        topics.append((topic, found))
    return [write_list_offsets_response(call.version, call.correlation_id, topics)]


class _Asker(NamedTuple):
    version: int
    is_replica: bool
    reads_committed: bool


async def _find(node: "Node", asker: _Asker, topic: str, wish: OffsetWish) -> OffsetFound:
    try:
        partition = node.leading(topic, wish.partition)
    except Refusal as refusal:
        return OffsetFound(wish.partition, refusal.code)
    if asker.is_replica:
        return OffsetFound(wish.partition, ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    code = partition.check_leader_epoch(wish.leader_epoch)
    if code is ErrorCode.NONE and wish.timestamp < 0 and asker.version < _KNOWN_FROM.get(wish.timestamp, 0):
        code = ErrorCode.UNSUPPORTED_VERSION
    if code is not ErrorCode.NONE:
        return OffsetFound(wish.partition, code)
    start_offset = partition.log.start_offset
    try:
        return await _answer(partition, wish, reads_committed=asker.reads_committed)
    except DiskFailed as failure:
        if partition.log.start_offset > start_offset and not partition.is_deleted:  # Retention took what was being looked at.
            return await _find(node, asker, topic, wish)
        node.report(f"cannot look for a time in {topic}-{wish.partition}: {failure}")
        return OffsetFound(wish.partition, ErrorCode.KAFKA_STORAGE_ERROR)


async def _answer(partition: Partition, wish: OffsetWish, *, reads_committed: bool) -> OffsetFound:
    log, at = partition.log, wish.timestamp
    has_nothing_to_read = log.start_offset == log.end_offset  # Then nobody knows its beginning either.
    if not partition.end_is_known and (has_nothing_to_read or at in (LATEST, MAX_TIMESTAMP)):
        return OffsetFound(wish.partition, ErrorCode.KAFKA_STORAGE_ERROR)
    if at in (LATEST, MAX_TIMESTAMP) and partition.leader is not None and not partition.leader.may_tell_end:
        return OffsetFound(wish.partition, ErrorCode.OFFSET_NOT_AVAILABLE)
    if at == LATEST:
        return OffsetFound(wish.partition, ErrorCode.NONE, -1, partition.readable_end(reads_committed=reads_committed), partition.epoch)
    if at in (EARLIEST, EARLIEST_LOCAL):
        return OffsetFound(wish.partition, ErrorCode.NONE, -1, log.start_offset, log.epochs.epoch_at(log.start_offset))
    if at in (LATEST_TIERED, EARLIEST_PENDING_UPLOAD):
        return OffsetFound(wish.partition, ErrorCode.NONE)
    if at < 0 and at != MAX_TIMESTAMP:
        return OffsetFound(wish.partition, ErrorCode.INVALID_REQUEST)
    end_offset = partition.readable_end(reads_committed=reads_committed)
    found = await (log.max_timestamp(end_offset) if at == MAX_TIMESTAMP else log.find_timestamp(at, end_offset))
    if found is None:
        return OffsetFound(wish.partition, ErrorCode.NONE if partition.end_is_known else ErrorCode.KAFKA_STORAGE_ERROR)
    timestamp, offset, epoch = found
    return OffsetFound(wish.partition, ErrorCode.NONE, timestamp, offset, epoch)
