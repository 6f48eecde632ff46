"""Moving the start of a log forward because somebody asked, not because of age.

Durable before it is seen: the checkpoint that knows the new start is written first, so nobody is told of a start that could move back.
A client is answered when every replica that may lead next has moved its start too, or what was deleted would be back after a failover.
From then on a replica joins the in-sync set only when its log starts there too (partition/in_sync.py).
Space comes back when whole segments fall below the start, with the next round of retention.
"""

import asyncio
import logging
from functools import partial
from typing import TYPE_CHECKING

from penstock.broker.together import together
from penstock.errors import DiskFailed, ErrorCode, MalformedInput, Refusal
from penstock.links.door import Asked
from penstock.links.failures import LinkFailure
from penstock.links.kinds import Kind
from penstock.links.trim_calls import TrimWish, read_outcome, read_wish, write_outcome, write_wish
from penstock.partition.partition import Partition
from penstock.vocabulary import Instant, NodeId, Offset

if TYPE_CHECKING:
    from penstock.broker.node import Node

log = logging.getLogger("penstock")

ASKED_SECONDS = 5.0
PAUSE_SECONDS_MIN, PAUSE_SECONDS_MAX = 0.01, 0.5


async def trim_everywhere(node: "Node", partition: Partition, offset: Offset, deadline: Instant) -> Offset:
    """At the leader. Returns where the log starts at least, at each replica that may lead next.

    Raises Refusal. With REQUEST_TIMED_OUT the start has moved here, and moves elsewhere as soon as it can; asking again does no harm.
    """
    await trim(node, partition, offset)
    start, pause = partition.log.start_offset, PAUSE_SECONDS_MIN
    moved: dict[tuple[NodeId, int], None] = {}  # In which leader epoch: after it a node may have another copy.
    while (leader := partition.leader) is not None:
        epoch = leader.epoch
        waiting = [replica for replica in leader.may_lead_next if (replica, epoch) not in moved]
        if not waiting and leader.is_enough:  # Else one that has left the set may lead.
            leader.records_deleted(start)
            return start
        wish = TrimWish(partition.topic_id, partition.index, epoch, start)
        timeout_s = min(max(deadline - node.env.now(), PAUSE_SECONDS_MIN), ASKED_SECONDS)
        heard = await together([partial(_has_moved, node, replica, wish, timeout_s) for replica in waiting])
        moved |= {(replica, epoch): None for replica, has_moved in zip(waiting, heard, strict=True) if has_moved}
        if waiting and all(heard):
            continue
        if node.env.now() + pause > deadline:
            raise Refusal(ErrorCode.REQUEST_TIMED_OUT, "not every in-sync replica has deleted the records yet, or too few are in sync")
        await asyncio.sleep(pause)
        pause = min(2 * pause, PAUSE_SECONDS_MAX)
    raise Refusal(ErrorCode.NOT_LEADER_OR_FOLLOWER, "this node does not lead the partition any more")


async def _has_moved(node: "Node", replica: NodeId, wish: TrimWish, timeout_s: float) -> bool:
    if node.links is None:
        return False
    try:
        return read_outcome(await node.links.ask(replica, Kind.TRIM, write_wish(wish), timeout_s=timeout_s)) is ErrorCode.NONE
    except (LinkFailure, MalformedInput) as failure:
        log.debug("node %d is asked again to delete records: %s", replica, failure)
        return False


def asked_to_trim(node: "Node", asked: Asked) -> None:
    """A leader's wish. Raises MalformedInput."""
    node.spawn(_answer_trim(node, asked, read_wish(asked.body)))


async def _answer_trim(node: "Node", asked: Asked, wish: TrimWish) -> None:
    code = ErrorCode.NONE
    try:
        await _trim_as_follower(node, wish)
    except Refusal as refusal:
        code = refusal.code
    asked.answer([write_outcome(code)])


async def _trim_as_follower(node: "Node", wish: TrimWish) -> None:
    partition = node.partitions.find_by_id(wish.topic_id, wish.partition)
    if partition is None:
        raise Refusal(*node.why_not_here(wish.topic_id, wish.partition))
    if partition.leader is not None or partition.epoch != wish.leader_epoch or wish.start > partition.log.end_offset:
        raise Refusal(ErrorCode.NOT_LEADER_OR_FOLLOWER, "this node does not follow in that epoch, or is not as far yet")
    await trim(node, partition, wish.start)


async def trim(node: "Node", partition: Partition, offset: Offset) -> None:
    """Lets the log start at the offset, or where it starts already if that is later. Raises Refusal with nothing changed.

    A start that only this process knows counts for nothing: a cut of the log's end takes the checkpoints along.
    """
    log = partition.log
    if log.owner_is_void:
        raise Refusal(ErrorCode.KAFKA_STORAGE_ERROR, "the log is being cut")
    try:
        while not log.has_saved_start(offset):
            if offset > log.end_offset:
                raise DiskFailed("the log was cut meanwhile")
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
