"""What an assignor is given and gives: who reads what, who was meant to have what, and who shall have what now.

An assignor is a plain function. It gives every partition of every topic that somebody reads to exactly one of those who read it.
Racks are not looked at.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from penstock.groups.consumer.partitions import Partitions
from penstock.vocabulary import TopicId


class Reader(NamedTuple):
    member_id: str
    instance_id: str | None
    topics: frozenset[TopicId]  # That it reads, of those that there are.
    target: Partitions  # What it was meant to have before.


# Readers in any order, and the number of partitions of each topic; what comes back has every reader in it.
Assignor = Callable[[Sequence[Reader], Mapping[TopicId, int]], dict[str, Partitions]]


def in_order(readers: Sequence[Reader]) -> list[Reader]:
    """Static ones by their instance id, then the others by member id: the same on every node, and through every restart of a static one."""
    return sorted(readers, key=lambda reader: (reader.instance_id is None, reader.instance_id or "", reader.member_id))
