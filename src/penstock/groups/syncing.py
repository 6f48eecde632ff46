"""SyncGroup and Heartbeat: members fetch their assignment and stay alive.

In Completing everybody waits until the leader's assignment is recorded; the group is Stable when that record is replayed. Members that the
leader forgot get an empty assignment. What others than the leader send as assignments is ignored.
"""

from penstock.errors import ErrorCode
from penstock.groups.bounds import GROUP_BYTES_MAX
from penstock.groups.commands import Heartbeat, SyncGroup
from penstock.groups.draft import Draft
from penstock.groups.group import NEVER, Group
from penstock.groups.phases import answer_syncs, begin_rebalance
from penstock.groups.records import GroupSaved
from penstock.groups.replies import HeartbeatReply, SyncReply
from penstock.groups.sizes import assigned_bytes
from penstock.groups.states import GroupState


def sync(group: Group | None, command: SyncGroup, draft: Draft) -> None:
    fault = _fault_of_sync(group, command)
    if group is None or fault is not ErrorCode.NONE:
        draft.answer(command.token, SyncReply(error=fault))
        return
    member = group.members[command.member_id]
    if group.state is GroupState.PREPARING:
        draft.keep_alive(group, member)
        draft.answer(command.token, SyncReply(error=ErrorCode.REBALANCE_IN_PROGRESS))
        return
    record = None
    if group.state is GroupState.COMPLETING and member.member_id == group.leader:
        record = group.saved(dict(command.assignments), draft.wall_ms)
        if not draft.has_room_for(group, record):
            # Groups may take no more memory. The others go on waiting and the leader comes again, until its time is up.
            draft.keep_alive(group, member)
            draft.answer(command.token, SyncReply(error=ErrorCode.COORDINATOR_NOT_AVAILABLE))
            return
    group.unsynced.pop(member.member_id, None)
    if not group.unsynced:
        group.sync_ends = NEVER
    if group.state is GroupState.STABLE:
        draft.keep_alive(group, member)
        draft.answer(command.token, _assigned(group, member.assignment))
        return
    if member.member_id in group.syncing:
        draft.answer(group.syncing.pop(member.member_id), SyncReply(error=ErrorCode.NOT_COORDINATOR))
    draft.park_sync(group, member, command.token)
    if record is not None:
        _assign(group, record, draft)


def heartbeat(group: Group | None, command: Heartbeat, draft: Draft) -> None:
    draft.answer(command.token, HeartbeatReply(_fault_of_heartbeat(group, command, draft)))


def _fault_of_sync(group: Group | None, command: SyncGroup) -> ErrorCode:
    if not command.group:
        return ErrorCode.INVALID_GROUP_ID
    if group is None:
        return ErrorCode.UNKNOWN_MEMBER_ID
    fault = group.fault_of(command.member_id, command.instance_id)
    if fault is not ErrorCode.NONE:
        return fault
    if command.generation != group.generation:
        return ErrorCode.ILLEGAL_GENERATION
    agrees = command.protocol_type in (None, group.protocol_type) and command.protocol_name in (None, group.protocol)
    return ErrorCode.NONE if agrees else ErrorCode.INCONSISTENT_GROUP_PROTOCOL


def _fault_of_heartbeat(group: Group | None, command: Heartbeat, draft: Draft) -> ErrorCode:
    if not command.group:
        return ErrorCode.INVALID_GROUP_ID
    if group is None:
        return ErrorCode.UNKNOWN_MEMBER_ID
    fault = group.fault_of(command.member_id, command.instance_id)
    if fault is not ErrorCode.NONE:
        return fault
    if command.generation != group.generation:
        return ErrorCode.ILLEGAL_GENERATION
    draft.keep_alive(group, group.members[command.member_id])
    return ErrorCode.REBALANCE_IN_PROGRESS if group.state is GroupState.PREPARING else ErrorCode.NONE


def _assign(group: Group, record: GroupSaved, draft: Draft) -> None:
    if group.said_bytes + assigned_bytes(record) > GROUP_BYTES_MAX:
        answer_syncs(group, draft, lambda member: SyncReply(error=ErrorCode.UNKNOWN_SERVER_ERROR))
        begin_rebalance(group, draft)
        return
    draft.records.append(record)
    assigned = {member.member_id: member.assignment for member in record.members}
    answer_syncs(group, draft, lambda member: _assigned(group, assigned[member.member_id]))


def _assigned(group: Group, assignment: bytes) -> SyncReply:
    return SyncReply(protocol_type=group.protocol_type, protocol_name=group.protocol, assignment=assignment)
