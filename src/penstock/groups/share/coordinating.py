"""The commands that concern share groups: which of them do, and who decides what.

Group names are one namespace. What only other kinds of groups know is refused here as Kafka refuses it: a join is
INCONSISTENT_GROUP_PROTOCOL, commits are GROUP_ID_NOT_FOUND, and nobody is a classic member (UNKNOWN_MEMBER_ID).
"""

from typing import assert_never

from penstock.errors import ErrorCode
from penstock.groups import commands, committing, pending
from penstock.groups.commands import ChangeLedgers
from penstock.groups.draft import Draft, Sessions
from penstock.groups.image import GroupsImage
from penstock.groups.replies import (
    ConsumerHeartbeatReply,
    DeleteGroupReply,
    DeleteOffsetsReply,
    HeartbeatReply,
    JoinReply,
    LeaveReply,
    LedgersChanged,
    SyncReply,
)
from penstock.groups.share.group import ShareGroup
from penstock.groups.share.heartbeating import heartbeat
from penstock.groups.share.records import LedgersOf, ShareGone, ShareGroupSaved, ShareKind, ShareLedgers, ShareRecord
from penstock.groups.share.session import ShareSession
from penstock.groups.states import GroupState
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
        case commands.ChangeLedgers():
            _change_ledgers(draft.image.shares.groups.get(command.group), command, draft)
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
            _delete(group, command, draft)
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


def _delete(group: ShareGroup, command: commands.DeleteGroup, draft: Draft) -> None:
    """First its ledgers, which are not here: whoever deletes the group is told where they are, and comes again when they are gone."""
    if group.members:
        draft.answer(command.token, DeleteGroupReply(ErrorCode.NON_EMPTY_GROUP))
        return
    if group.ledgers and not command.has_forgotten_ledgers:
        draft.mark_going(group.name)
        draft.answer(command.token, DeleteGroupReply(ErrorCode.NONE, is_over=False, ledgers=group.ledgers))
        return
    draft.sessions.going.pop(group.name, None)
    draft.records += [ShareGone(kind, group.name) for kind in (ShareKind.LEDGERS, ShareKind.ASSIGNMENT, ShareKind.GROUP)]
    draft.answer(command.token, DeleteGroupReply(ErrorCode.NONE))


def _change_ledgers(group: ShareGroup | None, command: ChangeLedgers, draft: Draft) -> None:
    if group is None:
        draft.answer(command.token, LedgersChanged(NOT_FOUND, f"there is no share group {command.group!r}"))
        return
    if group.state is not GroupState.EMPTY:
        reason = f"group {command.group!r} has members: stop them first"
        draft.answer(command.token, LedgersChanged(ErrorCode.NON_EMPTY_GROUP, reason))
        return
    ledgers = dict(group.ledgers)
    for topic_id, topic, partitions in command.added:
        before = ledgers.get(topic_id, LedgersOf(topic, ()))
        ledgers[topic_id] = LedgersOf(topic, tuple(sorted({*before.partitions, *partitions})))
    for topic_id in command.dropped:
        ledgers.pop(topic_id, None)
    if ledgers != group.ledgers:
        draft.records.append(ShareLedgers(group.name, ledgers) if ledgers else ShareGone(ShareKind.LEDGERS, group.name))
    draft.answer(command.token, LedgersChanged(ErrorCode.NONE, ledgers=ledgers))


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
