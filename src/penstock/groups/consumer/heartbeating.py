"""ConsumerGroupHeartbeat: members of the new protocol join, stay, move on and leave by it (KIP-848).

A member joins with epoch 0 and hears its epoch; from then on it says that epoch, and only what has changed. Another epoch than the recorded
one is fenced: then the member must drop everything and join again, which it may do under its id at any time (KAFKA-19233). The epoch before
the recorded one is taken if the member has nothing that is not its own: the answer that told it of the new one got lost.
A static member (KIP-345) that leaves with epoch -2 keeps its place; whoever joins under its instance id has it, under any member id. While
the place is taken: UNRELEASED_INSTANCE_ID, unless it is the holder itself that joins again.
"""

from dataclasses import replace

from penstock.errors import ErrorCode, Refusal
from penstock.groups.bounds import SUBSCRIPTION_BYTES_MAX
from penstock.groups.commands import ConsumerHeartbeat
from penstock.groups.consumer.group import ConsumerGroup
from penstock.groups.consumer.image import bytes_of
from penstock.groups.consumer.leaving import leave
from penstock.groups.consumer.opening import opened
from penstock.groups.consumer.partitions import is_within
from penstock.groups.consumer.records import LEFT_FOR_NOW, ConsumerMemberSaved, CurrentAssigned, MemberState
from penstock.groups.consumer.stepping import Place, call_back_ms, keep_alive, note_revoking, step, taken_over
from penstock.groups.draft import Draft
from penstock.groups.replies import ConsumerHeartbeatReply
from penstock.patterns import pattern_of

JOINS, LEAVES = 0, -1


def heartbeat(command: ConsumerHeartbeat, draft: Draft) -> None:
    quick = _at_rest(command, draft)
    if quick is not None:
        draft.answer(command.token, quick)
        return
    try:
        check_request(command, draft)
        reply = leave(command, draft) if command.member_epoch in (LEAVES, LEFT_FOR_NOW) else _heard(command, draft)
    except Refusal as refusal:
        reply = ConsumerHeartbeatReply(error=refusal.code, message=refusal.reason)
    draft.answer(command.token, reply)


def _at_rest(command: ConsumerHeartbeat, draft: Draft) -> ConsumerHeartbeatReply | None:
    """The answer to a member that says nothing new and for whom there is none. Nearly all heartbeats are such: this is the hot path."""
    if command.member_epoch <= JOINS or not _says_nothing(command):
        return None
    group, session = draft.image.consumers.groups.get(command.group), draft.sessions.consumers.get(command.group)
    if group is None or session is None or group.saved is None:
        return None
    member, current = group.members.get(command.member_id), group.currents.get(command.member_id)
    if member is None or current is None or member.classic is not None or command.instance_id not in (None, member.instance_id):
        return None
    epochs = (current.epoch, group.saved.epoch, group.saved.assignment_epoch)
    is_settled = current.state is MemberState.STABLE and epochs == (command.member_epoch,) * 3
    is_same = (command.client_id, command.client_host) == (member.client_id, member.client_host)
    if not is_settled or not is_same or session.topics_version != draft.sessions.topics.version:
        return None
    config = draft.sessions.configs(group.name)
    keep_alive(group.name, command.member_id, config.consumer_session_timeout_ms, draft)
    interval_ms = config.consumer_heartbeat_interval_ms
    return ConsumerHeartbeatReply(member_id=command.member_id, member_epoch=current.epoch, heartbeat_interval_ms=interval_ms)


def _says_nothing(command: ConsumerHeartbeat) -> bool:
    news = (command.owned, command.topics, command.regex, command.assignor, command.rack_id)
    return news == (None,) * 5 and command.rebalance_timeout_ms < 0


def check_request(command: ConsumerHeartbeat, draft: Draft) -> None:
    """What is wrong with a request whatever the group is like."""
    joins = command.member_epoch == JOINS
    faults = (
        (not command.group.strip(), "a group needs a name"),
        (command.instance_id is not None and not command.instance_id.strip(), "an instance id that is given is not empty"),
        (command.rack_id is not None and not command.rack_id.strip(), "a rack that is given is not empty"),
        (command.member_epoch < LEFT_FOR_NOW, "there is no such member epoch"),
        (not command.member_id and (command.brings_member_id or not joins), "a member says its id"),
        (joins and command.rebalance_timeout_ms < 0, "a member that joins says its rebalance time-out"),
        (joins and (command.owned is None or bool(command.owned)), "a member that joins has no partitions"),
        (joins and command.topics is None and command.regex is None, "a member that joins says what it reads"),
        (command.member_epoch == LEFT_FOR_NOW and command.instance_id is None, "only a static member leaves to come back"),
        (sum(map(len, command.topics or ())) > SUBSCRIPTION_BYTES_MAX, "a subscription is too long"),
    )
    for is_wrong, reason in faults:
        if is_wrong:
            raise Refusal(ErrorCode.INVALID_REQUEST, reason)
    if command.assignor is not None and command.assignor not in draft.settings.consumer_assignors:
        known = ", ".join(draft.settings.consumer_assignors)
        raise Refusal(ErrorCode.UNSUPPORTED_ASSIGNOR, f"there is no assignor {command.assignor!r}, only {known}")


def _heard(command: ConsumerHeartbeat, draft: Draft) -> ConsumerHeartbeatReply:
    joins = command.member_epoch == JOINS
    found = opened(command.group, draft, may_begin=joins)
    group, member_id = found.group, command.member_id or command.fresh_member_id
    if joins:
        check_room(group, member_id, command.instance_id, draft)
    place = _place(group, command, member_id)
    member = _said(place.member, command, member_id)
    check_growth(place.member, member, draft)
    taken = step(group, place, member, command.owned, draft)
    found.commit(draft)
    draft.records += taken.records
    keep_alive(group.name, member_id, draft.sessions.configs(group.name).consumer_session_timeout_ms, draft)
    note_revoking(group.name, place.current, taken.current, member.rebalance_timeout_ms, draft)
    tells = joins or _asks(command, place.current) or taken.current.assigned != place.current.assigned
    return ConsumerHeartbeatReply(
        member_id=member_id,
        member_epoch=taken.current.epoch,
        heartbeat_interval_ms=call_back_ms(group.name, taken.current, taken.is_to_be_assigned, draft),
        assignment=taken.current.assigned if tells else None,
    )


def _asks(command: ConsumerHeartbeat, current: CurrentAssigned) -> bool:
    """Whether it is to be told what it has even if that is nothing new. Clients say everything again after an answer got lost; here it is
    enough that the member is in another epoch or has something else than it was told of."""
    if command.owned is None:
        return False
    says_all = command.rebalance_timeout_ms >= 0 and (command.topics, command.regex) != (None, None)
    return says_all or command.member_epoch != current.epoch or command.owned != current.assigned


def check_room(group: ConsumerGroup, member_id: str, instance_id: str | None, draft: Draft) -> None:
    """A static member that comes back takes no place but its own."""
    is_there = member_id in group.members or (instance_id is not None and group.holder(instance_id) is not None)
    if not is_there and len(group.members) >= draft.settings.consumer_group_size_max:
        raise Refusal(ErrorCode.GROUP_MAX_SIZE_REACHED, f"group {group.name!r} has {len(group.members)} members, the most that it may have")


def check_growth(before: ConsumerMemberSaved | None, member: ConsumerMemberSaved, draft: Draft) -> None:
    if not draft.has_room(bytes_of(member) - (0 if before is None else bytes_of(before))):
        raise Refusal(ErrorCode.COORDINATOR_NOT_AVAILABLE, "groups may take no more memory on this node")


def check_holder(group: ConsumerGroup, member_id: str, instance_id: str | None) -> None:
    """Raises Refusal where the one that says to be this member is not."""
    if instance_id is not None:
        holder = group.holder(instance_id)
        if holder is None:
            raise Refusal(ErrorCode.UNKNOWN_MEMBER_ID, f"nobody in group {group.name!r} has the instance id {instance_id!r}")
        if holder != member_id:
            raise Refusal(ErrorCode.FENCED_INSTANCE_ID, f"another member has taken over the instance id {instance_id!r}")
    if member_id not in group.members:
        raise Refusal(ErrorCode.UNKNOWN_MEMBER_ID, f"group {group.name!r} has no member {member_id!r}")


def _place(group: ConsumerGroup, command: ConsumerHeartbeat, member_id: str) -> Place:
    current = group.current(member_id)
    if command.member_epoch != JOINS:
        check_holder(group, member_id, command.instance_id)
        _check_epoch(current, command)
        return Place(group.members[member_id], current, group.target(member_id))
    holder = None if command.instance_id is None else group.holder(command.instance_id)
    if holder is not None and holder != member_id:
        return _static_place(group, holder, member_id)
    if current.epoch == LEFT_FOR_NOW:
        current = taken_over(current, member_id)
    return Place(group.members.get(member_id), current, group.target(member_id))


def _static_place(group: ConsumerGroup, holder: str, member_id: str) -> Place:
    before, current = group.members[holder], group.current(holder)
    if before.classic is None and current.epoch != LEFT_FOR_NOW:
        raise Refusal(ErrorCode.UNRELEASED_INSTANCE_ID, f"the instance id {before.instance_id!r} is still taken by member {holder!r}")
    return Place(replace(before, member_id=member_id), taken_over(current, member_id), group.target(holder), replaces=holder)


def _check_epoch(current: CurrentAssigned, command: ConsumerHeartbeat) -> None:
    said = command.member_epoch
    if said == current.epoch:
        return
    has_missed_answer = said == current.previous_epoch and command.owned is not None and is_within(command.owned, current.assigned)
    if said > current.epoch or not has_missed_answer:
        reason = f"the member's epoch is {current.epoch}, not {said}: it must drop its partitions and join again"
        raise Refusal(ErrorCode.FENCED_MEMBER_EPOCH, reason)


def _said(before: ConsumerMemberSaved | None, command: ConsumerHeartbeat, member_id: str) -> ConsumerMemberSaved:
    """The member as it describes itself now."""
    known = before or ConsumerMemberSaved(group=command.group, member_id=member_id)
    regex = known.regex if command.regex is None else command.regex
    if regex and regex != known.regex:
        pattern_of(regex)
    return replace(
        known,
        instance_id=known.instance_id if command.instance_id is None else command.instance_id,
        rack_id=known.rack_id if command.rack_id is None else command.rack_id,
        client_id=command.client_id,
        client_host=command.client_host,
        rebalance_timeout_ms=command.rebalance_timeout_ms if command.rebalance_timeout_ms >= 0 else known.rebalance_timeout_ms,
        topics=known.topics if command.topics is None else tuple(sorted(dict.fromkeys(command.topics))),
        regex=regex,
        assignor=known.assignor if command.assignor is None else command.assignor,
        classic=None,
    )
