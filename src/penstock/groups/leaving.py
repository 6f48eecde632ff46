"""LeaveGroup: members say good-bye, or an admin shows them out (KIP-345, KIP-800).

Several may leave at once, dynamic ones by member id, static ones by instance id with or without it; each hears by itself whether it was
there. The group rebalances once for all of them, but, unlike Kafka's, not for somebody who was given an id and has never used it.
Static consumers do not leave when they close: that is what makes them static.
"""

from penstock.errors import ErrorCode
from penstock.groups.commands import Abandoned, LeaveGroup, Leaving
from penstock.groups.draft import Draft
from penstock.groups.group import Group
from penstock.groups.phases import drop, somebody_went
from penstock.groups.replies import LeaveReply, Left


def leave(group: Group | None, command: LeaveGroup, draft: Draft) -> None:
    if not command.group:
        draft.answer(command.token, LeaveReply(ErrorCode.INVALID_GROUP_ID))
        return
    members_before = 0 if group is None else len(group.members)
    left = tuple(Left(one.member_id, one.instance_id, _remove(group, one, draft)) for one in command.members)
    if group is not None and any(one.error is ErrorCode.NONE for one in left):
        somebody_went(group, members_before, draft)
    draft.answer(command.token, LeaveReply(ErrorCode.NONE, left))


def abandon(group: Group, member_id: str, command: Abandoned, draft: Draft) -> None:
    """Nobody waits for this answer any more. The member may come back within a session; until then it has not joined."""
    del draft.sessions.parked[command.token]
    group.joining.pop(member_id, None)
    group.syncing.pop(member_id, None)
    draft.keep_alive(group, group.members[member_id])


def _remove(group: Group | None, one: Leaving, draft: Draft) -> ErrorCode:
    if group is None:
        return ErrorCode.UNKNOWN_MEMBER_ID
    member_id = one.member_id or group.statics.get(one.instance_id or "", "")
    if member_id in group.pending:
        drop(group, member_id, draft)
        return ErrorCode.NONE
    fault = group.fault_of(member_id, one.instance_id)
    if fault is ErrorCode.NONE:
        drop(group, member_id, draft)
    return fault
