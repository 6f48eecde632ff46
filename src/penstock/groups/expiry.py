"""Which committed offsets are forgotten for their age, and which groups with them.

As Kafka since KIP-211: a group keeps all its offsets while it has members that read the topic, and for the retention after it became
empty. In a Stable consumer group the offsets of topics that nobody reads any more go by the time of their last commit, and so do those
of consumers without a group. An offset that was committed with an end of its own goes then. An empty group goes with its last offset.
What an open transaction may still change stays, and so does its group.
Unlike Kafka, what an admin commits for an empty group counts from that commit: a reset would otherwise be lost within the hour.

A sweep looks at everything once, in slices, for there may be much. One topic of one group is looked at in one go, as it is at that moment.
What a group's members read is taken apart at most once in a slice, and every name in it counts.
"""

from collections.abc import Callable, Iterator

from penstock.groups.bounds import OFFSETS_PER_SLICE
from penstock.groups.consumer.group import ConsumerGroup
from penstock.groups.consumer.records import ConsumerGroupGone
from penstock.groups.group import CONSUMERS, Group
from penstock.groups.image import Committed, GroupsImage
from penstock.groups.records import BY_RETENTION, GroupDeleted, OffsetDeleted, Record
from penstock.groups.states import GroupState


class Sweep:
    def __init__(self, image: GroupsImage, open_group: Callable[[str], Group | ConsumerGroup | None], retention_ms: int) -> None:
        self._image = image
        self._open_group = open_group
        self._retention_ms = retention_ms
        self._work = self._all_work()
        self._looked_at = 0
        # The group that was looked at last: its topics come in a row.
        self._opened: tuple[str | None, Group | ConsumerGroup | None] = (None, None)
        self.is_over = False

    def slice(self, wall_ms: int) -> list[Record]:
        """What the next piece of the sweep finds too old. It must be replayed before the next slice is asked for."""
        found: list[Record] = []
        self._looked_at, self._opened = 0, (None, None)
        for unit in self._work:
            if unit is None:
                return found
            group, topic = unit
            if topic is None:
                found += self._group_if_over(group)
                self._looked_at += 1
            else:
                partitions = self._image.offsets.get(group, {}).get(topic, {})
                found += self._too_old(group, topic, partitions, wall_ms)
                self._looked_at += len(partitions) + 1
            if self._looked_at >= OFFSETS_PER_SLICE:
                return found
        self.is_over = True
        return found

    def _all_work(self) -> Iterator[tuple[str, str | None] | None]:
        """First every topic of every group; then, when those are replayed (None), every group."""
        for group in list(self._image.offsets):
            for topic in list(self._image.offsets.get(group, ())):
                yield group, topic
        yield None
        for group in [*self._image.saved, *self._image.consumers.groups]:
            yield group, None

    def _too_old(self, name: str, topic: str, partitions: dict[int, Committed], wall_ms: int) -> list[Record]:
        group = self._opened_once(name)
        if group is None or self._keeps(group, topic):
            return []
        saved = group.saved if isinstance(group, ConsumerGroup) else self._image.saved.get(name)
        empty_since_ms = saved.since_ms if saved is not None and group.state is GroupState.EMPTY else 0
        return [
            OffsetDeleted(name, topic, partition)
            for partition, committed in partitions.items()
            if self._ends_at(committed, empty_since_ms) <= wall_ms and not self._image.pending.at(name, topic, partition)
        ]

    def _ends_at(self, committed: Committed, empty_since_ms: int) -> int:
        *_, committed_ms, expires_ms, _ = committed
        if expires_ms != BY_RETENTION:
            return expires_ms
        return max(committed_ms, empty_since_ms) + self._retention_ms

    def _group_if_over(self, name: str) -> list[Record]:
        group = self._open_group(name)
        if group is None or group.state is not GroupState.EMPTY or group.pending:
            return []
        has_offsets = name in self._image.offsets or name in self._image.pending.groups
        if has_offsets:
            return []
        if isinstance(group, ConsumerGroup):
            return [ConsumerGroupGone(name)]
        return [GroupDeleted(name)] if name in self._image.saved else []

    def _opened_once(self, name: str) -> Group | ConsumerGroup | None:
        if self._opened[0] != name:
            group = self._open_group(name)
            self._opened = (name, group)
            self._looked_at += 0 if group is None else len(group.members)
        return self._opened[1]

    def _keeps(self, group: Group | ConsumerGroup, topic: str) -> bool:
        if group.state is GroupState.EMPTY:
            return False
        if group.state is not GroupState.STABLE or group.protocol_type != CONSUMERS:
            return True
        if isinstance(group, Group) and not group.has_read_wanted:
            self._looked_at += group.read_wanted().names_read
        return group.subscribed_to(topic)
