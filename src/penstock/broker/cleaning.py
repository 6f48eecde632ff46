"""Compacts the logs of compacted topics, one at a time and the dirtiest first, away from everything else that a node does by the clock.

A log is compacted when more than `min.cleanable.dirty.ratio` of it is new, or when something in it has waited for `max.compaction.lag.ms`.
Each gets one round and then waits for its next turn, so that one log that is always dirty does not keep the others waiting.
A log that cannot be compacted (damaged, no room, too many keys for the map) is told to the operator and tried again after a while: it is
as good as it was, only larger, and finding that out has its price.
Not here: how a round goes (log/compaction.py).
"""

import asyncio
import logging
from typing import TYPE_CHECKING

from penstock.broker.housekeeping import PARTITIONS_AT_A_TIME, Housekeeper
from penstock.errors import DiskFailed
from penstock.log.compacted_log import Account, Dirt
from penstock.log.compaction import MapTooSmall
from penstock.partition.partition import Partition
from penstock.vocabulary import Instant

if TYPE_CHECKING:
    from penstock.broker.node import Node

log = logging.getLogger("penstock")

RETRY_SECONDS = 300.0
REPLACED_STAY_SECONDS = 60.0  # As Kafka's file.delete.delay.ms: whoever was promised bytes of an old file has begun to take them by then.


class Cleaner:
    def __init__(self, node: "Node", housekeeper: Housekeeper) -> None:
        self._node = node
        self._housekeeper = housekeeper
        self._under_way: Account | None = None
        self._not_before: dict[Partition, Instant] = {}  # Of those that could not be compacted.
        self.dirty_ratio_max = 0.0  # When last looked at.

    @property
    def bytes_so_far(self) -> int:
        return self._under_way.bytes_read if self._under_way is not None else 0

    async def look_after_compacted_logs(self) -> None:
        while True:
            await asyncio.sleep(self._node.settings.cleaner_backoff_ms / 1000)
            try:
                await self.one_round()
            except Exception:
                log.exception("a round of compaction failed; the next one tries again")

    async def one_round(self) -> None:
        for partition in await self._find_dirty():
            await self._compact(partition)

    async def _find_dirty(self) -> list[Partition]:
        """The dirtiest first."""
        ratios: list[tuple[float, Partition]] = []
        self.dirty_ratio_max = 0.0
        now = self._node.env.now()
        self._not_before = {partition: due for partition, due in self._not_before.items() if due > now and not partition.is_deleted}
        for at, partition in enumerate(list(self._node.partitions)):
            if at % PARTITIONS_AT_A_TIME == 0:
                await asyncio.sleep(0)
            if partition.log.failure is not None or partition.is_deleted:
                continue
            await partition.log.remove_replaced(now)
            dirt = self._dirt(partition)
            if dirt is not None:
                self.dirty_ratio_max = max(self.dirty_ratio_max, dirt.ratio)
                is_due = dirt.is_overdue or dirt.ratio > partition.log.config.dirty_ratio_min
                if is_due and partition not in self._not_before:
                    ratios.append((dirt.ratio, partition))
        return [partition for _, partition in sorted(ratios, key=lambda pair: -pair[0])]

    def _dirt(self, partition: Partition) -> Dirt | None:
        return partition.log.dirt(self._node.env.wall_ms(), partition.last_stable_offset) if partition.config.is_compacted else None

    async def _compact(self, partition: Partition) -> None:
        """The log may have changed in any way since it was looked at."""
        node, dirt = self._node, self._dirt(partition)
        if dirt is None or partition.is_deleted:
            return
        if partition.is_internal and (node.groups.is_loading() or node.transactions.is_loading()):
            return  # Whoever has read a key's record must come to its tombstone too.
        if not partition.log.covers(dirt):
            await self._housekeeper.checkpoint(partition)
        if partition.log.failure is not None or partition.is_deleted or not partition.log.covers(dirt):
            return
        account = self._under_way = Account()
        try:
            await partition.log.compact(
                dirt,
                last_offsets=partition.producers.last_offsets(),
                aborted=partition.producers.aborted.spans(),
                keys_bytes_max=node.settings.cleaner_keys_bytes,
                spare_bytes=node.settings.disk_free_bytes_min,
                replaced_stay_seconds=REPLACED_STAY_SECONDS,
                account=account,
            )
        except (DiskFailed, MapTooSmall) as failure:
            if not partition.is_deleted:
                self._not_before[partition] = Instant(node.env.now() + RETRY_SECONDS)
                node.report(f"{partition.topic}-{partition.index} is not compacted: {failure}")
                if partition.log.failure is not None:
                    node.settle(partition)
        finally:
            self._under_way = None
            self._count(account)

    def _count(self, account: Account) -> None:
        metrics = self._node.metrics
        metrics.compactions += account.is_complete
        metrics.compaction_bytes_read += account.bytes_read
        metrics.compaction_bytes_written += account.bytes_written
        metrics.compaction_bytes_freed += account.bytes_freed
        metrics.compaction_records_removed += account.records_removed
