"""What readers may see of a group, as plain values: for ListGroups, DescribeGroups, OffsetFetch, lag and the admin doors."""

from collections.abc import Container, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from penstock.groups.image import Committed
from penstock.groups.pending_records import OffsetPending
from penstock.groups.states import GroupState
from penstock.vocabulary import NO_TOPIC_ID, ProducerId, TopicId

NO_OFFSET = -1
CLASSIC = "classic"  # The kinds of groups, as Kafka names them.
CONSUMER = "consumer"
SHARE = "share"


@dataclass(frozen=True, slots=True)
class GroupListed:
    group: str
    state: GroupState
    protocol_type: str  # Empty for a group that only commits offsets.
    kind: str = CLASSIC


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
    kind: str = CLASSIC


class OffsetView(NamedTuple):
    topic: str
    partition: int
    offset: int = NO_OFFSET  # NO_OFFSET: nothing is committed.
    leader_epoch: int = -1
    metadata: str = ""
    committed_ms: int = -1
    is_unstable: bool = False  # An open transaction may still change it, and a stable one was asked for: no offset is told.
    topic_id: TopicId = NO_TOPIC_ID  # Of the topic that had the name when it was committed.

    @classmethod
    def of(cls, topic: str, partition: int, committed: Committed | None, unstable: Container[tuple[str, int]] = ()) -> "OffsetView":
        if (topic, partition) in unstable:
            return cls(topic, partition, is_unstable=True)
        if committed is None:
            return cls(topic, partition)
        return cls(topic, partition, *committed[:4], topic_id=committed[5])


@dataclass(frozen=True, slots=True)
class OpenTransaction:
    """What one producer has pending with a coordinator of groups."""

    producer_id: ProducerId
    producer_epoch: int
    number: int
    since_ms: int  # Of the oldest offset that is still pending.
    groups: tuple[str, ...]
    offsets: int

    @classmethod
    def of(cls, pending: Sequence[OffsetPending]) -> "OpenTransaction":
        first = pending[0]
        return cls(
            first.producer_id, first.producer_epoch, first.number, min(each.committed_ms for each in pending),
            tuple(dict.fromkeys(each.group for each in pending)), len(pending),
        )  # fmt: skip
