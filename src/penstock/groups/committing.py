"""OffsetCommit, OffsetDelete, DeleteGroups, and what a deleted topic leaves behind.

A commit comes from a member of the current generation, or, when the group has no members, from anybody: an admin tool, or a consumer that
assigns partitions to itself. The first commit under a new name makes a group that is nothing but its offsets.
Each partition is answered by itself; one whose metadata is too long is refused and the others are kept. When groups may take no more
memory, what was committed before can be committed again, and what is new must come again: COORDINATOR_NOT_AVAILABLE.
What goes, goes with all that open transactions would make of it; a later plain commit holds against them.
Not here: whether the topic exists, which the handler knows; offsets inside transactions (pending.py).
"""

from collections.abc import Iterator
from itertools import chain, islice

from penstock.errors import ErrorCode
from penstock.groups.bounds import DELETED_AT_ONCE
from penstock.groups.commands import NO_RETENTION, CommitOffsets, DeleteGroup, DeleteOffsets, ForgetTopic
from penstock.groups.consumer.group import ConsumerGroup
from penstock.groups.consumer.records import ConsumerGroupGone
from penstock.groups.draft import Draft
from penstock.groups.group import CONSUMERS, Group
from penstock.groups.image import GroupsImage
from penstock.groups.pending import dropped
from penstock.groups.records import BY_RETENTION, NO_TOPIC_ID, GroupDeleted, OffsetCommitted, OffsetDeleted, Record
from penstock.groups.replies import CommitReply, DeleteGroupReply, DeleteOffsetsReply, TopicForgotten
from penstock.groups.states import GroupState
from penstock.settings import LONG_MAX


def commit(group: Group | None, command: CommitOffsets, draft: Draft, *, fault: ErrorCode | None = None) -> None:
    """`fault` is given by a group of another kind that has judged the member itself."""
    if draft.is_going(command.group):
        fault = ErrorCode.COORDINATOR_NOT_AVAILABLE
    elif fault is None:
        fault = _fault_of_commit(group, command)
    if fault is not ErrorCode.NONE:
        draft.answer(command.token, CommitReply(tuple((new.topic, new.partition, fault) for new in command.offsets)))
        return
    if group is not None and command.member_id in group.members:
        draft.keep_alive(group, group.members[command.member_id])
    expires_ms = BY_RETENTION if command.retention_ms == NO_RETENTION else min(max(draft.wall_ms + command.retention_ms, 0), LONG_MAX)
    pending = draft.image.pending.groups.get(command.group)
    answers = []
    free_bytes: int | None = None  # Asked for once, by the first that needs more.
    for new in command.offsets:
        metadata = new.metadata or ""
        if len(metadata) > draft.settings.offset_metadata_max:
            answers.append((new.topic, new.partition, ErrorCode.OFFSET_METADATA_TOO_LARGE))
            continue
        growth = draft.image.growth(command.group, new.topic, new.partition, metadata)
        if growth > 0:
            free_bytes = draft.free_bytes() if free_bytes is None else free_bytes
            if growth > free_bytes:
                answers.append((new.topic, new.partition, ErrorCode.COORDINATOR_NOT_AVAILABLE))
                continue
            free_bytes -= growth
        committed = (new.offset, new.leader_epoch, metadata, draft.wall_ms, expires_ms, new.topic_id)
        draft.records.append(OffsetCommitted(command.group, new.topic, new.partition, *committed))
        if pending is not None:
            draft.records += dropped(pending.get((new.topic, new.partition), {}).values())
        answers.append((new.topic, new.partition, ErrorCode.NONE))
    draft.answer(command.token, CommitReply(tuple(answers)))


def delete_offsets(group: Group | ConsumerGroup | None, command: DeleteOffsets, image: GroupsImage, draft: Draft) -> None:
    """A consumer group keeps the offsets of topics that it reads; another kind of group keeps all of them while it has members."""
    fault = ErrorCode.NONE
    if group is None:
        fault = ErrorCode.GROUP_ID_NOT_FOUND
    elif group.state is not GroupState.EMPTY and group.protocol_type != CONSUMERS:
        fault = ErrorCode.NON_EMPTY_GROUP
    if group is None or fault is not ErrorCode.NONE:
        draft.answer(command.token, DeleteOffsetsReply(fault, tuple((topic, number, fault) for topic, number in command.partitions)))
        return
    faults = {
        topic: ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC if group.subscribed_to(topic) else ErrorCode.NONE
        for topic in dict.fromkeys(topic for topic, _ in command.partitions)
    }
    held = image.offsets.get(command.group, {})
    for topic, partition in dict.fromkeys(command.partitions):
        if faults[topic] is not ErrorCode.NONE:
            continue
        if partition in held.get(topic, {}):
            draft.records.append(OffsetDeleted(command.group, topic, partition))
        draft.records += dropped(image.pending.at(command.group, topic, partition).values())
    answers = tuple((topic, partition, faults[topic]) for topic, partition in command.partitions)
    draft.answer(command.token, DeleteOffsetsReply(ErrorCode.NONE, answers))


def delete_group(group: Group | ConsumerGroup | None, command: DeleteGroup, image: GroupsImage, draft: Draft) -> None:
    fault = ErrorCode.NONE
    if group is None:
        fault = ErrorCode.GROUP_ID_NOT_FOUND
    elif group.state is not GroupState.EMPTY:
        fault = ErrorCode.NON_EMPTY_GROUP
    else:
        group.pending.clear()
        draft.answer(command.token, DeleteGroupReply(fault, is_over=_delete_piece(command.group, image, draft)))
        return
    draft.answer(command.token, DeleteGroupReply(fault))


def _delete_piece(group: str, image: GroupsImage, draft: Draft) -> bool:
    """True: that was all. The group itself goes last, so that a deletion which was cut off can be asked for again."""
    committed: Iterator[Record] = (OffsetDeleted(group, topic, partition) for topic, partition, _ in image.committed(group))
    held = list(islice(chain(committed, dropped(image.pending.of_group(group))), DELETED_AT_ONCE + 1))
    draft.records += held[:DELETED_AT_ONCE]
    if len(held) > DELETED_AT_ONCE:
        draft.mark_going(group)
        return False
    draft.sessions.going.pop(group, None)
    if group in image.saved:
        draft.records.append(GroupDeleted(group))
    if group in image.consumers.groups:
        draft.records.append(ConsumerGroupGone(group))
    return True


def forget_topic(command: ForgetTopic, image: GroupsImage, draft: Draft) -> None:
    committed = image.committed_for(command.topic, command.topic_id)
    deleted: Iterator[Record] = (OffsetDeleted(group, command.topic, partition) for group, partition in committed)
    pending = dropped(image.pending.for_topic(command.topic, (command.topic_id, NO_TOPIC_ID)))
    found = list(islice(chain(deleted, pending), command.offsets_max))
    draft.records += found
    draft.answer(command.token, TopicForgotten(len(found)))


def _fault_of_commit(group: Group | None, command: CommitOffsets) -> ErrorCode:
    if group is None:
        return ErrorCode.NONE if command.generation < 0 else ErrorCode.GROUP_ID_NOT_FOUND
    if group.state is GroupState.EMPTY and command.generation < 0:
        return ErrorCode.NONE
    if command.generation < 0 and not command.member_id and command.instance_id is None:
        return ErrorCode.UNKNOWN_MEMBER_ID
    fault = group.fault_of(command.member_id, command.instance_id)
    if fault is not ErrorCode.NONE:
        return fault
    if command.generation != group.generation:
        return ErrorCode.ILLEGAL_GENERATION
    return ErrorCode.REBALANCE_IN_PROGRESS if group.state is GroupState.COMPLETING else ErrorCode.NONE
