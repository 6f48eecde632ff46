"""What readers may see of a group, as plain values: for ListGroups, DescribeGroups, OffsetFetch, lag and the admin doors."""

from dataclasses import dataclass
from typing import NamedTuple

from penstock.groups.states import GroupState

NO_OFFSET = -1


@dataclass(frozen=True, slots=True)
class GroupListed:
    group: str
    state: GroupState
    protocol_type: str  # Empty for a group that only commits offsets.


@dataclass(frozen=True, slots=True)
class MemberView:
    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    metadata: bytes  # Its subscription; empty unless the group is Stable.
    assignment: bytes


@dataclass(frozen=True, slots=True)
class GroupView:
    group: str
    state: GroupState  # Dead: there is no such group.
    generation: int = -1
    protocol_type: str = ""
    protocol: str = ""  # Empty unless the group is Stable.
    leader: str = ""
    members: tuple[MemberView, ...] = ()


class OffsetView(NamedTuple):
    topic: str
    partition: int
    offset: int = NO_OFFSET  # NO_OFFSET: nothing is committed.
    leader_epoch: int = -1
    metadata: str = ""
    committed_ms: int = -1
