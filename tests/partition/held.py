"""A partition on a disk of the test's choice, led by this node alone or following: shared by the tests of its transactions."""

from collections.abc import Sequence
from functools import partial
from typing import Any

from log.bench import FIRST_MS, IDENTITY, StillEnv

from penstock.env import Disk
from penstock.log.compacted_log import CompactedLog
from penstock.log.config import LogConfig
from penstock.log.open_files import OpenFiles
from penstock.partition.leader import Leader, Reached
from penstock.partition.partition import Appended, Partition, ProduceToken
from penstock.partition.producers import ProducerStates
from penstock.settings import TopicConfig
from penstock.simulator.disk import SimDisk
from penstock.vocabulary import LeaderEpoch, NodeId, Offset
from penstock.wire.batches import Record, encode_batch, read_header

ME, OTHER = NodeId(1), NodeId(2)
CONFIG = TopicConfig()
READ_BYTES = 1 << 20


class Held:
    partition: Partition

    def __init__(self, disk: Disk | None = None, config: LogConfig | None = None, producers_max: int = 100) -> None:
        self.disk = disk if disk is not None else SimDisk()
        self.env = StillEnv(self.disk)
        self.config = config or LogConfig()
        self.producers_max = producers_max
        self.epoch = 0

    async def open(self, *, is_clean: bool = False) -> Partition:
        producers = ProducerStates(self.producers_max)
        replay = partial(producers.replay_stored, wall_ms=FIRST_MS)
        log = await CompactedLog.open(
            self.env, "topics/ab/0", IDENTITY, self.config, OpenFiles(self.disk, 100),
            is_clean=is_clean, restore=producers.restore, replay=replay, replay_control=replay,
        )  # fmt: skip
        assert log.failure is None
        self.partition = Partition("t", IDENTITY.topic_id, 0, log=log, producers=producers, config=CONFIG)
        return self.partition

    def lead(self, *, in_sync: Sequence[NodeId] = (ME,)) -> Partition:
        """In the next epoch. Alone, what is flushed is below the watermark; with another, what `reach` says."""
        self.epoch += 1
        partition, log = self.partition, self.partition.log
        leader: Leader[ProduceToken] = Leader(
            ME, LeaderEpoch(self.epoch), in_sync=[(node, 0) for node in in_sync], replicas=[ME, OTHER], partition_epoch=self.epoch,
            own_end=log.flushed_end, high_watermark=partition.high_watermark, epoch_start=log.end_offset, log_start=log.start_offset,
            min_insync=1, lag_max_s=10, now=self.env.now(),
        )  # fmt: skip
        partition.lead(leader)
        return partition

    def reach(self, end_offset: int, by: NodeId = ME) -> None:
        assert self.partition.leader is not None
        reached = Reached(by, Offset(end_offset), 0, self.partition.epoch)
        self.partition.leader.step(reached, self.env.now())

    async def flush(self) -> None:
        await self.partition.log.flush()
        if self.partition.leader is not None:
            self.reach(self.partition.log.end_offset)

    async def checkpoint(self) -> None:
        log = self.partition.log
        captured = log.begin_checkpoint(self.partition.producers.snapshot())
        await log.flush()
        await log.write_checkpoint(captured)

    def put(
        self, producer_id: int = 7, sequence: int = 0, *records: tuple[bytes, bytes | None],
        epoch: int = 0, is_transactional: bool = True, number: int = -1, is_v2: bool = False, codec: int = 0,
    ) -> Appended:  # fmt: skip
        """Asks as a node does, with a coordinator that always agrees."""
        batch = transactional(producer_id, sequence, *records, epoch=epoch, is_transactional=is_transactional, codec=codec)
        header, guard = read_header(batch), None
        if is_transactional and self.partition.needs_verification(header):
            guard = self.partition.guard(header, is_v2=is_v2)
            guard.number = number
        return self.partition.append(batch, self.env.wall, guard)

    def end(self, producer_id: int = 7, *, is_commit: bool = True, epoch: int = 0, number: int = -1, **options: Any) -> Appended | None:
        options = {"coordinator_epoch": 0, "is_v2": False, "wall_ms": self.env.wall} | options
        return self.partition.append_marker(producer_id, epoch, is_commit=is_commit, number=number, **options)

    async def content(self, *, reads_committed: bool = False) -> bytes:
        found, offset = [], self.partition.log.start_offset
        while data := await self.partition.read_later(offset, READ_BYTES, reads_committed=reads_committed):
            at = 0
            while at < len(data):
                header = read_header(data, at)
                at, offset = at + header.size, Offset(header.end_offset)
            found.append(bytes(data))
        return b"".join(found)


def transactional(
    producer_id: int = 7,
    sequence: int = 0,
    *records: tuple[bytes, bytes | None],
    epoch: int = 0,
    is_transactional: bool = True,
    codec: int = 0,
) -> bytearray:
    chosen = [Record(key, value, timestamp_ms=FIRST_MS) for key, value in records or ((b"k", b"v"),)]
    return encode_batch(
        chosen, producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence, is_transactional=is_transactional, codec=codec
    )


async def led(**options: object) -> Held:
    held = Held(**options)  # type: ignore[arg-type]
    await held.open()
    held.lead()
    return held


async def copy(leader: Held, replica: Held) -> None:
    await leader.flush()
    await replica.open()
    content, at = await leader.content(), 0
    while at < len(content):
        header = read_header(content, at)
        replica.partition.replicate(content[at : at + header.size], header, leader.env.wall)
        at += header.size
