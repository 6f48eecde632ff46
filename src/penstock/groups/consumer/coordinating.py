"""The commands that concern groups of the new protocol: which of them do, and who decides what.

Group names are one namespace: a classic command to a group of the new kind is answered here, too.
"""

from typing import assert_never

from penstock.errors import ErrorCode
from penstock.groups import commands, committing, pending
from penstock.groups.consumer import classic
from penstock.groups.consumer.group import ConsumerGroup
from penstock.groups.consumer.heartbeating import heartbeat
from penstock.groups.consumer.records import (
    ConsumerGroupGone,
    ConsumerGroupSaved,
    ConsumerMemberGone,
    ConsumerRecord,
    MemberState,
)
from penstock.groups.consumer.session import ConsumerSession
from penstock.groups.draft import Draft, Sessions
from penstock.groups.image import GroupsImage
from penstock.groups.joining import fault_of_request
from penstock.vocabulary import Instant


def decide(command: commands.Command, draft: Draft) -> bool:
    """False: it concerns no such group, or no longer."""
    if isinstance(command, commands.ConsumerHeartbeat):  # It may begin a group.
        heartbeat(command, draft)
        return True
    if not isinstance(command, commands.GroupCommand):
        return False
    group = draft.image.consumers.groups.get(command.group)
    if group is None:
        return False
    if isinstance(command, commands.JoinGroup) and not group.members:
        if fault_of_request(command, draft) is ErrorCode.NONE and command.protocol_type and command.protocols:
            draft.records.append(ConsumerGroupGone(group.name))  # An empty group is of the kind of whoever comes first.
        return False
    _decide_for(group, command, draft)
    return True


def _decide_for(group: ConsumerGroup, command: commands.GroupCommand, draft: Draft) -> None:
    match command:
        case commands.JoinGroup():
            classic.join(group, command, draft)
        case commands.SyncGroup():
            classic.sync(group, command, draft)
        case commands.Heartbeat():
            classic.heartbeat(group, command, draft)
        case commands.LeaveGroup():
            classic.leave(group, command, draft)
        case commands.CommitOffsets():
            committing.commit(None, command, draft, fault=fault_of_commit(group, command))
        case commands.CommitPending():
            pending.commit_pending(None, command, draft, fault=_fault_of_pending(group, command))
        case commands.DeleteOffsets():
            committing.delete_offsets(group, command, draft.image, draft)
        case commands.DeleteGroup():
            committing.delete_group(group, command, draft.image, draft)
        case commands.ConsumerHeartbeat():
            heartbeat(command, draft)
        case _:
            assert_never(command)


def replayed(record: ConsumerRecord, sessions: Sessions) -> None:
    """What is gone needs no deadline."""
    session = sessions.consumers.get(record.group)
    if session is None:
        return
    if isinstance(record, ConsumerMemberGone):
        session.forget(record.member_id)
    elif isinstance(record, ConsumerGroupGone):
        del sessions.consumers[record.group]
    elif isinstance(record, ConsumerGroupSaved):
        session.topics_version = -1


def begin(image: GroupsImage, sessions: Sessions, now: Instant) -> None:
    """Loading is over: everybody has a full session from now, and whoever is to give something up its whole time-out."""
    for name, group in image.consumers.groups.items():
        if not group.members:
            continue
        session = sessions.consumers[name] = ConsumerSession()
        session_timeout_ms = sessions.configs(name).consumer_session_timeout_ms
        for member_id, member in group.members.items():
            timeout_ms = session_timeout_ms if member.classic is None else member.classic.session_timeout_ms
            session.heard_by[member_id] = Instant(now + timeout_ms / 1000)
            if member.classic is None and group.current(member_id).state is MemberState.UNREVOKED:
                session.revoked_by[member_id] = Instant(now + member.rebalance_timeout_ms / 1000)
        sessions.alarms.set_by(name, now if group.is_to_be_assigned else session.earliest())


def fault_of_commit(group: ConsumerGroup, command: commands.CommitOffsets) -> ErrorCode:
    """Anybody commits for a group without members; otherwise a member of the epoch that it says."""
    if command.generation < 0 and not group.members:
        return ErrorCode.NONE
    member = group.members.get(command.member_id)
    if member is not None and member.classic is None and not command.knows_epochs:
        return ErrorCode.UNSUPPORTED_VERSION
    return fault_of_epoch(group, command.member_id, command.generation)


def fault_of_epoch(group: ConsumerGroup, member_id: str, epoch: int) -> ErrorCode:
    member = group.members.get(member_id)
    if member is None:
        return ErrorCode.UNKNOWN_MEMBER_ID
    if epoch == group.current(member_id).epoch:
        return ErrorCode.NONE
    return ErrorCode.STALE_MEMBER_EPOCH if member.classic is None else ErrorCode.ILLEGAL_GENERATION


def _fault_of_pending(group: ConsumerGroup, command: commands.CommitPending) -> ErrorCode:
    """Who doesn't say who it is, is believed. TxnOffsetCommit knows a stale epoch by an older name."""
    if command.generation < 0 and (not group.members or (not command.member_id and command.instance_id is None)):
        return ErrorCode.NONE
    fault = fault_of_epoch(group, command.member_id, command.generation)
    return ErrorCode.ILLEGAL_GENERATION if fault is ErrorCode.STALE_MEMBER_EPOCH else fault
