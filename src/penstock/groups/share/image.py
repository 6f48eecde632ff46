"""What is recorded of all share groups that one coordinator has, and what that takes in memory."""

from collections.abc import Iterator

from penstock.groups.consumer.image import MEMBER_BYTES, PARTITION_BYTES, TEXT_BYTES, TOPIC_BYTES, partitions_bytes
from penstock.groups.recorded import RecordedGroups
from penstock.groups.share.group import ShareGroup
from penstock.groups.share.records import (
    Ledgers,
    ShareCurrent,
    ShareGone,
    ShareKind,
    ShareLedgers,
    ShareMemberSaved,
    ShareRecord,
    ShareTarget,
)


class ShareImage(RecordedGroups[ShareGroup, ShareRecord]):
    def _new_group(self, name: str) -> ShareGroup:
        return ShareGroup(name)

    def _bytes_of(self, record: ShareRecord) -> int:
        return bytes_of(record)

    def _replaced_bytes(self, group: ShareGroup, record: ShareRecord) -> int:
        return _replaced_bytes(group, record)

    def _own_records(self, group: ShareGroup) -> Iterator[ShareRecord]:
        yield from (record for record in (group.saved, group.assignment) if record is not None)
        if group.ledgers:
            yield ShareLedgers(group.name, group.ledgers)

    def _records_of(self, group: ShareGroup, member_id: str) -> Iterator[ShareRecord]:
        if member_id in group.members:
            yield group.members[member_id]
        if member_id in group.targets:
            yield ShareTarget(group.name, member_id, group.targets[member_id])
        if member_id in group.currents:
            yield group.currents[member_id]


def bytes_of(record: ShareRecord) -> int:
    """What a record takes in memory, about."""
    match record:
        case ShareMemberSaved():
            texts = (record.member_id, record.rack_id, record.client_id, record.client_host, *record.topics)
            return MEMBER_BYTES + sum(TEXT_BYTES + 4 * len(text) for text in texts if text)
        case ShareTarget():
            return partitions_bytes(record.partitions)
        case ShareCurrent():
            return partitions_bytes(record.assigned)
        case ShareLedgers():
            return _ledgers_bytes(record.ledgers)
        case _:
            return 0


def _replaced_bytes(group: ShareGroup, record: ShareRecord) -> int:
    kind = record.kind if isinstance(record, ShareGone) else _KIND_OF.get(type(record))
    match kind, record:
        case ShareKind.MEMBER, ShareMemberSaved() | ShareGone():
            member = group.members.get(record.member_id)
            return 0 if member is None else bytes_of(member)
        case ShareKind.TARGET, ShareTarget() | ShareGone():
            return partitions_bytes(group.target(record.member_id))
        case ShareKind.CURRENT, ShareCurrent() | ShareGone():
            return partitions_bytes(group.current(record.member_id).assigned)
        case ShareKind.LEDGERS, _:
            return _ledgers_bytes(group.ledgers)
        case _:
            return 0


_KIND_OF: dict[type, ShareKind] = {
    ShareMemberSaved: ShareKind.MEMBER,
    ShareTarget: ShareKind.TARGET,
    ShareCurrent: ShareKind.CURRENT,
    ShareLedgers: ShareKind.LEDGERS,
}


def _ledgers_bytes(ledgers: Ledgers) -> int:
    return sum(TOPIC_BYTES + TEXT_BYTES + PARTITION_BYTES * len(each.partitions) for each in ledgers.values())
