"""What readers may see of a group of the new protocol: for ConsumerGroupDescribe, and for the doors that know only classic groups."""

from dataclasses import dataclass

from penstock.groups.bounds import GroupSettings
from penstock.groups.consumer.assigning import chosen_assignor
from penstock.groups.consumer.converting import as_assignment
from penstock.groups.consumer.group import ConsumerGroup
from penstock.groups.consumer.partitions import Partitions
from penstock.groups.consumer.records import ConsumerMemberSaved
from penstock.groups.consumer.topics import Topics
from penstock.groups.group import CONSUMERS
from penstock.groups.states import GroupState
from penstock.groups.views import CONSUMER, GroupView, MemberView
from penstock.wire.consumer_protocol import write_subscription


@dataclass(frozen=True, slots=True)
class ConsumerMemberView:
    member: ConsumerMemberSaved
    epoch: int
    assigned: Partitions
    target: Partitions


@dataclass(frozen=True, slots=True)
class ConsumerGroupView:
    group: str
    state: GroupState
    epoch: int
    assignment_epoch: int
    assignor: str
    members: tuple[ConsumerMemberView, ...]


def described(group: ConsumerGroup, settings: GroupSettings) -> ConsumerGroupView:
    members = tuple(
        ConsumerMemberView(member, group.current(member_id).epoch, group.current(member_id).assigned, group.target(member_id))
        for member_id, member in sorted(group.members.items())
    )
    assignor = chosen_assignor(group.tallies, settings)
    return ConsumerGroupView(group.name, group.state, group.epoch, group.assignment_epoch, assignor, members)


def as_classic(group: ConsumerGroup, settings: GroupSettings, topics: Topics) -> GroupView:
    """The same as far as a classic group has it: subscriptions and assignments as a classic member would have put them."""
    members = tuple(
        MemberView(
            member_id, member.instance_id, member.client_id, member.client_host, write_subscription(member.topics),
            as_assignment(group.current(member_id).assigned, topics, 0),
        )
        for member_id, member in sorted(group.members.items())
    )  # fmt: skip
    assignor = chosen_assignor(group.tallies, settings)
    return GroupView(group.name, group.state, group.epoch, CONSUMERS, assignor, "", members, CONSUMER)
