"""JoinGroup: who is let in, who is parked, and whom it makes rebalance (KIP-62, KIP-345, KIP-394, KIP-814).

A newcomer without an instance id is first given a member id and comes back with it, so that a client which retries doesn't become a crowd.
A static member that comes back takes its old place under a new member id, and the holder of the old id is fenced; in a Stable group whose
choice of protocol stays the same nobody else notices.
A second request of a member that still has one parked takes its place: the first is told NOT_COORDINATOR, as newer Kafka does, so that
nobody waits for an answer that cannot come.
"""

from penstock.errors import ErrorCode
from penstock.groups.bounds import MEMBERS_BYTES_MAX, PENDING_MEMBERS_MAX, PROTOCOLS_MAX, SUBSCRIPTION_BYTES_MAX
from penstock.groups.commands import JoinGroup
from penstock.groups.draft import Draft
from penstock.groups.group import Group, Member
from penstock.groups.phases import begin_rebalance, current_generation, drop, everybody, look_again, refuse_parked, settle
from penstock.groups.replies import JoinReply
from penstock.groups.sizes import MEMBER_BYTES, said_by, size_of
from penstock.groups.states import GroupState


def fault_of_request(command: JoinGroup, draft: Draft) -> ErrorCode:
    """What is wrong with a join whatever the group is like."""
    if not command.group:
        return ErrorCode.INVALID_GROUP_ID
    if not draft.settings.session_timeout_min_ms <= command.session_timeout_ms <= draft.settings.session_timeout_max_ms:
        return ErrorCode.INVALID_SESSION_TIMEOUT
    if len(command.protocols) > PROTOCOLS_MAX:
        return ErrorCode.INCONSISTENT_GROUP_PROTOCOL  # As for a member that offers none.
    if size_of(command.protocols) > SUBSCRIPTION_BYTES_MAX:
        return ErrorCode.INVALID_REQUEST
    return ErrorCode.NONE


def join(group: Group, command: JoinGroup, draft: Draft) -> None:
    if not _is_short_enough(group, command, draft):
        _refuse(command, ErrorCode.COORDINATOR_NOT_AVAILABLE, draft)
    elif not _has_place(group, command, draft):
        draft.answer(command.token, JoinReply(error=ErrorCode.GROUP_MAX_SIZE_REACHED, member_id=""))
        if command.member_id in group.members or command.member_id in group.pending:
            drop(group, command.member_id, draft)
            look_again(group, draft)
    elif not group.supports(command.protocol_type, command.protocols):
        _refuse(command, ErrorCode.INCONSISTENT_GROUP_PROTOCOL, draft)
    elif command.member_id:
        _join_known(group, command, draft)
    elif command.instance_id in group.statics:
        _take_static_place(group, command, group.statics[command.instance_id or ""], draft)
    elif command.instance_id is None and command.needs_known_member_id:
        _give_member_id(group, command, draft)
    else:
        _add(group, command, command.fresh_member_id, draft)


def _is_short_enough(group: Group, command: JoinGroup, draft: Draft) -> bool:
    """Whether the node and the group's record have room for what it says about itself. A member that says no more than before always fits.

    The refusal is one that clients come again after: GROUP_MAX_SIZE_REACHED would end Java's consumers.
    """
    member = group.members.get(command.member_id or group.statics.get(command.instance_id or "", ""))
    if member is None:
        more_bytes = said_by(_newcomer(command, command.member_id or command.fresh_member_id)) + MEMBER_BYTES
    else:
        more_bytes = size_of(command.protocols) - size_of(member.protocols)
    return more_bytes <= 0 or (group.said_bytes + more_bytes <= MEMBERS_BYTES_MAX and draft.has_room(more_bytes))


def _has_place(group: Group, command: JoinGroup, draft: Draft) -> bool:
    """Members that have joined count during the join phase, so that a group above a lowered bound sheds those that come last."""
    size_max = draft.settings.group_size_max
    if group.state is GroupState.EMPTY or command.instance_id in group.statics:
        return True
    if group.state is GroupState.PREPARING:
        return command.member_id in group.joining or len(group.joining) < size_max
    return command.member_id in group.members or len(group.members) < size_max


def _join_known(group: Group, command: JoinGroup, draft: Draft) -> None:
    if command.member_id in group.pending and command.instance_id is None:
        _add(group, command, command.member_id, draft)
        return
    fault = group.fault_of(command.member_id, command.instance_id)
    if fault is not ErrorCode.NONE:
        _refuse(command, fault, draft)
        return
    member = group.members[command.member_id]
    is_unchanged = member.protocols == command.protocols
    leads_stable = group.state is GroupState.STABLE and group.leader == member.member_id
    if group.state is GroupState.PREPARING or leads_stable or not is_unchanged:
        _join_again(group, member, command, draft)
    else:
        # It has missed our answer, or just wants to know: nothing has changed for the others.
        draft.keep_alive(group, member)
        draft.answer(command.token, current_generation(group, member))


def _join_again(group: Group, member: Member, command: JoinGroup, draft: Draft) -> None:
    if member.member_id in group.joining:
        superseded = JoinReply(error=ErrorCode.NOT_COORDINATOR, member_id=member.member_id)
        draft.answer(group.joining.pop(member.member_id), superseded)
    group.update(member, command.protocols, command.session_timeout_ms, _rebalance_timeout_ms(command))
    draft.park_join(group, member, command.token)
    settle(group, draft)


def _give_member_id(group: Group, command: JoinGroup, draft: Draft) -> None:
    if len(group.pending) >= PENDING_MEMBERS_MAX:
        del group.pending[next(iter(group.pending))]
    draft.await_member(group, command.fresh_member_id, command.session_timeout_ms)
    draft.answer(command.token, JoinReply(error=ErrorCode.MEMBER_ID_REQUIRED, member_id=command.fresh_member_id))


def _add(group: Group, command: JoinGroup, member_id: str, draft: Draft) -> None:
    if group.first_join is not None:
        group.first_join.has_newcomers = True
    member = _newcomer(command, member_id)
    group.add(member, command.protocol_type)
    draft.park_join(group, member, command.token)
    if group.state is GroupState.EMPTY:
        begin_rebalance(group, draft)
    else:
        settle(group, draft)


def _take_static_place(group: Group, command: JoinGroup, old_member_id: str, draft: Draft) -> None:
    """A static member is back, or somebody else claims to be it: the last to come has the place."""
    if group.state is GroupState.STABLE and group.choose_protocol({old_member_id: command.protocols}) == group.protocol:
        _rename_quietly(group, command, old_member_id, draft)
        return
    refuse_parked(group, old_member_id, ErrorCode.FENCED_INSTANCE_ID, old_member_id, draft)
    member = group.rename_static(old_member_id, command.fresh_member_id)
    group.update(member, command.protocols, command.session_timeout_ms, _rebalance_timeout_ms(command))
    member.client_id, member.client_host = command.client_id, command.client_host
    draft.park_join(group, member, command.token)
    settle(group, draft)


def _rename_quietly(group: Group, command: JoinGroup, old_member_id: str, draft: Draft) -> None:
    """Records the new member id and answers with the running generation. The session changes when that record is replayed.

    A returning leader that can't be told to skip the assignment hears its old id as the leader's: so it takes itself for a follower and
    asks for the assignment that is in force, instead of making another one that nobody would be told of.
    """
    newcomer = _newcomer(command, command.fresh_member_id).saved(group.members[old_member_id].assignment)
    record = draft.image.saved[group.name].with_static(old_member_id, newcomer, draft.wall_ms)
    draft.keep_alive(group, group.members[old_member_id])
    draft.records.append(record)
    is_leader = group.leader == old_member_id
    skips = is_leader and command.can_skip_assignment
    draft.answer(
        command.token,
        JoinReply(
            generation=group.generation, protocol_type=group.protocol_type, protocol_name=group.protocol,
            leader=command.fresh_member_id if skips else group.leader or "", skip_assignment=skips, member_id=command.fresh_member_id,
            members=everybody(record.members, group.protocol) if skips else (),
        ),
    )  # fmt: skip


def _newcomer(command: JoinGroup, member_id: str) -> Member:
    return Member(
        member_id=member_id, instance_id=command.instance_id, client_id=command.client_id, client_host=command.client_host,
        session_timeout_ms=command.session_timeout_ms, rebalance_timeout_ms=_rebalance_timeout_ms(command),
        protocols=command.protocols, is_new=True,
    )  # fmt: skip


def _rebalance_timeout_ms(command: JoinGroup) -> int:
    """Version 0 has only the session time-out."""
    return command.rebalance_timeout_ms if command.rebalance_timeout_ms >= 0 else command.session_timeout_ms


def _refuse(command: JoinGroup, error: ErrorCode, draft: Draft) -> None:
    draft.answer(command.token, JoinReply(error=error, member_id=command.member_id))
