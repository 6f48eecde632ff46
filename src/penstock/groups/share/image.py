"""What is recorded of all share groups that one coordinator has. Only `replay` changes it, in any order of the keys, and it never refuses.

A group is there as long as any record of it is.
"""

from collections.abc import Iterator

from penstock.groups.consumer.image import GROUP_BYTES, MEMBER_BYTES, PARTITION_BYTES, TEXT_BYTES, TOPIC_BYTES, partitions_bytes
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

_PIECE_RECORDS = 1_000


class ShareImage:
    def __init__(self) -> None:
        self.groups: dict[str, ShareGroup] = {}
        self.held_bytes = 0  # What all of it takes in memory, about.

    def replay(self, record: ShareRecord) -> None:
        group = self.groups.get(record.group)
        if group is None:
            group = self.groups[record.group] = ShareGroup(record.group)
            self.held_bytes += GROUP_BYTES
        self.held_bytes -= _replaced_bytes(group, record)
        group.replay(record)
        self.held_bytes += bytes_of(record)
        if group.is_nothing:
            del self.groups[record.group]
            self.held_bytes -= GROUP_BYTES

    def snapshot_pieces(self) -> Iterator[list[ShareRecord]]:
        """In pieces of about a thousand records, between which anything may be replayed."""
        piece: list[ShareRecord] = []
        for name in list(self.groups):
            group = self.groups.get(name)
            if group is None:
                continue
            piece += (record for record in (group.saved, group.assignment) if record is not None)
            if group.ledgers:
                piece.append(ShareLedgers(name, group.ledgers))
            for member_id in list(dict.fromkeys([*group.members, *group.targets, *group.currents])):
                piece += _records_of(group, member_id)
                if len(piece) >= _PIECE_RECORDS:
                    yield piece
                    piece = []
        yield piece


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


def _records_of(group: ShareGroup, member_id: str) -> Iterator[ShareRecord]:
    if member_id in group.members:
        yield group.members[member_id]
    if member_id in group.targets:
        yield ShareTarget(group.name, member_id, group.targets[member_id])
    if member_id in group.currents:
        yield group.currents[member_id]
