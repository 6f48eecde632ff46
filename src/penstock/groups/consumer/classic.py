"""Members that speak the classic protocol in a group of the new one: their joins, syncs, heartbeats and good-byes.

They are served from the group's targets as all others. Nobody waits for anybody: a join is answered at once with the member's epoch as its
generation and without a leader, and the sync tells what the member has. By a heartbeat (REBALANCE_IN_PROGRESS) a member learns that it is
to join again: when there is another target, when it is to say that it gave something up, and when what it waited for is free.
It must join within its rebalance time-out after that, and sync within the same after a join, or it is taken for dead.
"""

from dataclasses import replace

from penstock.errors import ErrorCode, Refusal
from penstock.groups.commands import Heartbeat, JoinGroup, LeaveGroup, Leaving, SyncGroup
from penstock.groups.consumer.converting import as_assignment, by_id
from penstock.groups.consumer.group import ConsumerGroup
from penstock.groups.consumer.heartbeating import check_growth, check_holder, check_room
from penstock.groups.consumer.leaving import remove
from penstock.groups.consumer.records import ClassicOffer, ConsumerMemberSaved, MemberState
from penstock.groups.consumer.stepping import Place, keep_alive, session_of, step, taken_over
from penstock.groups.draft import Draft
from penstock.groups.group import CONSUMERS
from penstock.groups.joining import fault_of_request
from penstock.groups.replies import HeartbeatReply, JoinReply, LeaveReply, Left, SyncReply
from penstock.wire.consumer_protocol import read_owned, read_subscription, version_of


def join(group: ConsumerGroup, command: JoinGroup, draft: Draft) -> None:
    try:
        reply = _joined(group, command, draft)
    except Refusal as refusal:
        reply = JoinReply(error=refusal.code, member_id=command.member_id)
    draft.answer(command.token, reply)


def sync(group: ConsumerGroup, command: SyncGroup, draft: Draft) -> None:
    try:
        offer = _offer_of(group, command.member_id, command.instance_id, command.generation)
        protocol = offer.protocols[0][0]
        if command.protocol_type not in (None, CONSUMERS) or command.protocol_name not in (None, protocol):
            raise Refusal(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, f"the member joined with protocol {protocol!r}")
        current = group.current(command.member_id)
        if group.assignment_epoch > current.epoch and current.state is not MemberState.UNREVOKED:
            _await_join(group, command.member_id, draft)
            raise Refusal(ErrorCode.REBALANCE_IN_PROGRESS, "there is a newer assignment")
        session_of(group.name, draft).synced_by.pop(command.member_id, None)
        keep_alive(group.name, command.member_id, offer.session_timeout_ms, draft)
        assignment = as_assignment(current.assigned, draft.sessions.topics.view, version_of(offer.protocols[0][1]))
        reply = SyncReply(protocol_type=CONSUMERS, protocol_name=protocol, assignment=assignment)
    except Refusal as refusal:
        reply = SyncReply(error=refusal.code)
    draft.answer(command.token, reply)


def heartbeat(group: ConsumerGroup, command: Heartbeat, draft: Draft) -> None:
    code = ErrorCode.NONE
    try:
        offer = _offer_of(group, command.member_id, command.instance_id, command.generation)
        keep_alive(group.name, command.member_id, offer.session_timeout_ms, draft)
        if _is_to_join(group, command.member_id):
            _await_join(group, command.member_id, draft)
            code = ErrorCode.REBALANCE_IN_PROGRESS
    except Refusal as refusal:
        code = refusal.code
    draft.answer(command.token, HeartbeatReply(code))


def leave(group: ConsumerGroup, command: LeaveGroup, draft: Draft) -> None:
    gone: dict[str, None] = {}
    left = []
    for one in command.members:
        try:
            member_id = _leaving(group, one, gone)
            gone[member_id] = None
            left.append(Left(one.member_id, one.instance_id, ErrorCode.NONE))
        except Refusal as refusal:
            left.append(Left(one.member_id, one.instance_id, refusal.code))
    if gone:
        remove(group, tuple(gone), draft)
    draft.answer(command.token, LeaveReply(ErrorCode.NONE, tuple(left)))


def _joined(group: ConsumerGroup, command: JoinGroup, draft: Draft) -> JoinReply:
    fault = fault_of_request(command, draft)
    if fault is not ErrorCode.NONE:
        raise Refusal(fault, "the join is not one that can be taken")
    member_id = command.member_id or command.fresh_member_id
    check_room(group, member_id, command.instance_id, draft)
    _check_offer(group, command)
    if not command.member_id and command.instance_id is None and command.needs_known_member_id:
        return JoinReply(error=ErrorCode.MEMBER_ID_REQUIRED, member_id=member_id)
    place = _place(group, command, member_id)
    member = _said(place.member, command, member_id)
    check_growth(place.member, member, draft)
    name, content = command.protocols[0]
    taken = step(group, place, member, by_id(read_owned(content) or {}, draft.sessions.topics.view), draft)
    draft.records += taken.records
    keep_alive(group.name, member_id, command.session_timeout_ms, draft)
    session = session_of(group.name, draft)
    session.joined_by.pop(member_id, None)
    deadline = session.synced_by[member_id] = draft.after(member.rebalance_timeout_ms)
    draft.sessions.alarms.set_by(group.name, deadline)
    return JoinReply(generation=taken.current.epoch, protocol_type=CONSUMERS, protocol_name=name, member_id=member_id)


def _check_offer(group: ConsumerGroup, command: JoinGroup) -> None:
    """All classic members must have a protocol in common, so that the group can become a classic one again."""
    tallies = group.tallies
    shares = any(tallies.protocols.get(name, 0) == tallies.classic for name, _ in command.protocols)
    if command.protocol_type != CONSUMERS or not shares or read_subscription(command.protocols[0][1]) is None:
        raise Refusal(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, "the member shares no protocol with the others, or cannot be understood")


def _place(group: ConsumerGroup, command: JoinGroup, member_id: str) -> Place:
    if command.instance_id is not None:
        holder = group.holder(command.instance_id)
        if command.member_id:
            check_holder(group, member_id, command.instance_id)
        elif holder is not None:
            before = replace(group.members[holder], member_id=member_id)
            return Place(before, taken_over(group.current(holder), member_id), group.target(holder), replaces=holder)
    return Place(group.members.get(member_id), group.current(member_id), group.target(member_id))


def _said(before: ConsumerMemberSaved | None, command: JoinGroup, member_id: str) -> ConsumerMemberSaved:
    topics = read_subscription(command.protocols[0][1]) or ()
    rebalance_timeout_ms = command.rebalance_timeout_ms if command.rebalance_timeout_ms >= 0 else command.session_timeout_ms
    return replace(
        before or ConsumerMemberSaved(group=command.group, member_id=member_id),
        instance_id=command.instance_id, client_id=command.client_id, client_host=command.client_host, regex="",
        rebalance_timeout_ms=rebalance_timeout_ms, topics=tuple(sorted(dict.fromkeys(topics))),
        classic=ClassicOffer(command.session_timeout_ms, command.protocols),
    )  # fmt: skip


def _offer_of(group: ConsumerGroup, member_id: str, instance_id: str | None, generation: int) -> ClassicOffer:
    check_holder(group, member_id, instance_id)
    offer = group.members[member_id].classic
    if offer is None:
        raise Refusal(ErrorCode.UNKNOWN_MEMBER_ID, f"member {member_id!r} speaks the new protocol")
    if generation != group.current(member_id).epoch:
        raise Refusal(ErrorCode.ILLEGAL_GENERATION, f"the member is in generation {group.current(member_id).epoch}")
    return offer


def _leaving(group: ConsumerGroup, one: Leaving, gone: dict[str, None]) -> str:
    """The id of the member that is meant."""
    member_id = one.member_id
    if one.instance_id is not None and not member_id:
        member_id = group.holder(one.instance_id) or ""
    check_holder(group, member_id, one.instance_id)
    if member_id in gone or group.members[member_id].classic is None:
        raise Refusal(ErrorCode.UNKNOWN_MEMBER_ID, f"member {member_id!r} speaks the new protocol, or has left already")
    return member_id


def _is_to_join(group: ConsumerGroup, member_id: str) -> bool:
    current = group.current(member_id)
    if current.epoch < group.assignment_epoch or current.state is MemberState.UNREVOKED:
        return True
    return current.state is MemberState.UNRELEASED and not group.waits_for_others(member_id)


def _await_join(group: ConsumerGroup, member_id: str, draft: Draft) -> None:
    session = session_of(group.name, draft)
    if member_id not in session.joined_by:
        deadline = session.joined_by[member_id] = draft.after(group.members[member_id].rebalance_timeout_ms)
        draft.sessions.alarms.set_by(group.name, deadline)
