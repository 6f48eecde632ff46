"""Damage that a read has found in a copy: mended from another replica, or the copy is given up.

Who reads meanwhile is asked to come again (KAFKA_STORAGE_ERROR). In-sync replicas are asked first, and then the others: their copies may be
damaged too, but in another place. Each batch that is taken is checked.
It is tried again for `MEND_SECONDS`, because a source may be away for a moment, or the disk full. If none can help in that time, or the
segment cannot be mended batch by batch, the copy is given up (damaged_copies.py) where another in-sync replica is up and can take over:
another node leads, and this one fetches everything anew. Where none can, the copy stays, since it has everything but the damaged place,
and it is tried again when that is read again. Where no other replica is in sync, readers of that place get CORRUPT_MESSAGE. They get
KAFKA_STORAGE_ERROR where the disk cannot read the bytes, since it may be able to later.
"""

import asyncio
import logging
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from penstock.broker.copy_reading import has_good_copy, read_batches
from penstock.errors import DiskFailed, DiskFull, ErrorCode, Refusal
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
        if partition is None:
            return
        in_sync, others = self._sources(partition)
        if in_sync:
            partition.is_beyond_mending = False
        if partition.is_being_mended or self._is_over(partition):
            return
        if self._node.env.now() < self._failed_at.get(partition, Instant(0)) + AGAIN_SECONDS:
            return
        self._node.metrics.damage_found += 1
        if not in_sync:
            partition.is_beyond_mending |= not others
            self._node.report(f"{partition} is damaged at offset {offset}, and no other replica is in sync to mend it from")
        if in_sync or others:
            partition.is_being_mended = True
            self._node.spawn(self._mend(partition, Offset(offset)))

    def _sources(self, partition: Partition) -> tuple[list[NodeId], list[NodeId]]:
        """The other replicas: those in sync, the leader first, and those that are not."""
        state = self._node.image.partition(partition.topic_id, partition.index)
        if state is None:
            return [], []
        nodes = [node for node in dict.fromkeys((state.leader, *state.replicas)) if node != self._me and node in state.replicas]
        return [node for node in nodes if node in state.in_sync], [node for node in nodes if node not in state.in_sync]

    async def _mend(self, partition: Partition, offset: Offset) -> None:
        node = self._node
        try:
            deadline = node.env.now() + MEND_SECONDS
            while (failure := await self._try_to_mend(partition, offset, deadline)) is not None:
                if self._is_over(partition):
                    return
                in_sync, _ = self._sources(partition)
                is_lasting = not in_sync or (isinstance(failure, CannotMend) and await self._can_be_replaced(partition))
                if is_lasting or node.env.now() + AGAIN_SECONDS > deadline:
                    await self._has_failed(partition, offset, failure)
                    return
                await asyncio.sleep(AGAIN_SECONDS * (0.5 + node.env.rng.random() / 2))
            partition.is_beyond_mending = False
        finally:
            partition.is_being_mended = False

    async def _try_to_mend(self, partition: Partition, offset: Offset, deadline: float) -> Exception | None:
        """Begins with another replica each time: the batches of one may fit where those of another do not. Returns why it failed."""
        failure: Exception | None = None
        in_sync, others = self._sources(partition)
        sources = in_sync + others
        for first in range(len(sources)):
            fetch = partial(self._fetch, partition, sources[first:] + sources[:first])
            try:
                async with asyncio.timeout(max(1.0, deadline - self._node.env.now())):
                    mended = await partition.log.mend(offset, fetch)
                if mended is not None:  # Otherwise retention, a cut or compaction was faster.
                    self._tell(partition, offset, mended)
                return None
            except CannotMend as cannot:
                failure = cannot
            except (Refusal, DiskFailed) as passing:
                return passing
            except TimeoutError:
                return TimeoutError(f"it took longer than {MEND_SECONDS:g} s")
        return failure or CannotMend("there is no other replica")

    async def _has_failed(self, partition: Partition, offset: Offset, failure: Exception) -> None:
        may_give_up = not isinstance(failure, DiskFull) and await self._can_be_replaced(partition)
        if self._is_over(partition):
            return
        in_sync, _ = self._sources(partition)
        partition.is_beyond_mending = not in_sync
        self._failed_at[partition] = self._node.env.now()
        reason = getattr(failure, "reason", None) or str(failure)
        log.error("%s is damaged at offset %d and cannot be mended here: %s", partition, offset, reason)
        if may_give_up:
            self._give_up(partition)

    def _is_over(self, partition: Partition) -> bool:
        return partition.is_deleted or partition.is_damaged or partition.log.failure is not None

    async def _can_be_replaced(self, partition: Partition) -> bool:
        """Whether another in-sync replica is up, and knows of no damage."""
        in_sync, _ = self._sources(partition)
        for source in in_sync:
            if await has_good_copy(self._node, source, partition):
                return True
        return False

    def _tell(self, partition: Partition, offset: Offset, mended: Mended) -> None:
        self._node.metrics.damage_mended += 1
        size = sum(size for _, size in mended.stretches)
        log.error("%s was damaged at offset %d: %d bytes of %d batches were replaced", partition, offset, size, len(mended.stretches))

    async def _fetch(self, partition: Partition, sources: list[NodeId], offset: int) -> Buffer:
        """From the first of them that has it. Raises Refusal."""
        problems = []
        for source in sources:
            try:
                if batches := await read_batches(self._node, source, partition, Offset(offset)):
                    return batches
                problems.append(f"node {source} has nothing there")
            except Refusal as refusal:
                problems.append(refusal.reason)
        raise Refusal(ErrorCode.KAFKA_STORAGE_ERROR, "; ".join(problems))

    def forget(self, partition: Partition) -> None:
        """The partition is no longer open here."""
        self._failed_at.pop(partition, None)
