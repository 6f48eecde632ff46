"""What groups look like from outside, of whichever kind they are."""

from dataclasses import dataclass
from typing import Any

from penstock.vocabulary import TopicPartition

CONSUMER = "consumer"  # The protocol type whose bytes we can show; also the name of the new protocol.
CLASSIC = "classic"


@dataclass(frozen=True, slots=True)
class ListedGroup:
    group: str
    state: str  # Empty where the node is too old to tell.
    protocol_type: str
    coordinator: int
    protocol: str = CLASSIC  # How its members and the coordinator talk: classic, the new one, or share.


@dataclass(frozen=True, slots=True)
class Member:
    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    topics: list[str] | None  # What it wants; None where its bytes are not a consumer's.
    assignment: dict[str, list[int]] | None
    # Only in the new protocol and of share groups:
    epoch: int | None = None  # The group's epoch that it has caught up with.
    target: dict[str, list[int]] | None = None  # What it is to have; different from the assignment while partitions move.
    topics_regex: str | None = None


@dataclass(frozen=True, slots=True)
class DescribedGroup:
    group: str
    state: str
    protocol_type: str
    assignor: str  # Empty where the group has none yet.
    members: tuple[Member, ...]
    coordinator: int
    protocol: str = CLASSIC
    # Only in the new protocol and of share groups:
    epoch: int | None = None  # Grows with each change of members, subscriptions or topics.
    assignment_epoch: int | None = None  # The epoch that the target assignment was made for.

    def owner_of(self, where: TopicPartition) -> Member | None:
        return next((member for member in self.members if where.partition in (member.assignment or {}).get(where.topic, ())), None)


def assigned(assignment: Any) -> dict[str, list[int]]:
    """As the describing APIs of the newer kinds tell it."""
    return {str(topic.topic_name): sorted(map(int, topic.partitions)) for topic in assignment.topic_partitions}
