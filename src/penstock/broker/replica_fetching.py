"""What this node follows, and from whom: one fetcher for each leader (fetcher.py), over all partitions that it follows there.

Cutting off what the leader never had takes time: the partition takes no other role meanwhile, and is not fetched.
Not here: who leads (assignments.py).
"""

import asyncio
from typing import TYPE_CHECKING

from penstock.broker.fetcher import Fetcher
from penstock.broker.throttle import Throttle
from penstock.errors import DiskFailed
from penstock.log.faults import OffsetOutOfRange
from penstock.partition.follower import Follower, StartOver, Truncate
from penstock.partition.partition import Partition
from penstock.vocabulary import NodeId

if TYPE_CHECKING:
    from penstock.broker.node import Node


REBUILT_AGAIN_SECONDS = 1.0


class ReplicaFetching:
    def __init__(self, node: "Node") -> None:
        self._node = node
        self._fetchers: dict[NodeId, Fetcher] = {}
        self._leaders: dict[Partition, tuple[NodeId, int]] = {}  # With the epoch in which it leads.
        self._cutting: dict[Partition, None] = {}
        self.throttle = Throttle()  # Of all fetchers together.

    def follow(self, partition: Partition, leader: NodeId) -> None:
        """Fetches from this leader, in the partition's epoch, from now on."""
        if self._leaders.get(partition) == (leader, partition.epoch):
            return
        self.leave(partition)
        self._leaders[partition] = (leader, partition.epoch)
        fetcher = self._fetchers.get(leader)
        if fetcher is None:
            fetcher = self._fetchers[leader] = Fetcher(self._node, leader)
        fetcher.add(partition, Follower(partition.epoch, partition.log, partition.high_watermark))

    def leave(self, partition: Partition) -> None:
        leader = self._leaders.pop(partition, None)
        if leader is not None:
            self._fetchers[leader[0]].drop(partition)

    def is_cutting(self, partition: Partition) -> bool:
        return partition in self._cutting

    def settled(self, partition: Partition) -> None:
        """A flush has ended: more is durable here than the leader knows."""
        leader = self._leaders.get(partition)
        if leader is not None:
            self._fetchers[leader[0]].report(partition)

    def cut_later(self, partition: Partition, cut: Truncate | StartOver) -> None:
        """Takes off the log what the leader never had, or all of it."""
        self._cutting[partition] = None
        self._node.spawn(self._cut(partition, cut))

    async def _rebuild(self, partition: Partition) -> None:
        """Until it is done the partition leads nothing: it could take a batch that was cut for one that it has."""
        while partition.log.owner_is_void and partition.log.failure is None and not partition.is_deleted:
            try:
                await partition.remember_producers(self._node.env.wall_ms())
            except (DiskFailed, OffsetOutOfRange) as failure:
                self._node.report(f"the producers of {partition.topic}-{partition.index} are not known yet: {failure}")
                await asyncio.sleep(REBUILT_AGAIN_SECONDS)

    async def _cut(self, partition: Partition, cut: Truncate | StartOver) -> None:
        node, name = self._node, f"{partition.topic}-{partition.index}"
        try:
            if isinstance(cut, Truncate):
                if cut.is_loss:
                    node.report(f"{name} is cut to offset {cut.offset}, below its watermark: records that were acknowledged are gone")
                await partition.log.truncate_to(cut.offset)
            else:
                await partition.log.start_over(cut.offset)
        except (DiskFailed, FileNotFoundError) as failure:
            if not partition.is_deleted:
                node.report(f"{name} cannot be cut to offset {cut.offset}: {failure}")
        partition.log_was_cut()
        try:
            await self._rebuild(partition)
        finally:
            del self._cutting[partition]
        if not partition.is_deleted:
            node.assignments.adopt(partition)  # A change of leader may have come meanwhile.
            leader = self._leaders.get(partition)
            if leader is not None:
                self._fetchers[leader[0]].go_on(partition)
