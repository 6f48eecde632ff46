"""What this node follows, and from whom: one fetcher for each leader (fetcher.py), over all partitions that it follows there.

Cutting off what the leader never had takes time: the partition takes no other role meanwhile, and is not fetched. A copy is never cut
below what was committed, nor where it cannot be read: such a copy counts as damaged (damaged_copies.py), and is put aside
when the controller no longer counts on it, so nothing that can be read of it is lost.
Not here: who leads (assignments.py).
"""

import asyncio
import logging
from typing import TYPE_CHECKING

from penstock.broker.fetcher import Fetcher
from penstock.broker.throttle import Throttle
from penstock.broker.trimming import trim
from penstock.errors import DiskFailed, Refusal
from penstock.log.faults import OffsetOutOfRange
from penstock.partition.follower import Follower, StartOver, Truncate
from penstock.partition.partition import Partition
from penstock.vocabulary import NodeId, Offset

if TYPE_CHECKING:
    from penstock.broker.node import Node

log = logging.getLogger("penstock")

REBUILT_AGAIN_SECONDS = 1.0
CUT_AGAIN_SECONDS = 1.0


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
        """Until it is done the partition leads nothing: it could take a batch that was cut for one that it has. A copy that is damaged
        beyond mending is replaced instead."""
        log = partition.log
        while log.owner_is_void and log.failure is None and not partition.is_deleted and not partition.is_damaged:
            try:
                await partition.remember_producers(self._node.env.wall_ms())
            except (DiskFailed, OffsetOutOfRange) as failure:
                self._node.report(f"the producers of {partition.topic}-{partition.index} are not known yet: {failure}")
                await asyncio.sleep(REBUILT_AGAIN_SECONDS)

    def _keeps_more(self, partition: Partition, cut: Truncate | StartOver) -> bool:
        """Whether committed records would be cut off. Where the topic acknowledges before the flush, a power cut may have taken them from
        all other replicas, and that is no reason to fetch everything anew."""
        known_end = self._node.partitions.known_ends.of(partition.topic_id, partition.index)
        committed_end = min(max(known_end, partition.high_watermark), partition.log.end_offset)
        if cut.offset >= committed_end or partition.log.start_offset >= committed_end:
            return False
        is_kept = partition.config.acknowledges_after_flush
        log.error(
            "%s is %s offset %d, where its leader has other records or none: everything below %d was committed, so acknowledged "
            "records are lost", partition, "put aside rather than cut to" if is_kept else "cut to", cut.offset, committed_end,
        )  # fmt: skip
        return is_kept

    async def _lower_known_end(self, partition: Partition, cut: Truncate | StartOver) -> None:
        """Before the log is cut below it, or a crash in the cut would look like a loss. Where offsets are missing between batches, or all
        goes, it is not known where a crash would leave the end."""
        known_end = self._node.partitions.known_ends.of(partition.topic_id, partition.index)
        if isinstance(cut, StartOver) or cut.offset < max(known_end, partition.log.gaps_below):
            await self._node.partitions.known_ends.lower(partition.topic_id, partition.index, Offset(0))

    async def _cut(self, partition: Partition, cut: Truncate | StartOver) -> None:
        node, name = self._node, f"{partition.topic}-{partition.index}"
        if self._keeps_more(partition, cut):
            del self._cutting[partition]
            node.damaged_copies.found(partition)
            return
        try:
            await self._lower_known_end(partition, cut)
            if isinstance(cut, Truncate):
                await partition.log.truncate_to(cut.offset)
            else:
                await partition.log.start_over(cut.offset)
        except (DiskFailed, FileNotFoundError) as failure:
            if not partition.is_deleted:
                node.report(f"{name} cannot be cut to offset {cut.offset}: {failure}")
                await asyncio.sleep(CUT_AGAIN_SECONDS)  # The leader asks again; damage is mended until then, or the copy given up.
        partition.log_was_cut()
        try:
            await self._rebuild(partition)
            if not partition.is_damaged:
                await trim(node, partition, partition.log.start_offset)  # The checkpoint that knew it went with the cut.
        except Refusal as refusal:
            node.report(f"where {name} starts is not on the disk yet: {refusal.reason}")
        finally:
            del self._cutting[partition]
        if not partition.is_deleted:
            node.assignments.adopt(partition)  # A change of leader may have come meanwhile.
            leader = self._leaders.get(partition)
            if leader is not None:
                self._fetchers[leader[0]].go_on(partition)
