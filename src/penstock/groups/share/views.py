"""What readers may see of a share group: for ShareGroupDescribe and the doors that list groups."""

from dataclasses import dataclass

from penstock.groups.consumer.partitions import Partitions
from penstock.groups.share.group import ShareGroup
from penstock.groups.share.records import Ledgers, ShareMemberSaved
from penstock.groups.states import GroupState
from penstock.groups.views import SHARE, GroupView, MemberView

ASSIGNOR = "simple"


@dataclass(frozen=True, slots=True)
class ShareMemberView:
    member: ShareMemberSaved
    epoch: int
    assigned: Partitions


@dataclass(frozen=True, slots=True)
class ShareGroupView:
    group: str
    state: GroupState
    epoch: int
    assignment_epoch: int
    members: tuple[ShareMemberView, ...]
    ledgers: Ledgers
    assignor: str = ASSIGNOR  # There is only this one.


def described(group: ShareGroup) -> ShareGroupView:
    members = tuple(
        ShareMemberView(member, group.current(member_id).epoch, group.current(member_id).assigned)
        for member_id, member in sorted(group.members.items())
    )
    return ShareGroupView(group.name, group.state, group.epoch, group.assignment_epoch, members, group.ledgers)


def as_classic(group: ShareGroup) -> GroupView:
    """The same as far as a classic group has it."""
    members = tuple(
        MemberView(member_id, None, member.client_id, member.client_host, b"", b"") for member_id, member in sorted(group.members.items())
    )
    return GroupView(group.name, group.state, group.epoch, SHARE, ASSIGNOR, "", members, SHARE)
