"""Who fetches from which partitions of a share group: several members may share a partition, and nobody goes without one.

Members that read the same topics are balanced among themselves, as Kafka's assignor `simple` does it: with M of them and P partitions each
partition is shared by M/P members, rounded up, and the members' numbers of partitions differ by at most one. So with fewer members than
partitions each partition has one member. Whoever had a partition keeps it as far as that is within its share; where that leaves no even
way to share out the rest, a partition has one member fewer, but never none.
Which partition a member gets is not part of the protocol.
"""

from collections.abc import Mapping, Sequence
from heapq import heapify, heappop, heappush

from penstock.groups.consumer.assignors import Reader
from penstock.groups.consumer.partitions import NOTHING, Partitions, each, gathered
from penstock.vocabulary import TopicId

Place = tuple[TopicId, int]


def assign_simply(readers: Sequence[Reader], counts: Mapping[TopicId, int]) -> dict[str, Partitions]:
    alike: dict[tuple[TopicId, ...], list[Reader]] = {}
    for reader in sorted(readers, key=lambda reader: reader.member_id):
        alike.setdefault(tuple(sorted(reader.topics)), []).append(reader)
    assigned: dict[str, Partitions] = {}
    for topics, members in alike.items():
        places = [(topic_id, number) for topic_id in topics for number in range(counts[topic_id])]
        assigned |= _balanced(members, places)
    return assigned


def _balanced(members: list[Reader], places: list[Place]) -> dict[str, Partitions]:
    if not places:
        return {member.member_id: NOTHING for member in members}
    sharing = -(-len(members) // len(places))
    least, larger = divmod(sharing * len(places), len(members))  # How many each member has, and how many members have one more.
    room = dict.fromkeys(places, sharing)
    held: list[list[Place]] = []
    for member in members:
        kept = [place for place in each(member.target) if room.get(place)][: least + (larger > 0)]
        larger -= len(kept) > least
        for place in kept:
            room[place] -= 1
        held.append(kept)
    _fill(held, room, least, larger)
    return {
        member.member_id: gathered((topic_id, (number,)) for topic_id, number in kept) for member, kept in zip(members, held, strict=True)
    }


def _fill(held: list[list[Place]], room: dict[Place, int], least: int, larger: int) -> None:
    """Gives everybody its share, always of the partitions that lack the most members."""
    lacking = [(-left, place) for place, left in room.items() if left]
    heapify(lacking)
    for kept in held:
        wanted = least - len(kept)
        if wanted >= 0 and larger:
            larger -= 1
            wanted += 1
        taken: list[tuple[int, Place]] = []
        passed: list[tuple[int, Place]] = []
        while len(taken) < wanted and lacking:
            left, place = heappop(lacking)
            (passed if place in kept else taken).append((left, place))
        kept += [place for _, place in taken]
        for left, place in taken:
            if left < -1:
                heappush(lacking, (left + 1, place))
        for row in passed:
            heappush(lacking, row)
