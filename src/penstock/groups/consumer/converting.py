"""A running group changes its kind, and its members go on.

*Upgrade*: the first member of the new protocol joins a classic group of consumers. Everybody keeps what it has; members that wait for a
join or a sync are told to come again, and are then served from the group's targets (classic.py).
*Downgrade*: the last member of the new protocol goes and only classic ones are left. They become a classic generation without a leader,
which is rebalanced at once: nobody else would share out what the one that went had. It is in the record, so it holds after a failover too.
`group.consumer.migration.policy` says which of the two may happen. Not done: a downgrade because a static member came back with the classic
protocol; such a group stays as it is and its classic members are served.
"""

from collections.abc import Sequence

from penstock.errors import ErrorCode, Refusal
from penstock.groups.bounds import GroupSettings
from penstock.groups.consumer.group import ConsumerGroup
from penstock.groups.consumer.partitions import Partitions, each, gathered
from penstock.groups.consumer.records import (
    ClassicOffer,
    ConsumerGroupGone,
    ConsumerGroupSaved,
    ConsumerMemberSaved,
    ConsumerRecord,
    CurrentAssigned,
    TargetAssigned,
)
from penstock.groups.consumer.stepping import keep_alive, removal
from penstock.groups.consumer.topics import Topics
from penstock.groups.draft import Draft
from penstock.groups.group import CONSUMERS, Group, Member, most_wanted, subscription
from penstock.groups.phases import refuse_parked
from penstock.groups.records import GroupSaved, MemberSaved, Record
from penstock.vocabulary import TopicId
from penstock.wire.consumer_protocol import read_assignment, read_subscription, version_of, write_assignment

_UPGRADES = ("bidirectional", "upgrade")
_DOWNGRADES = ("bidirectional", "downgrade")


def upgrade(classic: Group, draft: Draft) -> tuple[ConsumerGroup, list[ConsumerRecord]]:
    """The group of the new kind that a classic one becomes, and the records that make it. Raises Refusal where it can't become one."""
    name = classic.name
    if draft.settings.consumer_migration_policy not in _UPGRADES:
        raise _stays(name, "group.consumer.migration.policy forbids it")
    if classic.protocol_type != CONSUMERS:
        raise _stays(name, "its members are no consumers")
    if len(classic.members) > draft.settings.consumer_group_size_max:
        raise _stays(name, "it has too many members")
    protocol = classic.protocol or classic.choose_protocol()
    epoch = classic.generation
    records: list[ConsumerRecord] = [
        ConsumerGroupSaved(group=name, epoch=epoch, assignment_epoch=epoch, topics_hash=0, since_ms=draft.wall_ms)
    ]
    taken: set[tuple[TopicId, int]] = set()
    for member in classic.members.values():
        topics, given = read_subscription(subscription(member.protocols, protocol)), read_assignment(member.assignment)
        if topics is None or given is None:
            raise _stays(name, f"what member {member.member_id!r} says or has cannot be read")
        mine = [place for place in each(by_id(given, draft.sessions.topics.view)) if place not in taken]
        taken.update(mine)
        records += _member_records(name, epoch, member, topics, gathered((topic_id, (number,)) for topic_id, number in mine))
    return ConsumerGroup.of(name, records), records


def refuse_waiting(classic: Group, draft: Draft) -> None:
    """The classic session ends. Whoever waits is told to come again; everybody has a full session to do so."""
    for member in list(classic.members.values()):
        refuse_parked(classic, member.member_id, ErrorCode.REBALANCE_IN_PROGRESS, member.member_id, draft)
        keep_alive(classic.name, member.member_id, member.session_timeout_ms, draft)
    draft.sessions.groups.pop(classic.name, None)
    draft.sessions.held_bytes -= classic.counted_bytes


def goes_back(group: ConsumerGroup, gone: Sequence[str], settings: GroupSettings) -> bool:
    """Whether the group becomes a classic one when these members go."""
    left = len(group.members) - len(gone)
    if not left or group.tallies.classic < left or settings.consumer_migration_policy not in _DOWNGRADES or left > settings.group_size_max:
        return False
    has_new = any(group.members[member_id].classic is None for member_id in gone)
    return has_new and all(member.classic is not None for member in group.members.values() if member.member_id not in gone)


def downgrade(group: ConsumerGroup, gone: Sequence[str], draft: Draft) -> list[Record]:
    """The records of the classic group that is left."""
    left = [group.members[member_id] for member_id in sorted(group.members) if member_id not in gone]
    protocol = most_wanted([member.classic.protocols for member in left if member.classic is not None])
    members = tuple(_classic_member(group, member, draft.sessions.topics.view) for member in left)
    saved = GroupSaved(
        group=group.name, generation=group.epoch, protocol_type=CONSUMERS, protocol=protocol, leader=None, since_ms=draft.wall_ms,
        members=members,
    )  # fmt: skip
    tombstones = [record for member_id in sorted(group.members) for record in removal(group.name, member_id)]
    return [*tombstones, ConsumerGroupGone(group.name), saved]


def by_id(named: dict[str, list[int]], topics: Topics) -> Partitions:
    """Partitions of topics that there are, by their ids."""
    found = ((topics.find(name), numbers) for name, numbers in named.items())
    known = [(shape, numbers) for shape, numbers in found if shape is not None]
    return gathered((shape.topic_id, [number for number in numbers if 0 <= number < shape.partition_count]) for shape, numbers in known)


def as_assignment(partitions: Partitions, topics: Topics, version: int) -> bytes:
    """As a member of the classic protocol reads it. A topic that is gone has no name any more, and nothing to read."""
    named = {name: numbers for topic_id, numbers in partitions.items() if (name := topics.name_of(topic_id)) is not None}
    return write_assignment(named, version)


def _member_records(group: str, epoch: int, member: Member, topics: list[str], partitions: Partitions) -> list[ConsumerRecord]:
    return [
        ConsumerMemberSaved(
            group=group, member_id=member.member_id, instance_id=member.instance_id, client_id=member.client_id,
            client_host=member.client_host, rebalance_timeout_ms=member.rebalance_timeout_ms, topics=tuple(sorted(dict.fromkeys(topics))),
            classic=ClassicOffer(member.session_timeout_ms, member.protocols),
        ),
        TargetAssigned(group, member.member_id, partitions),
        CurrentAssigned(group=group, member_id=member.member_id, epoch=epoch, previous_epoch=epoch, assigned=partitions),
    ]  # fmt: skip


def _classic_member(group: ConsumerGroup, member: ConsumerMemberSaved, topics: Topics) -> MemberSaved:
    offer = member.classic or ClassicOffer(0, ())
    version = version_of(offer.protocols[0][1]) if offer.protocols else 0
    return MemberSaved(
        member_id=member.member_id, instance_id=member.instance_id, client_id=member.client_id, client_host=member.client_host,
        session_timeout_ms=offer.session_timeout_ms, rebalance_timeout_ms=member.rebalance_timeout_ms, protocols=offer.protocols,
        assignment=as_assignment(group.current(member.member_id).assigned, topics, version),
    )  # fmt: skip


def _stays(group: str, reason: str) -> Refusal:
    return Refusal(ErrorCode.GROUP_ID_NOT_FOUND, f"group {group!r} is a classic one and does not become one of the new protocol: {reason}")
