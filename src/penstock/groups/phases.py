"""How a rebalance goes: it begins, members join, a generation starts, and members that don't keep up are left behind.

The steps that every request and every time-out ends in: `begin_rebalance`, `settle` (somebody has joined or gone), `look_again` (a member
id that nobody used has gone) and `complete_join`.
Nothing is recorded on the way except that a group has become empty; a generation is recorded when its leader assigns.
"""

from collections.abc import Callable, Iterable

from penstock.errors import ErrorCode
from penstock.groups.bounds import EMPTY_AGAIN_MS
from penstock.groups.draft import Draft
from penstock.groups.group import NEVER, FirstJoin, Group, Member, subscription
from penstock.groups.records import MemberSaved
from penstock.groups.replies import JoinedMember, JoinReply, SyncReply
from penstock.groups.states import GroupState


def begin_rebalance(group: Group, draft: Draft) -> None:
    """Everybody must join again. An empty group first waits a while for others to come."""
    answer_syncs(group, draft, lambda member: SyncReply(error=ErrorCode.REBALANCE_IN_PROGRESS))
    group.sync_ends = NEVER
    group.unsynced.clear()
    is_first = group.state is GroupState.EMPTY
    group.move(GroupState.PREPARING)
    delay_ms = draft.settings.initial_rebalance_delay_ms
    if is_first and delay_ms:
        group.first_join = FirstJoin(max(group.rebalance_timeout_ms - delay_ms, 0))
        draft.end_join_in(group, delay_ms)
    elif is_first or group.has_all_joined:
        complete_join(group, draft)
    else:
        draft.end_join_in(group, group.rebalance_timeout_ms)


def settle(group: Group, draft: Draft) -> None:
    """After somebody has joined or gone: the join phase may be over, or a rebalance is needed."""
    if group.state in (GroupState.STABLE, GroupState.COMPLETING):
        begin_rebalance(group, draft)
    else:
        look_again(group, draft)


def look_again(group: Group, draft: Draft) -> None:
    """After something that a join phase may have waited for. A running generation is not touched: its members are the same."""
    if group.state is GroupState.PREPARING and group.first_join is None and group.has_all_joined:
        complete_join(group, draft)


def join_time_is_up(group: Group, draft: Draft) -> None:
    """The initial delay goes on while newcomers arrive, up to the rebalance time-out; otherwise whoever joined goes on alone."""
    first = group.first_join
    if first is None or not first.has_newcomers or not first.left_ms:
        complete_join(group, draft)
        return
    delay_ms = min(draft.settings.initial_rebalance_delay_ms, first.left_ms)
    group.first_join = FirstJoin(first.left_ms - delay_ms)
    draft.end_join_in(group, delay_ms)


def complete_join(group: Group, draft: Draft) -> None:
    """Ends the join phase: dynamic members that didn't join are dropped, static ones stay, and the next generation begins."""
    group.join_ends = NEVER
    group.first_join = None
    for member in list(group.members.values()):
        if member.member_id not in group.joining and member.instance_id is None:
            group.remove(member.member_id)
    if not group.members:
        draft.records.append(group.saved_empty(draft.wall_ms))
        draft.end_join_in(group, EMPTY_AGAIN_MS)  # The group is empty once that is recorded; if it can't be, this asks again.
    elif not group.elect_leader():
        draft.end_join_in(group, group.rebalance_timeout_ms)  # Only static members are left, none of them back yet.
    else:
        _begin_generation(group, draft)


def sync_time_is_up(group: Group, draft: Draft) -> None:
    """Members that never asked for their assignment are dropped, for nobody knows whether they would work on it."""
    group.sync_ends = NEVER
    if group.unsynced:
        for member_id in list(group.unsynced):
            drop(group, member_id, draft)
        begin_rebalance(group, draft)


def drop(group: Group, member_id: str, draft: Draft) -> None:
    """A member or a pending id goes; if it still waits for something, it is told to begin anew. The caller then says `somebody_went`."""
    refuse_parked(group, member_id, ErrorCode.UNKNOWN_MEMBER_ID, "", draft)
    group.remove(member_id)


def somebody_went(group: Group, members_before: int, draft: Draft) -> None:
    """After one or several were dropped. A member makes the others rebalance; an id that was given away and never used concerns nobody."""
    if len(group.members) < members_before:
        settle(group, draft)
    else:
        look_again(group, draft)


def refuse_parked(group: Group, member_id: str, error: ErrorCode, told_id: str, draft: Draft) -> None:
    """Answers whoever waits under this member id with an error."""
    if member_id in group.joining:
        draft.answer(group.joining.pop(member_id), JoinReply(error=error, member_id=told_id))
    if member_id in group.syncing:
        draft.answer(group.syncing.pop(member_id), SyncReply(error=error))


def answer_syncs(group: Group, draft: Draft, reply: Callable[[Member], SyncReply]) -> None:
    """Answers everybody who waits for an assignment, and starts their sessions again."""
    syncing, group.syncing = group.syncing, {}
    for member_id, token in syncing.items():
        draft.keep_alive(group, group.members[member_id])
        draft.answer(token, reply(group.members[member_id]))


def current_generation(group: Group, member: Member) -> JoinReply:
    """What a member of this generation is told about it: the leader who they all are, the others only who leads."""
    is_leader = member.member_id == group.leader
    return JoinReply(
        generation=group.generation, protocol_type=group.protocol_type, protocol_name=group.protocol, leader=group.leader or "",
        member_id=member.member_id, members=everybody(group.members.values(), group.protocol) if is_leader else (),
    )  # fmt: skip


def everybody(members: Iterable[Member | MemberSaved], protocol: str | None) -> tuple[JoinedMember, ...]:
    return tuple(JoinedMember(member.member_id, member.instance_id, subscription(member.protocols, protocol)) for member in members)


def _begin_generation(group: Group, draft: Draft) -> None:
    group.generation += 1
    group.protocol = group.choose_protocol()
    group.move(GroupState.COMPLETING)
    joining, group.joining = group.joining, {}
    group.unsynced = dict.fromkeys(group.members)
    for member in group.members.values():
        member.is_new = False
        draft.keep_alive(group, member)
        if member.member_id in joining:
            draft.answer(joining[member.member_id], current_generation(group, member))
    draft.end_sync_in(group, group.rebalance_timeout_ms)
