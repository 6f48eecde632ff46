"""ShareGroupHeartbeat: members of a share group join, stay and leave by it (KIP-932).

A member makes its own id and joins with epoch 0; from then on it says the epoch that it heard, and what it reads only when that changes.
Another epoch than the recorded one is fenced, but the one before it: the answer that told of the new one may have got lost. A member that
joins again under its id begins anew. There are no static members, patterns or assignors to choose from, and nothing is ever to be given up:
a change is recorded, the group is assigned anew in the same decision, and the member hears what it has now.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace

from penstock.errors import ErrorCode, Refusal
from penstock.groups.bounds import SUBSCRIPTION_BYTES_MAX
from penstock.groups.commands import ShareHeartbeat
from penstock.groups.consumer.assignors import Reader
from penstock.groups.consumer.partitions import Partitions
from penstock.groups.consumer.topics import TopicShape, hash_of
from penstock.groups.draft import Draft
from penstock.groups.replies import ShareHeartbeatReply
from penstock.groups.share.changing import GROUP_BYTES_MAX, opened
from penstock.groups.share.group import ShareGroup
from penstock.groups.share.image import bytes_of
from penstock.groups.share.leaving import leave, session_of
from penstock.groups.share.records import (
    LedgersOf,
    ShareAssignment,
    ShareCurrent,
    ShareGroupSaved,
    ShareLedgers,
    ShareMemberSaved,
    ShareRecord,
    ShareTarget,
)
from penstock.groups.share.simple import assign_simply
from penstock.vocabulary import TopicId

JOINS, LEAVES = 0, -1
MEMBER_BYTES_MAX = 32_767  # More than that the keys of the records do not hold.


def heartbeat(command: ShareHeartbeat, draft: Draft) -> None:
    quick = _at_rest(command, draft)
    if quick is not None:
        draft.answer(command.token, quick)
        return
    try:
        _check_request(command)
        reply = leave(command, draft) if command.member_epoch == LEAVES else _heard(command, draft)
    except Refusal as refusal:
        reply = ShareHeartbeatReply(error=refusal.code, message=refusal.reason)
    draft.answer(command.token, reply)


def _at_rest(command: ShareHeartbeat, draft: Draft) -> ShareHeartbeatReply | None:
    """The answer to a member that says nothing new and for whom there is none: nearly all heartbeats."""
    group, session = draft.image.shares.groups.get(command.group), draft.sessions.shares.get(command.group)
    if command.member_epoch <= JOINS or command.topics is not None or command.rack_id is not None or group is None or session is None:
        return None
    member, current = group.members.get(command.member_id), group.currents.get(command.member_id)
    if member is None or current is None or (current.epoch, group.epoch, group.assignment_epoch) != (command.member_epoch,) * 3:
        return None
    is_same = (command.client_id, command.client_host) == (member.client_id, member.client_host)
    if not is_same or session.topics_version != draft.sessions.topics.version:
        return None
    interval_ms = _keep_alive(group.name, command.member_id, draft)
    return ShareHeartbeatReply(member_id=command.member_id, member_epoch=current.epoch, heartbeat_interval_ms=interval_ms)


def _check_request(command: ShareHeartbeat) -> None:
    faults = (
        (not command.member_id.strip(), "a member says its id"),
        (not command.group.strip(), "a group needs a name"),
        (len(command.group.encode()) > GROUP_BYTES_MAX, f"the name of a share group has at most {GROUP_BYTES_MAX} bytes"),
        (len(command.member_id.encode()) > MEMBER_BYTES_MAX, "a member's id is too long"),
        (command.rack_id is not None and not command.rack_id.strip(), "a rack that is given is not empty"),
        (command.member_epoch < LEAVES, "there is no such member epoch"),
        (command.member_epoch == JOINS and not command.topics, "a member that joins says what it reads"),
        (sum(map(len, command.topics or ())) > SUBSCRIPTION_BYTES_MAX, "a subscription is too long"),
    )
    for is_wrong, reason in faults:
        if is_wrong:
            raise Refusal(ErrorCode.INVALID_REQUEST, reason)


def _heard(command: ShareHeartbeat, draft: Draft) -> ShareHeartbeatReply:
    joins = command.member_epoch == JOINS
    group = opened(command.group, draft, may_begin=joins)
    before, current = group.members.get(command.member_id), group.current(command.member_id)
    if joins:
        _check_room(group, command.member_id, draft)
    else:
        _check_epoch(group, command, current)
    member = _said(before, command)
    if not draft.has_room(bytes_of(member) - (0 if before is None else bytes_of(before))):
        raise Refusal(ErrorCode.COORDINATOR_NOT_AVAILABLE, "groups may take no more memory on this node")
    records, after = _step(group, before, member, draft)
    draft.records += records
    interval_ms = _keep_alive(group.name, command.member_id, draft)
    tells = joins or command.topics is not None or after.assigned != current.assigned or command.member_epoch != current.epoch
    return ShareHeartbeatReply(
        member_id=command.member_id,
        member_epoch=after.epoch,
        heartbeat_interval_ms=interval_ms,
        assignment=after.assigned if tells else None,
    )


def _check_room(group: ShareGroup, member_id: str, draft: Draft) -> None:
    if member_id not in group.members and len(group.members) >= draft.settings.share_group_size_max:
        raise Refusal(ErrorCode.GROUP_MAX_SIZE_REACHED, f"group {group.name!r} has {len(group.members)} members, the most that it may have")


def _check_epoch(group: ShareGroup, command: ShareHeartbeat, current: ShareCurrent) -> None:
    if command.member_id not in group.members:
        raise Refusal(ErrorCode.UNKNOWN_MEMBER_ID, f"group {group.name!r} has no member {command.member_id!r}")
    if command.member_epoch not in (current.epoch, current.previous_epoch):
        reason = f"the member's epoch is {current.epoch}, not {command.member_epoch}: it must join again"
        raise Refusal(ErrorCode.FENCED_MEMBER_EPOCH, reason)


def _said(before: ShareMemberSaved | None, command: ShareHeartbeat) -> ShareMemberSaved:
    """The member as it describes itself now."""
    known = before or ShareMemberSaved(group=command.group, member_id=command.member_id)
    return replace(
        known,
        rack_id=known.rack_id if command.rack_id is None else command.rack_id,
        client_id=command.client_id,
        client_host=command.client_host,
        topics=known.topics if command.topics is None else tuple(sorted(dict.fromkeys(command.topics))),
    )


def _step(
    group: ShareGroup, before: ShareMemberSaved | None, member: ShareMemberSaved, draft: Draft
) -> tuple[list[ShareRecord], ShareCurrent]:
    """What is to be recorded, and what the member has then."""
    session, version = session_of(group.name, draft), draft.sessions.topics.version
    records: list[ShareRecord] = [] if member == before else [member]
    has_changed = before is None or member.topics != before.topics
    epoch, target, assignment_epoch = group.epoch, group.target(member.member_id), group.assignment_epoch
    if has_changed or session.topics_version != version or assignment_epoch < epoch:
        shapes = draft.sessions.topics.read_by(group.read_with((), member), ())
        topics_hash = hash_of(shapes.values())
        if has_changed or group.saved is None or group.saved.topics_hash != topics_hash:
            epoch += 1
            records.append(ShareGroupSaved(group.name, epoch, topics_hash))
        else:
            session.topics_version = version
        if assignment_epoch < epoch:
            targets = _targets(group, {**group.members, member.member_id: member}, shapes)
            records += [ShareTarget(group.name, each, found) for each, found in targets.items() if group.targets.get(each) != found]
            records += _ledgers(group, shapes.values())
            assignment_epoch, target = epoch, targets[member.member_id]
            records.append(ShareAssignment(group.name, epoch, draft.wall_ms))
    current = group.current(member.member_id)
    if current.epoch != assignment_epoch or current.assigned != target or before is None:
        current = replace(current, epoch=assignment_epoch, previous_epoch=current.epoch, assigned=target)
        records.append(current)
    return records, current


def _targets(group: ShareGroup, members: Mapping[str, ShareMemberSaved], shapes: Mapping[str, TopicShape]) -> dict[str, Partitions]:
    counts: dict[TopicId, int] = {shape.topic_id: shape.partition_count for shape in shapes.values()}
    read: dict[tuple[str, ...], frozenset[TopicId]] = {}  # By subscription: most members have the same.
    readers = []
    for member_id, member in members.items():
        if member.topics not in read:
            read[member.topics] = frozenset(shapes[topic].topic_id for topic in member.topics if topic in shapes)
        readers.append(Reader(member_id, None, read[member.topics], group.target(member_id)))
    return assign_simply(readers, counts)


def _ledgers(group: ShareGroup, shapes: Iterable[TopicShape]) -> list[ShareRecord]:
    """Where ledgers of the group may be from now on: whoever deletes the group must know."""
    known = dict(group.ledgers)
    for shape in shapes:
        known[shape.topic_id] = LedgersOf(shape.name, tuple(range(shape.partition_count)))
    return [] if known == group.ledgers else [ShareLedgers(group.name, known)]


def _keep_alive(name: str, member_id: str, draft: Draft) -> int:
    """Returns when it is to come again."""
    config = draft.sessions.configs(name)
    deadline = session_of(name, draft).heard_by[member_id] = draft.after(config.share_session_timeout_ms)
    draft.sessions.alarms.set_by(name, deadline)
    return config.share_heartbeat_interval_ms
