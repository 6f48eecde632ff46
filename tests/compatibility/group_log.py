"""What a node has recorded of a group, read from `__consumer_offsets` as any consumer could, and what must hold of it.

Only for a Penstock: the records are in its own format.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field

from system.librdkafka import read_partition

from penstock.broker.coordinators import partition_of
from penstock.groups.records import GroupSaved, OffsetCommitted, decode
from penstock.wire.consumer_protocol import read_assignment

OFFSETS_TOPIC = "__consumer_offsets"
PARTITIONS = 4  # That nodes of these tests give it.


@dataclass
class GroupHistory:
    generations: list[GroupSaved] = field(default_factory=list)
    commits: list[OffsetCommitted] = field(default_factory=list)

    def owners(self) -> Iterator[tuple[int, list[tuple[str, int]]]]:
        """Of each recorded generation all the partitions that were given away, as often as they were."""
        for saved in self.generations:
            given = [(read_assignment(member.assignment) or {}).items() for member in saved.members]
            yield saved.generation, [(topic, partition) for topics in given for topic, partitions in topics for partition in partitions]

    def check(self) -> None:
        """No partition has two owners in a generation, generations never go back, and neither do committed offsets."""
        for generation, given in self.owners():
            assert len(given) == len(set(given)), f"generation {generation} gave a partition away twice: {sorted(given)}"
        numbers = [saved.generation for saved in self.generations]
        assert numbers == sorted(numbers), numbers
        leaders: dict[int, int] = {}
        for saved in self.generations:
            if saved.members and not any(member.instance_id for member in saved.members):
                leaders[saved.generation] = leaders.get(saved.generation, 0) + 1
        assert all(count == 1 for count in leaders.values()), f"a generation was assigned more than once: {leaders}"
        reached: dict[tuple[str, int], int] = {}
        for commit in self.commits:
            where = (commit.topic, commit.partition)
            assert commit.offset >= reached.get(where, 0), f"{where} went back from {reached[where]} to {commit.offset}"
            reached[where] = commit.offset


def read_history(bootstrap: str, group: str) -> GroupHistory:
    history = GroupHistory()
    for message in read_partition(bootstrap, OFFSETS_TOPIC, partition_of(group, PARTITIONS)):
        record = decode(message.key() or b"", message.value())
        if isinstance(record, GroupSaved) and record.group == group:
            history.generations.append(record)
        elif isinstance(record, OffsetCommitted) and record.group == group:
            history.commits.append(record)
    return history
