"""Moving the start of a log forward because somebody asked, not because of age.

Durable before it is seen: the checkpoint that knows the new start is written first, so nobody is told of a start that could move back.
Space comes back when whole segments fall below the start, with the next round of retention.
"""

from typing import TYPE_CHECKING

from penstock.errors import DiskFailed, ErrorCode, Refusal
from penstock.partition.partition import Partition
from penstock.vocabulary import Offset

if TYPE_CHECKING:
    from penstock.broker.node import Node


async def trim(node: "Node", partition: Partition, offset: Offset) -> None:
    """Lets the log start at the offset, or where it starts already if that is later. Raises Refusal with nothing changed."""
    log = partition.log
    if log.owner_is_void:
        raise Refusal(ErrorCode.KAFKA_STORAGE_ERROR, "the log is being cut")
    try:
        while offset > log.start_offset and not log.has_saved_start(offset):
            captured = log.begin_checkpoint(partition.producers.snapshot(), start_offset=offset)
            await node.flusher.flush([partition])
            if log.failure is not None or log.owner_is_void:
                raise DiskFailed(log.failure or "the log is being cut")
            await log.write_checkpoint(captured)  # Gives way to a later one, which may not know of the new start.
    except DiskFailed as failure:
        if partition.is_deleted:  # Its log was closed, and its files may be gone.
            raise Refusal(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "the topic was deleted") from failure
        raise Refusal(ErrorCode.KAFKA_STORAGE_ERROR, str(failure)) from failure
    if offset > log.start_offset:
        log.raise_start(offset)
        for watcher in list(partition.watchers):
            watcher.advanced(partition, 0)
        node.look_for_old_segments_soon()
