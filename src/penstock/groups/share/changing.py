"""Which ledgers a share group has: begun and forgotten by admins, gone with the group or with their topic.

What is recorded here is where ledgers may be; they themselves are with the leaders of their partitions. A leader begins one only where it
is recorded, so the record comes before the ledger and goes after it. That makes every change of two halves: here it is recorded that there
will be ledgers, or asked which are to go; then the leaders are asked; and then it is over here as well. Between the halves the group is
*held*: nobody joins it and no other change begins, or a ledger would be left that no record tells of. Somebody who was cut off between the
halves holds it no longer than HELD_MS. Each hold has a number, and only who brings it ends the change: after a failover, for holding is not
recorded, or when time was up, the second half is refused, and nothing is dropped.

| under way \\ comes | ledgers begun | ledgers forgotten, group deleted | a member joins | a leader asks |
|---|---|---|---|---|
| ledgers begin | no | no | no | as recorded |
| ledgers, or all of them, go | no | yes, and only the last can end it: a second try need not wait | no | come again |
"""

from collections.abc import Iterable, Iterator
from itertools import islice

from penstock.errors import ErrorCode, Refusal
from penstock.groups.bounds import DELETED_AT_ONCE, GROUPS_MAX
from penstock.groups.commands import NO_HOLD, BeginLedgers, DeleteGroup, EndLedgers, ForgetLedgers, ForgetLedgersOf, SweepLedger
from penstock.groups.draft import Draft, Sessions
from penstock.groups.image import GroupsImage
from penstock.groups.replies import DeleteGroupReply, LedgersChanged, LedgerWord, TopicForgotten
from penstock.groups.share.group import ShareGroup
from penstock.groups.share.image import bytes_of
from penstock.groups.share.records import Ledgers, LedgersOf, ShareGone, ShareGroupSaved, ShareKind, ShareLedgers, ShareRecord
from penstock.groups.share.session import Change, Held
from penstock.groups.states import GroupState
from penstock.vocabulary import Instant, TopicId

GROUP_BYTES_MAX = 249  # As ledgers have it.
HELD_MS = 20_000  # As long as a leader may be looked for and take to answer (broker/queues/asking.py): what was asked of it may still come.
SWEPT_MS = 5_000  # How long nobody begins anything for a group of which a leader forgets a ledger: it does so at once, or not at all.
NO_TOPICS_HASH = 0  # Of a group that nobody has joined yet.


def begin_ledgers(command: BeginLedgers, draft: Draft) -> LedgersChanged:
    """The group is made where there is none, as at Kafka. Raises Refusal."""
    group = _empty(opened(command.group, draft, may_begin=True))
    ledgers = dict(group.ledgers)
    for topic_id, topic, partitions in command.added:
        before = ledgers.get(topic_id, LedgersOf(topic, ()))
        ledgers[topic_id] = LedgersOf(topic, tuple(sorted({*before.partitions, *partitions})))
    if ledgers != group.ledgers:
        record = ShareLedgers(group.name, ledgers)
        if not draft.has_room(bytes_of(record) - bytes_of(ShareLedgers(group.name, group.ledgers))):
            raise Refusal(ErrorCode.COORDINATOR_NOT_AVAILABLE, "groups may take no more memory on this node")
        draft.records += [record] if group.saved is not None else [ShareGroupSaved(group.name, 1, NO_TOPICS_HASH), record]
    return LedgersChanged(ErrorCode.NONE, ledgers=group.ledgers, hold=_hold(group.name, Change.BEGINS, draft))


def forget_ledgers(command: ForgetLedgers, draft: Draft) -> LedgersChanged:
    """Raises Refusal."""
    group = _empty(opened(command.group, draft, may_begin=False))
    return LedgersChanged(ErrorCode.NONE, ledgers=group.ledgers, hold=_hold(group.name, Change.GOES, draft))


def end_ledgers(command: EndLedgers, draft: Draft) -> LedgersChanged:
    """The second half of either. Raises Refusal."""
    if not _ends(command.group, command.hold, draft, is_over=command.is_over):
        raise Refusal(ErrorCode.COORDINATOR_NOT_AVAILABLE, f"the change of group {command.group!r} took too long: ask again")
    group = draft.image.shares.groups.get(command.group)
    if group is None:
        return LedgersChanged(ErrorCode.NONE, ledgers={})  # Nothing was begun, so none was made.
    ledgers = _without(group.ledgers, command.dropped)
    draft.records += _changed(group, ledgers)
    return LedgersChanged(ErrorCode.NONE, ledgers=ledgers)


def delete(group: ShareGroup, command: DeleteGroup, draft: Draft) -> DeleteGroupReply:
    """First its ledgers, which are not here: whoever deletes the group is told where they are, and comes again when they are gone."""
    if group.members:
        return DeleteGroupReply(ErrorCode.NON_EMPTY_GROUP)
    if command.hold == NO_HOLD and (group.ledgers or held_by(group.name, draft) is Change.BEGINS):
        try:
            hold = _hold(group.name, Change.GOES, draft)
        except Refusal as refusal:
            return DeleteGroupReply(refusal.code)
        return DeleteGroupReply(ErrorCode.NONE, is_over=False, ledgers=group.ledgers, hold=hold)
    if command.hold != NO_HOLD and not _ends(group.name, command.hold, draft):
        return DeleteGroupReply(ErrorCode.COORDINATOR_NOT_AVAILABLE)  # Others may have come meanwhile.
    draft.records += [ShareGone(kind, group.name) for kind in (ShareKind.LEDGERS, ShareKind.ASSIGNMENT, ShareKind.GROUP)]
    return DeleteGroupReply(ErrorCode.NONE)


def forget_ledgers_of(command: ForgetLedgersOf, draft: Draft) -> TopicForgotten:
    """The ledgers themselves went with the topic."""
    concerned = islice(groups_with(command.topic_id, draft.image), DELETED_AT_ONCE)
    for group in concerned:
        draft.records += _changed(group, {each: row for each, row in group.ledgers.items() if each != command.topic_id})
    return TopicForgotten(0)


def sweep_ledger(command: SweepLedger, draft: Draft) -> LedgerWord:
    """UNKNOWN: it may be forgotten now. That something is recorded is the leader's proof that this coordinator was not replaced."""
    group, held = draft.image.shares.groups.get(command.group), held_by(command.group, draft)
    word = word_of(group, held, command.topic_id, command.partition)
    if word is not LedgerWord.UNKNOWN:
        return word
    if held is not None or (group is not None and group.members):
        return LedgerWord.GOING  # Members may be about to read it.
    _hold(command.group, Change.GOES, draft, SWEPT_MS)
    ledgers = {} if group is None else group.ledgers
    draft.records.append(ShareLedgers(command.group, ledgers) if ledgers else ShareGone(ShareKind.LEDGERS, command.group))
    return word


def word_of(group: ShareGroup | None, held: Change | None, topic_id: TopicId, index: int) -> LedgerWord:
    if held is Change.GOES:
        return LedgerWord.GOING
    row = None if group is None else group.ledgers.get(topic_id)
    return LedgerWord.UNKNOWN if row is None or index not in row.partitions else LedgerWord.RECORDED


def groups_with(topic_id: TopicId, image: GroupsImage) -> Iterator[ShareGroup]:
    return (group for group in image.shares.groups.values() if topic_id in group.ledgers)


def opened(name: str, draft: Draft, *, may_begin: bool) -> ShareGroup:
    """Group names are one namespace, and a group of another kind never becomes a share group, nor the other way: GROUP_ID_NOT_FOUND.
    Nobody begins anything in one that is held."""
    group = draft.image.shares.groups.get(name)
    if may_begin and (held_by(name, draft) is not None or draft.is_going(name)):
        raise Refusal(ErrorCode.COORDINATOR_NOT_AVAILABLE, f"group {name!r} is being deleted, or its offsets are being changed")
    if group is not None:
        return group
    if name in draft.sessions.groups or draft.image.holds(name):
        raise Refusal(ErrorCode.GROUP_ID_NOT_FOUND, f"group {name!r} is not a share group: choose another name, or delete that group first")
    if not may_begin:
        raise Refusal(ErrorCode.GROUP_ID_NOT_FOUND, f"there is no share group {name!r}")
    if not name.strip() or len(name.encode()) > GROUP_BYTES_MAX:
        raise Refusal(ErrorCode.INVALID_GROUP_ID, f"a share group has a name, of at most {GROUP_BYTES_MAX} bytes")
    if len(draft.image.shares.groups) >= GROUPS_MAX:
        raise Refusal(ErrorCode.COORDINATOR_NOT_AVAILABLE, "no room for another group")
    return ShareGroup(name)


def held_by(name: str, draft: Draft) -> Change | None:
    return held_at(draft.sessions, name, draft.now)


def held_at(sessions: Sessions, name: str, now: Instant) -> Change | None:
    held = sessions.held.get(name)
    return held.change if held is not None and held.until > now else None


def _hold(name: str, change: Change, draft: Draft, held_ms: int = HELD_MS) -> int:
    """The number with which to come back. Raises Refusal."""
    if held_by(name, draft) not in (None, change):
        raise Refusal(ErrorCode.COORDINATOR_NOT_AVAILABLE, f"the offsets of group {name!r} are being changed by somebody else")
    draft.sessions.held = {each: held for each, held in draft.sessions.held.items() if held.until > draft.now}
    draft.sessions.last_hold += 1
    draft.sessions.held[name] = Held(change, draft.after(held_ms), draft.sessions.last_hold)
    return draft.sessions.last_hold


def _ends(name: str, number: int, draft: Draft, *, is_over: bool = True) -> bool:
    """Whether the group was held for this one all the while. If it is over, it is no longer."""
    held = draft.sessions.held.get(name)
    if held is None or held.number != number or held.until <= draft.now:
        return False
    if is_over:
        del draft.sessions.held[name]
    return True


def _empty(group: ShareGroup) -> ShareGroup:
    if group.state is not GroupState.EMPTY:
        raise Refusal(ErrorCode.NON_EMPTY_GROUP, f"group {group.name!r} has members: stop them first")
    return group


def _without(ledgers: Ledgers, gone: Iterable[tuple[TopicId, int]]) -> Ledgers:
    gone = frozenset(gone)
    left = {
        topic_id: LedgersOf(each.topic, tuple(index for index in each.partitions if (topic_id, index) not in gone))
        for topic_id, each in ledgers.items()
    }
    return {topic_id: each for topic_id, each in left.items() if each.partitions}


def _changed(group: ShareGroup, ledgers: Ledgers) -> list[ShareRecord]:
    if ledgers == group.ledgers:
        return []
    return [ShareLedgers(group.name, ledgers) if ledgers else ShareGone(ShareKind.LEDGERS, group.name)]
