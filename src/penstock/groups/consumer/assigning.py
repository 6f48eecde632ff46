"""The group's side of a change: its next epoch, and who shall have what.

The group's epoch grows when who belongs to it, what they read, or the topics themselves change. The targets are computed for an epoch, at
most once in `group.consumer.assignment.interval.ms`; only those that differ are recorded. Changes are described before they are recorded,
so that one decision can contain a member's coming and what it gets.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import NamedTuple

from penstock.groups.bounds import GroupSettings
from penstock.groups.consumer.assignors import Assignor, Reader
from penstock.groups.consumer.group import ConsumerGroup, Tallies
from penstock.groups.consumer.partitions import NOTHING, Partitions
from penstock.groups.consumer.range import assign_ranges
from penstock.groups.consumer.records import ConsumerGroupSaved, ConsumerMemberSaved, TargetAssigned
from penstock.groups.consumer.topics import KnownTopics, hash_of
from penstock.groups.consumer.uniform import assign_uniformly
from penstock.groups.draft import Draft
from penstock.vocabulary import TopicId

ASSIGNORS: Mapping[str, Assignor] = {"uniform": assign_uniformly, "range": assign_ranges}


class Change(NamedTuple):
    """Of a group's members. Whoever comes in the place of one that goes takes over its target."""

    gone: tuple[str, ...] = ()
    come: ConsumerMemberSaved | None = None

    def members(self, group: ConsumerGroup) -> dict[str, ConsumerMemberSaved]:
        members = {member_id: member for member_id, member in group.members.items() if member_id not in self.gone}
        if self.come is not None:
            members[self.come.member_id] = self.come
        return members

    def tallies(self, group: ConsumerGroup) -> Tallies:
        tallies = group.tallies.copied()
        come = () if self.come is None else (self.come.member_id,)
        for member_id in dict.fromkeys([*self.gone, *come]):
            if member_id in group.members:
                tallies.count(group.members[member_id], -1)
        if self.come is not None:
            tallies.count(self.come, 1)
        return tallies

    def target(self, group: ConsumerGroup, member_id: str) -> Partitions:
        """What a member was meant to have so far."""
        if self.come is not None and member_id == self.come.member_id and member_id not in group.targets and self.gone:
            return group.target(self.gone[0])
        return group.target(member_id)


def saved_after(group: ConsumerGroup, change: Change, draft: Draft, *, must_grow: bool) -> ConsumerGroupSaved:
    """The group's record with a later epoch; the one that there is where nothing calls for that."""
    tallies, topics = change.tallies(group), draft.sessions.topics
    topics_hash = hash_of(topics.read_by(tallies.topics, tallies.regexes).values())
    saved = group.saved
    if saved is not None and not must_grow and saved.topics_hash == topics_hash:
        return saved
    return ConsumerGroupSaved(
        group=group.name, epoch=group.epoch + 1, assignment_epoch=group.assignment_epoch, topics_hash=topics_hash, since_ms=draft.wall_ms
    )


def assigned(
    group: ConsumerGroup, change: Change, saved: ConsumerGroupSaved, draft: Draft
) -> tuple[ConsumerGroupSaved, dict[str, Partitions]]:
    """The group's record as an assignment of this epoch leaves it, and what everybody shall have."""
    members = change.members(group)
    topics = draft.sessions.topics
    counts: dict[TopicId, int] = {}
    read: dict[tuple[tuple[str, ...], str], frozenset[TopicId]] = {}  # By subscription: most members have the same.
    readers = []
    for member_id, member in members.items():
        said = (member.topics, member.regex)
        if said not in read:
            shapes = topics.read_by(member.topics, (member.regex,) if member.regex else ()).values()
            counts.update({shape.topic_id: shape.partition_count for shape in shapes})
            read[said] = frozenset(shape.topic_id for shape in shapes)
        readers.append(Reader(member_id, member.instance_id, read[said], change.target(group, member_id)))
    name = chosen_assignor(change.tallies(group), draft.settings)
    return replace(saved, assignment_epoch=saved.epoch, since_ms=draft.wall_ms), ASSIGNORS[name](readers, counts)


def changed_targets(group: ConsumerGroup, targets: Mapping[str, Partitions]) -> list[TargetAssigned]:
    return [
        TargetAssigned(group.name, member_id, partitions)
        for member_id, partitions in targets.items()
        if group.targets.get(member_id) != partitions
    ]


def chosen_assignor(tallies: Tallies, settings: GroupSettings) -> str:
    """The one that most members ask for; where they ask for none, or as many for another, the one that the node names first."""
    return max(settings.consumer_assignors, key=lambda name: tallies.assignors.get(name, 0))


def reads_of(member: ConsumerMemberSaved, topics: KnownTopics) -> frozenset[TopicId]:
    found = topics.read_by(member.topics, (member.regex,) if member.regex else ())
    return frozenset(shape.topic_id for shape in found.values())


def within_reads(target: Partitions, reads: frozenset[TopicId]) -> Partitions:
    """Without what the member has stopped reading since the target was computed."""
    return {topic_id: numbers for topic_id, numbers in target.items() if topic_id in reads} if target else NOTHING
