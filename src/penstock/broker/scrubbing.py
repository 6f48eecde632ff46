"""Reads closed segments again, slowly, because bytes on a disk may change while nobody reads them.

Each copy of this node is read from its beginning to its last closed segment, one after the other, at `log.scrub.bytes.per.second`; all of
them once in `log.scrub.interval.ms`. What a reader would find damaged is reported and mended as if a reader had found it (mending.py).
"""

import asyncio
import logging
from typing import TYPE_CHECKING

from penstock.broker.collector import end_of
from penstock.errors import DiskFailed
from penstock.log.faults import LogDamaged, OffsetOutOfRange
from penstock.partition.partition import Partition

if TYPE_CHECKING:
    from penstock.broker.node import Node

log = logging.getLogger("penstock")

READ_BYTES = 256 * 1024
FIRST_SECONDS = 60.0  # After a start there is other work.
LOOK_SECONDS = 5.0  # How soon a change of the settings holds, at the latest.


class Scrubber:
    def __init__(self, node: "Node") -> None:
        self._node = node

    async def run(self) -> None:
        node = self._node
        next_at = node.env.now() + min(FIRST_SECONDS, node.settings.scrub_interval_ms / 1000)
        while True:
            began = node.env.now()
            if began < next_at or not node.settings.scrub_rate:
                next_at = min(next_at, began + node.settings.scrub_interval_ms / 1000)
                await asyncio.sleep(min(LOOK_SECONDS, max(0.001, next_at - began)))
                continue
            try:
                for partition in list(node.partitions):
                    await self._scrub(partition)
                node.metrics.scrub_rounds += 1
            except Exception:
                log.exception("a round of scrubbing failed; the next one follows in its time")
            next_at = began + node.settings.scrub_interval_ms / 1000

    async def _scrub(self, partition: Partition) -> None:
        offset = int(partition.log.start_offset)
        while offset < (end_offset := min(partition.log.active_base, partition.high_watermark)):
            rate = self._node.settings.scrub_rate
            if not rate or partition.is_deleted or partition.log.failure is not None:
                return
            try:
                batches = await partition.log.read_later(offset, bytes_max=min(READ_BYTES, rate), end_offset=end_offset)
            except LogDamaged as damage:
                self._node.report(f"a damaged place was found in {partition}: {damage}")
                offset = partition.log.segment_end(offset)
                continue
            except OffsetOutOfRange:  # Retention was faster.
                offset = max(offset + 1, partition.log.start_offset)
                continue
            except DiskFailed as failure:
                self._node.report(f"{partition} cannot be read at offset {offset}: {failure}")
                return
            self._node.metrics.scrubbed_bytes += len(batches)
            await asyncio.sleep(max(0.001, len(batches) / rate))
            if not batches:
                return
            offset = end_of(batches)
