"""Setting where a group reads on, and deleting groups, for the admin doors: the same commands that Kafka's APIs give to the coordinator.

A reset is planned first, on what holds at that moment, and carried out as one commit by nobody's member. The coordinator refuses it when
somebody has joined meanwhile.
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from penstock.broker.group_lag import span_of
from penstock.broker.group_views import committed, no_such
from penstock.errors import DiskFailed, ErrorCode, Refusal
from penstock.groups.commands import CommitOffsets, NewOffset
from penstock.groups.replies import CommitReply
from penstock.groups.resets import Move, Reset, Standing, ToTime, plan_move
from penstock.groups.states import GroupState
from penstock.groups.views import NO_OFFSET
from penstock.partition.partition import Partition
from penstock.vocabulary import TopicPartition

if TYPE_CHECKING:
    from penstock.broker.node import Node

_WITHOUT_MEMBERS = (GroupState.EMPTY, GroupState.DEAD)


async def plan_reset(node: "Node", group: str, plan: Mapping[TopicPartition, Reset]) -> list[Move]:
    """Raises Refusal where the group has members, or a reset has no meaning."""
    await node.groups.prepare()
    view = await node.groups.find(group).read(lambda state: state.describe(group))
    if view.state not in _WITHOUT_MEMBERS:
        raise _has_members(group, len(view.members))
    held = {TopicPartition(each.topic, each.partition): each.offset for each in await committed(node, group) if each.offset != NO_OFFSET}
    return [await _plan(node, where, reset, held.get(where)) for where, reset in sorted(plan.items())]


async def carry_out(node: "Node", group: str, moves: Sequence[Move]) -> None:
    offsets = tuple(_new_offset(node, move) for move in moves)
    reply = await node.groups.find(group).ask(lambda token: CommitOffsets(token=token, group=group, offsets=offsets))
    assert isinstance(reply, CommitReply)
    for topic, partition, code in reply.offsets:
        if code is ErrorCode.UNKNOWN_MEMBER_ID:
            raise _has_members(group)
        if code is not ErrorCode.NONE:
            raise Refusal(code, f"the offset of {TopicPartition(topic, partition)} was not set for group {group!r}")


def _new_offset(node: "Node", move: Move) -> NewOffset:
    topic = node.image.topics.get(move.partition.topic)
    if topic is None:
        raise Refusal(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no partition {move.partition}")
    return NewOffset(topic.name, move.partition.partition, move.target, topic_id=topic.topic_id)


async def delete_group(node: "Node", group: str) -> None:
    if not list(node.groups):
        raise no_such(group)
    code = await node.groups.delete(group)
    if code is ErrorCode.GROUP_ID_NOT_FOUND:
        raise no_such(group)
    if code is ErrorCode.NON_EMPTY_GROUP:
        raise _has_members(group)
    if code is not ErrorCode.NONE:
        raise Refusal(code, f"group {group!r} was not deleted")


async def _plan(node: "Node", where: TopicPartition, reset: Reset, held: int | None) -> Move:
    partition = node.partitions.find(*where)
    if partition is None:
        raise Refusal(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no partition {where}")
    if not partition.end_is_known:
        raise Refusal(ErrorCode.KAFKA_STORAGE_ERROR, f"the log of {where} is damaged, so nobody knows where it ends")
    found = await _offset_at(partition, reset.timestamp_ms) if isinstance(reset, ToTime) else None
    return plan_move(reset, Standing(where, held, *span_of(partition), offset_at_time=found))


async def _offset_at(partition: Partition, timestamp_ms: int) -> int | None:
    try:
        found = await partition.log.find_timestamp(timestamp_ms, partition.high_watermark)
    except DiskFailed as failure:
        reason = f"cannot look for a time in {partition.topic}-{partition.index}: {failure}"
        raise Refusal(ErrorCode.KAFKA_STORAGE_ERROR, reason) from None
    return None if found is None else found.offset


def _has_members(group: str, count: int | None = None) -> Refusal:
    who = "has members" if count is None else f"has {count} member{'s' if count != 1 else ''}"
    return Refusal(ErrorCode.NON_EMPTY_GROUP, f"group {group!r} {who}, who commit for themselves; stop its consumers first")
