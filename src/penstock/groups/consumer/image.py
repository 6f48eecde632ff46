"""What is recorded of all groups of the new protocol that one coordinator has, and what that takes in memory."""

from collections.abc import Iterator
from typing import assert_never

from penstock.groups.consumer.group import ConsumerGroup
from penstock.groups.consumer.partitions import Partitions, count
from penstock.groups.consumer.records import (
    ConsumerGroupGone,
    ConsumerGroupSaved,
    ConsumerMemberGone,
    ConsumerMemberSaved,
    ConsumerRecord,
    CurrentAssigned,
    CurrentGone,
    TargetAssigned,
    TargetGone,
)
from penstock.groups.recorded import RecordedGroups

MEMBER_BYTES = 1_500  # Of memory, about: a member's objects, with its current assignment and its target,
TEXT_BYTES = 80  # a text beside its characters,
TOPIC_BYTES = 150  # a topic in an assignment,
PARTITION_BYTES = 150  # and each partition of it, which also stands among those that have an owner.


class ConsumerImage(RecordedGroups[ConsumerGroup, ConsumerRecord]):
    def _new_group(self, name: str) -> ConsumerGroup:
        return ConsumerGroup(name)

    def _bytes_of(self, record: ConsumerRecord) -> int:
        return bytes_of(record)

    def _replaced_bytes(self, group: ConsumerGroup, record: ConsumerRecord) -> int:
        return _replaced_bytes(group, record)

    def _own_records(self, group: ConsumerGroup) -> Iterator[ConsumerRecord]:
        if group.saved is not None:
            yield group.saved

    def _records_of(self, group: ConsumerGroup, member_id: str) -> Iterator[ConsumerRecord]:
        if member_id in group.members:
            yield group.members[member_id]
        if member_id in group.targets:
            yield TargetAssigned(group.name, member_id, group.targets[member_id])
        if member_id in group.currents:
            yield group.currents[member_id]


def bytes_of(record: ConsumerRecord) -> int:
    """What a record takes in memory, about."""
    match record:
        case ConsumerGroupSaved() | ConsumerGroupGone() | ConsumerMemberGone() | TargetGone() | CurrentGone():
            return 0
        case ConsumerMemberSaved():
            return _said_bytes(record)
        case TargetAssigned():
            return partitions_bytes(record.partitions)
        case CurrentAssigned():
            return partitions_bytes(record.assigned) + partitions_bytes(record.revoking)
        case _:
            assert_never(record)


def _replaced_bytes(group: ConsumerGroup, record: ConsumerRecord) -> int:
    match record:
        case ConsumerGroupSaved() | ConsumerGroupGone():
            return 0
        case ConsumerMemberSaved() | ConsumerMemberGone():
            member = group.members.get(record.member_id)
            return 0 if member is None else bytes_of(member)
        case TargetAssigned() | TargetGone():
            return partitions_bytes(group.target(record.member_id))
        case CurrentAssigned() | CurrentGone():
            return bytes_of(group.current(record.member_id))
        case _:
            assert_never(record)


def _said_bytes(record: ConsumerMemberSaved) -> int:
    texts = (record.member_id, record.instance_id, record.rack_id, record.client_id, record.client_host, record.regex, record.assignor)
    said = sum(TEXT_BYTES + 4 * len(each) for each in (*texts, *record.topics) if each)
    if record.classic is not None:
        said += sum(2 * TEXT_BYTES + len(name) + len(content) for name, content in record.classic.protocols)
    return MEMBER_BYTES + said


def partitions_bytes(partitions: Partitions) -> int:
    return TOPIC_BYTES * len(partitions) + PARTITION_BYTES * count(partitions)
