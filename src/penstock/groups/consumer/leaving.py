"""How members go: they say so, are shown out, or their time is up. What they had is free at once, and the group is assigned anew.

A static member that leaves with epoch -2 only steps out: its partitions wait for it, until its session lapses.
"""

from collections.abc import Sequence
from dataclasses import replace

from penstock.errors import ErrorCode, Refusal
from penstock.groups.bounds import EMPTY_AGAIN_MS
from penstock.groups.commands import ConsumerHeartbeat
from penstock.groups.consumer.assigning import Change, assigned, changed_targets, saved_after
from penstock.groups.consumer.converting import downgrade, goes_back
from penstock.groups.consumer.group import ConsumerGroup
from penstock.groups.consumer.partitions import NOTHING
from penstock.groups.consumer.records import LEFT_FOR_NOW, MemberState
from penstock.groups.consumer.stepping import note_assigned, removal, session_of
from penstock.groups.draft import Draft
from penstock.groups.replies import ConsumerHeartbeatReply


def leave(command: ConsumerHeartbeat, draft: Draft) -> ConsumerHeartbeatReply:
    group = draft.image.consumers.groups.get(command.group)
    if group is None:
        raise Refusal(ErrorCode.GROUP_ID_NOT_FOUND, f"there is no consumer group {command.group!r}")
    member_id = command.member_id
    if command.instance_id is not None:
        holder = group.holder(command.instance_id)
        if holder is None:
            raise Refusal(ErrorCode.UNKNOWN_MEMBER_ID, f"nobody in group {group.name!r} has the instance id {command.instance_id!r}")
        if holder != member_id:
            raise Refusal(ErrorCode.FENCED_INSTANCE_ID, f"another member has taken over the instance id {command.instance_id!r}")
    if member_id not in group.members:
        raise Refusal(ErrorCode.UNKNOWN_MEMBER_ID, f"group {group.name!r} has no member {member_id!r}")
    if command.member_epoch == LEFT_FOR_NOW:
        current = group.current(member_id)
        draft.records.append(replace(current, epoch=LEFT_FOR_NOW, state=MemberState.STABLE, revoking=NOTHING))
        session_of(group.name, draft).revoked_by.pop(member_id, None)
    else:
        remove(group, (member_id,), draft)
    return ConsumerHeartbeatReply(member_id=member_id, member_epoch=command.member_epoch)


def remove(group: ConsumerGroup, member_ids: Sequence[str], draft: Draft) -> None:
    """Takes members out of the group. If only members of the classic protocol are left, it may become a classic group again."""
    change = Change(tuple(member_ids))
    if goes_back(group, change.gone, draft.settings):
        draft.records += downgrade(group, change.gone, draft)
        return
    for member_id in member_ids:
        draft.records += removal(group.name, member_id)
    draft.records.append(saved_after(group, change, draft, must_grow=True))
    draft.sessions.alarms.set_by(group.name, max(session_of(group.name, draft).assigned_from, draft.now))


def lapse(group: ConsumerGroup, draft: Draft) -> None:
    """What the passing of time causes in a group: whoever was not heard of goes, and the group is assigned if that is due."""
    session = session_of(group.name, draft)
    gone = []
    for member_id in session.lapsed(draft.now):
        session.forget(member_id)
        if member_id in group.members:
            gone.append(member_id)
            session.heard_by[member_id] = draft.after(EMPTY_AGAIN_MS)  # If its going can't be recorded, it is tried again.
    if gone:
        remove(group, gone, draft)
    elif group.is_to_be_assigned and group.saved is not None:
        again = session.assigned_from
        if again <= draft.now:
            saved, targets = assigned(group, Change(), group.saved, draft)
            draft.records += [*changed_targets(group, targets), saved]
            note_assigned(session, draft)
            again = max(session.assigned_from, draft.after(EMPTY_AGAIN_MS))  # In case that it can't be recorded.
        draft.sessions.alarms.set_by(group.name, again)
    draft.sessions.alarms.set_by(group.name, session.earliest())
