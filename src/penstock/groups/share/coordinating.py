"""The commands that concern share groups: which of them do, and who decides what.

Group names are one namespace. What only other kinds of groups know is refused here as Kafka refuses it: a join is
INCONSISTENT_GROUP_PROTOCOL, commits are GROUP_ID_NOT_FOUND, and nobody is a classic member (UNKNOWN_MEMBER_ID).
"""

from typing import assert_never

from penstock.errors import ErrorCode, Refusal
from penstock.groups import commands, committing, pending
from penstock.groups.draft import Draft, Sessions
from penstock.groups.image import GroupsImage
from penstock.groups.replies import (
    ConsumerHeartbeatReply,
    DeleteOffsetsReply,
    HeartbeatReply,
    JoinReply,
    LeaveReply,
    LedgersChanged,
    SyncReply,
)
from penstock.groups.share import changing
from penstock.groups.share.group import ShareGroup
from penstock.groups.share.heartbeating import heartbeat
from penstock.groups.share.records import ShareGone, ShareGroupSaved, ShareKind, ShareRecord
from penstock.groups.share.session import ShareSession
from penstock.vocabulary import Instant

NOT_FOUND = ErrorCode.GROUP_ID_NOT_FOUND


def decide(command: commands.Command, draft: Draft) -> bool:
    """False: it concerns no share group."""
    match command:
        case commands.EndPending() | commands.ForgetTopic() | commands.Abandoned():
            return False
        case commands.ShareHeartbeat():
            heartbeat(command, draft)
            return True
        case commands.BeginLedgers() | commands.ForgetLedgers() | commands.EndLedgers():
            draft.answer(command.token, _change(command, draft))
            return True
        case commands.SweepLedger():
            draft.answer(command.token, changing.sweep_ledger(command, draft))
            return True
        case commands.ForgetLedgersOf():
            draft.answer(command.token, changing.forget_ledgers_of(command, draft))
            return True
        case _:
            group = draft.image.shares.groups.get(command.group)
            if group is None:
                return False
            _decide_for(group, command, draft)
            return True


def _decide_for(group: ShareGroup, command: commands.GroupCommand, draft: Draft) -> None:
    token = command.token
    match command:
        case commands.DeleteGroup():
            draft.answer(token, changing.delete(group, command, draft))
        case commands.JoinGroup():
            draft.answer(token, JoinReply(error=ErrorCode.INCONSISTENT_GROUP_PROTOCOL, member_id=command.member_id))
        case commands.ConsumerHeartbeat():
            reason = f"group {group.name!r} is a share group, not a consumer group"
            draft.answer(token, ConsumerHeartbeatReply(error=NOT_FOUND, message=reason))
        case commands.SyncGroup():
            draft.answer(token, SyncReply(error=ErrorCode.UNKNOWN_MEMBER_ID))
        case commands.Heartbeat():
            draft.answer(token, HeartbeatReply(ErrorCode.UNKNOWN_MEMBER_ID))
        case commands.LeaveGroup():
            draft.answer(token, LeaveReply(ErrorCode.UNKNOWN_MEMBER_ID))
        case commands.CommitOffsets():
            committing.commit(None, command, draft, fault=NOT_FOUND)
        case commands.CommitPending():
            pending.commit_pending(None, command, draft, fault=NOT_FOUND)
        case commands.DeleteOffsets():
            rows = tuple((topic, number, NOT_FOUND) for topic, number in command.partitions)
            draft.answer(token, DeleteOffsetsReply(NOT_FOUND, rows))
        case _:
            assert_never(command)


def _change(command: commands.LedgersCommand, draft: Draft) -> LedgersChanged:
    try:
        match command:
            case commands.BeginLedgers():
                return changing.begin_ledgers(command, draft)
            case commands.ForgetLedgers():
                return changing.forget_ledgers(command, draft)
            case commands.EndLedgers():
                return changing.end_ledgers(command, draft)
            case _:
                assert_never(command)
    except Refusal as refusal:
        return LedgersChanged(refusal.code, refusal.reason)


def replayed(record: ShareRecord, sessions: Sessions) -> None:
    """What is gone needs no deadline."""
    session = sessions.shares.get(record.group)
    if session is None:
        return
    if isinstance(record, ShareGone) and record.kind is ShareKind.MEMBER:
        session.heard_by.pop(record.member_id, None)
    elif isinstance(record, ShareGone) and record.kind is ShareKind.GROUP:
        del sessions.shares[record.group]
    elif isinstance(record, ShareGroupSaved):
        session.topics_version = -1


def begin(image: GroupsImage, sessions: Sessions, now: Instant) -> None:
    """Loading is over: everybody has a full session from now."""
    for name, group in image.shares.groups.items():
        if group.members:
            deadline = Instant(now + sessions.configs(name).share_session_timeout_ms / 1000)
            sessions.shares[name] = ShareSession(dict.fromkeys(group.members, deadline))
            sessions.alarms.set_by(name, deadline)
