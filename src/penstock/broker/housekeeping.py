"""What a node does by the clock, away from the hot path. Rounds of their own, so that a slow disk holds up only the second:

- Clients: produce requests whose time is up are answered, silent and stalled connections are closed, the disk's room is looked at.
- Logs: those that have grown get a checkpoint, old segments are dropped, silent producers are forgotten. Partitions are visited a few at
  a time, so that thousands of them never hold up the loop.
- Followers: leaders look whether one of theirs has fallen behind.
- Reserve: it is made again when the disk has room for it.
- Known ends: how far each copy is whole goes into a file, for the next start (known_ends.py).
"""

import asyncio
import logging
from functools import partial
from typing import TYPE_CHECKING

from penstock.broker.together import together
from penstock.errors import DiskFailed, DiskFull
from penstock.partition.in_sync import LOOKS_PER_LAG
from penstock.partition.leader import TimePassed
from penstock.partition.partition import Partition
from penstock.vocabulary import METADATA_TOPIC_ID, Instant

if TYPE_CHECKING:
    from penstock.broker.node import Node

log = logging.getLogger("penstock")

ROUND_SECONDS = 1.0
PARTITIONS_AT_A_TIME = 100
CHECKPOINTS_AT_A_TIME = 16  # They share flushes; many segments are often closed in the same second.
GATHERING_SECONDS_WHEN_CROWDED = 5.0  # While others wait for room, whoever takes longer to send one request is in their way.
KNOWN_ENDS_SECONDS = 2.0  # What was flushed for less than this before a crash is not known to the next start.
BUFFER_KEPT_SECONDS = 3.0  # A producer that lingers longer than this between requests does not mind one more copy.


class Housekeeper:
    def __init__(self, node: "Node", *, gathering_s_when_crowded: float) -> None:
        self._node = node
        self._gathering_s_when_crowded = gathering_s_when_crowded
        self._retention_due: Instant = Instant(node.env.now() + node.settings.retention_check_ms / 1000)

    def look_for_old_segments_soon(self) -> None:
        """Something may have become too old, or too much, by another way than time."""
        self._retention_due = self._node.env.now()

    async def look_after_clients(self) -> None:
        """Never waits for the disk: time-outs matter most when it hangs."""
        while True:
            await asyncio.sleep(ROUND_SECONDS)
            try:
                self._one_round_of_clients()
            except Exception:
                log.exception("a round of housekeeping failed; the next one tries again")

    async def look_after_logs(self) -> None:
        while True:
            await asyncio.sleep(ROUND_SECONDS)
            try:
                await self._one_round_of_logs()
            except Exception:
                log.exception("a round of housekeeping failed; the next one tries again")

    async def look_after_reserve(self) -> None:
        while True:
            await asyncio.sleep(ROUND_SECONDS)
            try:
                await self._node.disk_room.refill()
            except Exception:
                log.exception("the reserve could not be made again; it is tried again")

    async def look_after_followers(self) -> None:
        while True:
            await asyncio.sleep(self._node.settings.replica_lag_ms / 1000 / LOOKS_PER_LAG)
            for at, partition in enumerate(list(self._node.partitions)):
                if at % PARTITIONS_AT_A_TIME == 0:
                    await asyncio.sleep(0)
                try:
                    self._look_at_followers(partition)
                except Exception:
                    log.exception("looking at the followers of %s-%d failed; it is tried again", partition.topic, partition.index)

    def _look_at_followers(self, partition: Partition) -> None:
        if partition.leader is not None and not partition.is_deleted:
            look = TimePassed(partition.log.end_offset)
            self._node.carry_out(partition, partition.leader.step(look, self._node.env.now()))

    async def look_after_known_ends(self) -> None:
        while True:
            await asyncio.sleep(KNOWN_ENDS_SECONDS)
            try:
                await self.note_known_ends()
            except Exception:
                log.exception("how far the logs are whole could not be noted; it is tried again")

    async def note_known_ends(self) -> None:
        node = self._node
        node.partitions.known_ends.raise_to(METADATA_TOPIC_ID, 0, node.quorum.applied_end)
        for at, partition in enumerate(list(node.partitions)):
            if at % PARTITIONS_AT_A_TIME == 0:
                await asyncio.sleep(0)
            if partition.log.failure is None and not partition.is_deleted and not node.replica_fetching.is_cutting(partition):
                whole_end = min(partition.log.flushed_end, partition.high_watermark)
                node.partitions.known_ends.raise_to(partition.topic_id, partition.index, whole_end)
        try:
            await node.partitions.known_ends.save()
        except DiskFailed as failure:
            if isinstance(failure, DiskFull):
                node.disk_was_full(failure)
            node.report(f"how far the logs are whole is not noted now: {failure}")

    # Clients

    def _one_round_of_clients(self) -> None:
        node = self._node
        now = node.env.now()
        for parked in [parked for parked in node.parked_produces if parked.deadline <= now]:
            parked.time_out()
        self._close_useless_connections(now)
        node.look_at_disk_room()

    def _close_useless_connections(self, now: Instant) -> None:
        settings, is_crowded = self._node.settings, self._node.request_room.is_crowded
        for connection in list(self._node.connections):
            if connection.stalled_seconds(now) * 1000 > settings.connections_max_stalled_ms:
                self._node.metrics.connections_closed_as_stalled += 1
                connection.close()
            elif connection.idle_seconds(now) * 1000 > settings.connections_max_idle_ms:
                connection.close()
            elif connection.silent_seconds(now) > BUFFER_KEPT_SECONDS:
                connection.let_buffer_go()
        if is_crowded:
            self._close_who_gather_long(now)

    def _close_who_gather_long(self, now: Instant) -> None:
        """All but one, who has come furthest: what the others give back may be all that it needs."""
        connections = self._node.connections
        slow = [connection for connection in connections if connection.gathering_seconds(now) > self._gathering_s_when_crowded]
        slow.sort(key=lambda connection: connection.gathered_bytes)
        for connection in slow[: max(1, len(slow) - 1)]:
            self._node.metrics.connections_closed_as_stalled += 1
            connection.close()

    # Logs

    async def _one_round_of_logs(self) -> None:
        node = self._node
        node.damaged_copies.look_again()
        await self._checkpoint_grown_logs()
        now = node.env.now()
        if now >= self._retention_due:
            self._retention_due = Instant(now + node.settings.retention_check_ms / 1000)
            await self._drop_what_is_old()
            node.assignments.bury_the_rest()

    async def _checkpoint_grown_logs(self) -> None:
        grown = []
        for at, partition in enumerate(list(self._node.partitions)):
            if at % PARTITIONS_AT_A_TIME == 0:
                await asyncio.sleep(0)
            if partition.log.wants_checkpoint and partition.log.failure is None:
                grown.append(partition)
        await together((partial(self.checkpoint, partition) for partition in grown), CHECKPOINTS_AT_A_TIME)

    async def checkpoint(self, partition: Partition) -> None:
        """Captures now, flushes, writes: the note never claims more than is durable."""
        if partition.log.failure is not None or partition.is_deleted or partition.log.owner_is_void:
            return
        captured = partition.log.begin_checkpoint(partition.producers.snapshot())
        await self._node.flusher.flush([partition])
        if partition.log.failure is not None or partition.is_deleted:
            return
        try:
            await partition.log.write_checkpoint(captured)
        except DiskFailed as failure:
            if isinstance(failure, DiskFull):
                self._node.disk_was_full(failure)
            self._node.report(f"no checkpoint for {partition.topic}-{partition.index}: {failure}")

    async def _drop_what_is_old(self) -> None:
        node = self._node
        forgotten_before = node.env.wall_ms() - node.settings.producer_id_expiration_ms
        for at, partition in enumerate(list(node.partitions)):
            if at % PARTITIONS_AT_A_TIME == 0:
                await asyncio.sleep(0)
            if partition.log.failure is not None or partition.is_deleted:
                continue
            partition.forget_old(forgotten_before)
            try:
                partition.log.roll_if_old(node.env.wall_ms())  # Appends do it too, but a quiet topic has none.
                plan = partition.log.expired(node.env.wall_ms(), partition.high_watermark)
                if plan is None:
                    continue
                await self.checkpoint(partition)  # What producers the dropped batches told of must outlive them.
                await partition.log.delete_segments(plan)
            except DiskFailed as failure:
                node.report(f"old segments of {partition.topic}-{partition.index} stay: {failure}")
