"""One step of one member, whichever protocol it speaks: what it says is recorded, the group's epoch and targets follow, and the member
moves on towards what it shall have.

A heartbeat of a member for which nothing has changed does no work that grows with the group: it looks at the member alone.
"""

from dataclasses import dataclass, field, replace
from math import ceil
from typing import NamedTuple

from penstock.groups.consumer.assigning import Change, assigned, changed_targets, reads_of, saved_after, within_reads
from penstock.groups.consumer.group import ConsumerGroup
from penstock.groups.consumer.partitions import NOTHING, Partitions
from penstock.groups.consumer.reconciling import IsFree, reconciled
from penstock.groups.consumer.records import (
    ConsumerGroupSaved,
    ConsumerMemberGone,
    ConsumerMemberSaved,
    ConsumerRecord,
    CurrentAssigned,
    CurrentGone,
    MemberState,
    TargetAssigned,
    TargetGone,
)
from penstock.groups.consumer.session import ConsumerSession
from penstock.groups.draft import Draft
from penstock.vocabulary import Instant, TopicId

_SOON_MS_MIN = 50  # A member that waits for an assignment is not called back sooner.
_WAITING_MS = 500  # One that waits for partitions which others are to give up comes this often.


class Place(NamedTuple):
    """Where a member stands before its step."""

    member: ConsumerMemberSaved | None  # As it is recorded, under its own id if it takes over another's place; None: it is new.
    current: CurrentAssigned
    target: Partitions = NOTHING
    replaces: str | None = None  # The member id whose static place it takes.


@dataclass(slots=True)
class Step:
    current: CurrentAssigned
    is_to_be_assigned: bool  # The group, after it.
    records: list[ConsumerRecord] = field(default_factory=list)


def step(group: ConsumerGroup, place: Place, member: ConsumerMemberSaved, owned: Partitions | None, draft: Draft) -> Step:
    session = session_of(group.name, draft)
    records: list[ConsumerRecord] = []
    if place.replaces is not None:
        records += removal(group.name, place.replaces)
        records += (TargetAssigned(group.name, member.member_id, place.target), place.current)
    if member != place.member or place.replaces is not None:
        records.append(member)
    has_changed = place.member is None or (member.topics, member.regex) != (place.member.topics, place.member.regex)
    change = Change(() if place.replaces is None else (place.replaces,), member)
    saved = _next_epoch(group, change, session, draft, must_grow=has_changed)
    target = place.target
    if saved.epoch > saved.assignment_epoch and (not saved.assignment_epoch or session.assigned_from <= draft.now):
        saved, targets = assigned(group, change, saved, draft)
        target = targets[member.member_id]
        records += changed_targets(group, targets)
        note_assigned(session, draft)
    if saved != group.saved:
        records.append(saved)
    reads_less = has_changed and place.member is not None
    if not place.current.is_reconciled_to(saved.assignment_epoch) or reads_less:
        if saved.epoch > saved.assignment_epoch:
            target = within_reads(target, reads_of(member, draft.sessions.topics))
        is_free = _free_for(group, member.member_id, place.replaces)
        current = reconciled(place.current, saved.assignment_epoch, target, owned, is_free, reads_less=reads_less)
    else:
        current = place.current
    if current != place.current or place.member is None:
        records.append(current)
    if saved.epoch > saved.assignment_epoch:
        draft.sessions.alarms.set_by(group.name, max(session.assigned_from, draft.now))
    return Step(current, saved.epoch > saved.assignment_epoch, records)


def session_of(name: str, draft: Draft) -> ConsumerSession:
    session = draft.sessions.consumers.get(name)
    if session is None:
        session = draft.sessions.consumers[name] = ConsumerSession()
    return session


def note_assigned(session: ConsumerSession, draft: Draft) -> None:
    session.assigned_from = draft.after(draft.settings.consumer_assignment_interval_ms)


def keep_alive(name: str, member_id: str, session_timeout_ms: int, draft: Draft) -> None:
    deadline = session_of(name, draft).heard_by[member_id] = draft.after(session_timeout_ms)
    draft.sessions.alarms.set_by(name, deadline)


def note_revoking(name: str, before: CurrentAssigned, current: CurrentAssigned, rebalance_timeout_ms: int, draft: Draft) -> None:
    """Whoever is told to give something up has its rebalance time-out for it, from each time that it is told of something else."""
    session = session_of(name, draft)
    if current.state is not MemberState.UNREVOKED:
        session.revoked_by.pop(current.member_id, None)
    elif current != before:
        deadline = session.revoked_by[current.member_id] = draft.after(rebalance_timeout_ms)
        draft.sessions.alarms.set_by(name, deadline)


def call_back_ms(name: str, current: CurrentAssigned, is_to_be_assigned: bool, draft: Draft) -> int:
    """When the member is to come again: soon, if the group is about to be assigned, or if it waits for what others are letting go of.
    Nobody reads that meanwhile, so a whole interval would be a pause of that length."""
    interval_ms = draft.sessions.configs(name).consumer_heartbeat_interval_ms
    if current.state is MemberState.UNRELEASED:
        interval_ms = min(interval_ms, _WAITING_MS)
    if not is_to_be_assigned:
        return interval_ms
    waits: Instant = session_of(name, draft).assigned_from
    return min(interval_ms, max(_SOON_MS_MIN, ceil((waits - draft.now) * 1000)))


def removal(group: str, member_id: str) -> list[ConsumerRecord]:
    return [CurrentGone(group, member_id), TargetGone(group, member_id), ConsumerMemberGone(group, member_id)]


def _next_epoch(
    group: ConsumerGroup, change: Change, session: ConsumerSession, draft: Draft, *, must_grow: bool
) -> ConsumerGroupSaved:
    """Compared with the topics only where something may have changed. What differs is noted as seen when it is recorded, not before."""
    saved, version = group.saved, draft.sessions.topics.version
    if saved is not None and not must_grow and session.topics_version == version:
        return saved
    after = saved_after(group, change, draft, must_grow=must_grow)
    if after is saved:
        session.topics_version = version
    return after


def taken_over(current: CurrentAssigned, member_id: str) -> CurrentAssigned:
    """What a static member that comes back under another id has: the same, and it hears of it as one who joins."""
    return replace(current, member_id=member_id, epoch=0, previous_epoch=0)


def _free_for(group: ConsumerGroup, member_id: str, replaces: str | None) -> IsFree:
    """Whoever takes another's place has what that one had."""

    def is_free(topic_id: TopicId, number: int) -> bool:
        return group.is_free_for(member_id, topic_id, number) or (replaces is not None and group.is_free_for(replaces, topic_id, number))

    return is_free
