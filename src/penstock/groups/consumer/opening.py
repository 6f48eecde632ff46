"""Which group a member of the new protocol comes to: one of its kind, a new one, or a classic one that becomes one of the new kind.

Group names are one namespace. An empty classic group is replaced where it stands, its committed offsets stay; a running one is upgraded if
the node's migration policy lets it and it is one of consumers (converting.py). Everything else is GROUP_ID_NOT_FOUND, as at Kafka.
Nothing happens by looking: what a new kind of group takes is recorded together with the step of the member that made it so.
"""

from dataclasses import dataclass, field

from penstock.errors import ErrorCode, Refusal
from penstock.groups.bounds import GROUPS_MAX
from penstock.groups.consumer.converting import refuse_waiting, upgrade
from penstock.groups.consumer.group import ConsumerGroup
from penstock.groups.draft import Draft
from penstock.groups.group import Group
from penstock.groups.records import GroupDeleted, Record


@dataclass(slots=True)
class Opened:
    group: ConsumerGroup
    records: list[Record] = field(default_factory=list)  # That make it, of a group of the other kind.
    replaces: Group | None = None  # The session of that one.

    def commit(self, draft: Draft) -> None:
        """The member may come: the group of the other kind ends."""
        if self.replaces is not None:
            refuse_waiting(self.replaces, draft)
        draft.records += self.records


def opened(name: str, draft: Draft, *, may_begin: bool) -> Opened:
    group = draft.image.consumers.groups.get(name)
    if group is not None:
        if may_begin and draft.is_going(name):
            raise Refusal(ErrorCode.COORDINATOR_NOT_AVAILABLE, f"group {name!r} is being deleted")
        return Opened(group)
    if not may_begin:
        raise Refusal(ErrorCode.GROUP_ID_NOT_FOUND, f"there is no consumer group {name!r}")
    return _begun(name, draft)


def _begun(name: str, draft: Draft) -> Opened:
    if draft.is_going(name):
        raise Refusal(ErrorCode.COORDINATOR_NOT_AVAILABLE, f"group {name!r} is being deleted")
    classic, saved = draft.sessions.groups.get(name), draft.image.saved.get(name)
    if classic is None and saved is not None:
        classic = Group.loaded(saved, draft.now)
    if classic is not None and classic.members:
        group, records = upgrade(classic, draft)
        return Opened(group, [*([] if saved is None else [GroupDeleted(name)]), *records], classic)
    if len(draft.image.consumers.groups) >= GROUPS_MAX:
        raise Refusal(ErrorCode.COORDINATOR_NOT_AVAILABLE, "no room for another group")
    return Opened(ConsumerGroup(name), [] if saved is None else [GroupDeleted(name)], classic)
