"""Sends of plain messages, which nearly all are: a body and nothing else, to a queue that asks for nothing either. One batch, made at once.

It does what sending.py does for the same drafts, and only where there is nothing to decide: whatever might be refused, even in part, or
needs a header, is left to the general way, with nothing done.
Hot path: once for those who send in one turn (senders.py).
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from penstock.broker.queues.calls import Draft, Sent
from penstock.errors import DiskFailed, Refusal
from penstock.queues.ids import message_ids
from penstock.wire.batches import HEADER_BYTES
from penstock.wire.records import build_batch

if TYPE_CHECKING:
    from penstock.broker.queues.leading import QueuePartition

RECORD_OVERHEAD_BYTES = 32  # Lengths, deltas and counts of one record at most.

_PLAIN = Draft(b"")[1:]
_new_tuple = tuple.__new__  # Half the cost of calling a named tuple's class.


def size_of(drafts: Sequence[Draft]) -> int:
    """What plain messages take in a batch, at most. 0: one of them is not plain."""
    size = HEADER_BYTES + RECORD_OVERHEAD_BYTES * len(drafts)
    for draft in drafts:
        if draft[1:] != _PLAIN:
            return 0
        size += len(draft[0])
    return size


def append(queue: "QueuePartition", drafts: Sequence[Draft], size: int) -> tuple[list[Sent], int] | None:
    """Plain messages of this size: what was sent, and where it ends in the log. None: this is not the way for it, and nothing was done."""
    data, node, state, count = queue.data, queue.node, queue.state, len(drafts)
    config, leader = data.config, data.leader
    if leader is None or not leader.is_enough or node.disk_is_low or config.queue_dedup_by_content or config.queue_delay_ms:
        return None
    if size > config.max_message_bytes or config.message_timestamp_type != "CreateTime":
        return None
    if state.room(data.log.end_offset, is_dedup=False) < count:
        return None
    wall_ms = node.env.wall_ms()
    batch = build_batch([(None, draft[0], ()) for draft in drafts], wall_ms)
    try:
        base_offset, end_offset, _, _ = data.append(batch, wall_ms)
    except (DiskFailed, Refusal):
        return None  # The log has kept nothing of it, and the general way finds words for that.
    queue.following.appended(base_offset, end_offset, wall_ms)
    metrics = node.metrics
    metrics.batches_in += 1
    metrics.records_in += count
    metrics.bytes_in += len(batch)
    node.appended(data)
    offsets, index = range(base_offset, end_offset), data.index
    names = message_ids(data.topic_id, index, offsets)
    sent = [_new_tuple(Sent, (name, index, offset, wall_ms, False)) for offset, name in zip(offsets, names, strict=True)]
    return sent, end_offset
