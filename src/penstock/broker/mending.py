"""Damage that a read has found in a copy: mended from another in-sync replica, or the copy is given up.

Whoever reads meanwhile is asked to come again (KAFKA_STORAGE_ERROR). Where no in-sync replica has the batch within `MEND_SECONDS`, or the
segment cannot be mended batch by batch, and other replicas are in sync, the copy is given up (damaged_copies.py): another node leads, and
this one fetches everything anew. Where no other replica is in sync, readers of the damaged place get CORRUPT_MESSAGE, and it is tried again
when somebody reads there again. They get KAFKA_STORAGE_ERROR where the disk cannot read the bytes, since it may be able to later.
"""

import asyncio
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

from penstock.broker.copy_reading import read_batches
from penstock.errors import DiskFailed, Refusal
from penstock.log.mending import CannotMend, Mended
from penstock.partition.partition import Partition
from penstock.vocabulary import Buffer, Instant, NodeId, Offset, TopicId

if TYPE_CHECKING:
    from penstock.broker.node import Node

log = logging.getLogger("penstock")

MEND_SECONDS = 30.0
AGAIN_SECONDS = 5.0  # Not sooner than this after a try that failed.


class Mending:
    def __init__(self, node: "Node", give_up: Callable[[Partition], None]) -> None:
        self._node = node
        self._give_up = give_up
        self._me = NodeId(node.settings.node_id)
        self._failed_at: dict[Partition, Instant] = {}

    def damaged(self, topic_id: TopicId, index: int, offset: int) -> None:
        """A read at this offset has found bytes that are not what was written."""
        partition = self._node.partitions.find_by_id(topic_id, index)
        if partition is None or partition.is_being_mended or partition.log.failure is not None or partition.is_damaged:
            return
        if self._node.env.now() < self._failed_at.get(partition, Instant(0)) + AGAIN_SECONDS:
            return
        self._node.metrics.damage_found += 1
        sources = self._sources(partition)
        if not sources:
            self._node.report(f"{partition} is damaged at offset {offset}, and no other replica is in sync to mend it from")
            return
        partition.is_being_mended = True
        self._node.spawn(self._mend(partition, Offset(offset), sources))

    def _sources(self, partition: Partition) -> list[NodeId]:
        """The leader first, then the others in sync."""
        state = self._node.image.partition(partition.topic_id, partition.index)
        if state is None:
            return []
        return [node for node in dict.fromkeys((state.leader, *state.in_sync)) if node != self._me and node in state.in_sync]

    async def _mend(self, partition: Partition, offset: Offset, sources: list[NodeId]) -> None:
        node = self._node
        try:
            async with asyncio.timeout(MEND_SECONDS):
                mended = await partition.log.mend(offset, lambda at: self._fetch(partition, Offset(at), sources))
            if mended is not None:  # Otherwise retention, a cut or compaction was faster.
                self._tell(partition, offset, mended)
        except (CannotMend, Refusal, DiskFailed, TimeoutError) as failure:
            reason = getattr(failure, "reason", None) or str(failure) or f"it took longer than {MEND_SECONDS:g} s"
            self._failed_at[partition] = node.env.now()
            if partition.is_deleted:
                return
            log.error("%s is damaged at offset %d and cannot be mended here: %s", partition, offset, reason)
            self._give_up(partition)
        finally:
            partition.is_being_mended = False

    def _tell(self, partition: Partition, offset: Offset, mended: Mended) -> None:
        self._node.metrics.damage_mended += 1
        size = sum(size for _, size in mended.stretches)
        log.error("%s was damaged at offset %d: %d bytes of %d batches were replaced", partition, offset, size, len(mended.stretches))

    async def _fetch(self, partition: Partition, offset: Offset, sources: list[NodeId]) -> Buffer:
        """From the first of them that has it. Raises Refusal."""
        problems = []
        for source in sources:
            try:
                if batches := await read_batches(self._node, source, partition, offset):
                    return batches
                problems.append(f"node {source} has nothing there")
            except Refusal as refusal:
                problems.append(refusal.reason)
        raise CannotMend("; ".join(problems))

    def forget(self, partition: Partition) -> None:
        """The partition is no longer open here."""
        self._failed_at.pop(partition, None)
