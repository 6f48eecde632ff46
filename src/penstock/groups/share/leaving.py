"""How members of a share group go: they say so, or are not heard of. The group is assigned anew when the next member is heard of."""

from collections.abc import Sequence

from penstock.errors import ErrorCode, Refusal
from penstock.groups.bounds import EMPTY_AGAIN_MS
from penstock.groups.commands import ShareHeartbeat
from penstock.groups.consumer.topics import hash_of
from penstock.groups.draft import Draft
from penstock.groups.replies import ShareHeartbeatReply
from penstock.groups.share.group import ShareGroup
from penstock.groups.share.records import ShareGone, ShareGroupSaved, ShareKind
from penstock.groups.share.session import ShareSession


def leave(command: ShareHeartbeat, draft: Draft) -> ShareHeartbeatReply:
    group = draft.image.shares.groups.get(command.group)
    if group is None:
        raise Refusal(ErrorCode.GROUP_ID_NOT_FOUND, f"there is no share group {command.group!r}")
    if command.member_id not in group.members:
        raise Refusal(ErrorCode.UNKNOWN_MEMBER_ID, f"group {group.name!r} has no member {command.member_id!r}")
    _remove(group, (command.member_id,), draft)
    return ShareHeartbeatReply(member_id=command.member_id, member_epoch=command.member_epoch)


def lapse(group: ShareGroup, draft: Draft) -> None:
    """Whoever was not heard of goes."""
    session = session_of(group.name, draft)
    gone = []
    for member_id in session.lapsed(draft.now):
        del session.heard_by[member_id]
        if member_id in group.members:
            gone.append(member_id)
            session.heard_by[member_id] = draft.after(EMPTY_AGAIN_MS)  # If its going can't be recorded, it is tried again.
    if gone:
        _remove(group, gone, draft)
    draft.sessions.alarms.set_by(group.name, session.earliest())


def session_of(name: str, draft: Draft) -> ShareSession:
    session = draft.sessions.shares.get(name)
    if session is None:
        session = draft.sessions.shares[name] = ShareSession()
    return session


def _remove(group: ShareGroup, member_ids: Sequence[str], draft: Draft) -> None:
    for member_id in member_ids:
        draft.records += [ShareGone(kind, group.name, member_id) for kind in (ShareKind.CURRENT, ShareKind.TARGET, ShareKind.MEMBER)]
    topics_hash = hash_of(draft.sessions.topics.read_by(group.read_with(member_ids, None), ()).values())
    draft.records.append(ShareGroupSaved(group.name, group.epoch + 1, topics_hash))
