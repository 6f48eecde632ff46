"""A partition's transactions through appends, markers, flushes, checkpoints, power cuts, cuts and changes of leader: at every moment what
it says is what the batches in its log say, read from the first to the last."""

from dataclasses import dataclass, field
from random import Random

import pytest
from log.bench import headers_in, run
from partition.held import ME, OTHER, Held
from tiers import pick

from penstock.errors import ErrorCode, Refusal
from penstock.log.config import LogConfig
from penstock.partition.aborted import AbortedIndex
from penstock.partition.partition import Partition
from penstock.partition.producers import ProducerStates
from penstock.partition.transactions import OpenTransactions
from penstock.simulator.defects import breaks
from penstock.simulator.disk import SimDisk
from penstock.wire.markers import decode_marker

CONFIG = LogConfig(segment_bytes=1_500, index_interval_bytes=300)
PRODUCERS = (5, 6, 7, 8)


@dataclass
class Told:
    """By the batches of a log."""

    open: dict[int, int] = field(default_factory=dict)  # Where each producer's began.
    ended: list[tuple[int, int, int, bool]] = field(default_factory=list)  # Producer, first offset, marker's offset, whether committed.
    epochs: dict[int, int] = field(default_factory=dict)

    def last_stable(self, watermark: int) -> int:
        unstable = [*self.open.values(), *(first for _, first, marker, _ in self.ended if marker >= watermark)]
        return min([watermark, *unstable])

    def aborted(self, start: int, end: int) -> list[tuple[int, int]]:
        return [(who, first) for who, first, marker, is_commit in self.ended if not is_commit and marker >= start and first < end]


def read(content: bytes) -> Told:
    told, at = Told(), 0
    for header in headers_in(content):
        batch, at = content[at : at + header.size], at + header.size
        who = header.producer_id
        if who < 0:
            continue
        told.epochs[who] = header.producer_epoch
        if header.is_control:
            marker = decode_marker(batch)
            assert marker is not None
            if who in told.open:
                told.ended.append((who, told.open.pop(who), header.base_offset, marker.is_commit))
        elif header.is_transactional:
            told.open.setdefault(who, header.base_offset)
    return told


async def everything(held: Held) -> bytes:
    """Also what is not committed."""
    log, found, offset = held.partition.log, [], held.partition.log.start_offset
    while offset < log.end_offset:
        found.append(bytes(await log.read_later(offset, bytes_max=1 << 20, end_offset=log.end_offset)))
        offset = headers_in(found[-1])[-1].end_offset
    return b"".join(found)


class Walk:
    def __init__(self, seed: int) -> None:
        self.rng = Random(seed)
        self.disk = SimDisk(seed)
        self.held = Held(self.disk, CONFIG)
        self.sequences: dict[int, tuple[int, int]] = {}  # Epoch and next sequence of each producer.
        self.watermark = 0

    async def go(self, steps: int) -> None:
        await self.held.open()
        self.lead()
        for _ in range(steps):
            await self.rng.choices(
                (self.write, self.end, self.advance, self.checkpoint, self.restart, self.cut, self.change_leader), (10, 6, 5, 1, 1, 1, 1)
            )[0]()
            await self.check()
        await self.check_replica()

    def lead(self) -> None:
        self.held.lead(in_sync=(ME, OTHER))
        self.held.reach(self.held.partition.log.flushed_end)
        self.held.reach(self.watermark, OTHER)

    async def write(self) -> None:
        who = self.rng.choice(PRODUCERS)
        epoch, sequence = self.sequences.get(who, (0, 0))
        is_transactional = who != PRODUCERS[0]
        self.held.put(who, sequence, epoch=epoch, is_transactional=is_transactional, is_v2=who == PRODUCERS[-1])
        self.sequences[who] = (epoch, sequence + 1)

    async def end(self) -> None:
        who, is_v2 = self.rng.choice(PRODUCERS[1:]), False
        epoch, _ = self.sequences.get(who, (0, 0))
        if who == PRODUCERS[-1] or self.rng.random() < 0.2:  # By the second version, or because its time was up.
            is_v2, epoch = who == PRODUCERS[-1], epoch + 1
            self.sequences[who] = (epoch, 0)
        if epoch and self.rng.random() < 0.3:
            with pytest.raises(Refusal) as refused:
                self.held.end(who, epoch=self.held.partition.producers.epoch_of(who) - 1)
            assert refused.value.code is ErrorCode.INVALID_PRODUCER_EPOCH
        self.held.end(who, epoch=epoch, is_commit=self.rng.random() < 0.5, is_v2=is_v2)

    async def advance(self) -> None:
        await self.held.flush()
        self.watermark = self.rng.randint(self.watermark, self.held.partition.log.flushed_end)
        self.held.reach(self.watermark, OTHER)

    async def checkpoint(self) -> None:
        await self.held.checkpoint()

    async def restart(self) -> None:
        self.disk.power_cut()
        await self.held.open()
        assert self.held.partition.log.end_offset >= self.watermark
        self.lead()
        await self.forget_what_was_lost()

    async def change_leader(self) -> None:
        self.held.partition.follow(self.held.partition.epoch)
        self.held.partition.learn_watermark(self.watermark)
        self.lead()

    async def cut(self) -> None:
        partition = self.held.partition
        partition.follow(partition.epoch)
        await partition.log.truncate_to(self.rng.randint(max(0, self.watermark - 3), partition.log.end_offset))
        partition.log_was_cut()
        await partition.remember_producers(0)
        self.watermark = min(self.watermark, partition.log.end_offset)
        self.lead()
        await self.forget_what_was_lost()

    async def forget_what_was_lost(self) -> None:
        """Producers begin anew in a later epoch."""
        for who, (epoch, _) in list(self.sequences.items()):
            self.sequences[who] = (epoch + 1, 0)

    async def check(self) -> None:
        partition = self.held.partition
        told = read(await everything(self.held))
        assert partition.high_watermark == self.watermark
        assert partition.last_stable_offset == told.last_stable(self.watermark)
        start, end = sorted(self.rng.randint(0, partition.log.end_offset) for _ in range(2))
        assert partition.aborted(start, end) == told.aborted(start, end)
        producers = partition.producers
        assert {who: known.first_offset for who, known in producers.transactions.by_producer.items()} == told.open
        assert {who: producers.epoch_of(who) for who in producers.producer_ids()} == told.epochs

    async def check_replica(self) -> None:
        replica, content, at = Held(SimDisk(1), CONFIG), await everything(self.held), 0
        await replica.open()
        for header in headers_in(content):
            replica.partition.replicate(content[at : at + header.size], header, self.held.env.wall)
            at += header.size
        replica.partition.learn_watermark(self.watermark)
        mine, theirs = self.held.partition, replica.partition
        assert theirs.last_stable_offset == mine.last_stable_offset
        assert theirs.aborted(0, 1 << 60) == mine.aborted(0, 1 << 60)
        assert sorted(theirs.producers.last_offsets()) == sorted(mine.producers.last_offsets())


@pytest.mark.invariant("transactions.partition-state-matches-log")
@pytest.mark.repeats
@pytest.mark.parametrize("seed", range(pick(test=20, slow=60)))
def test_what_is_known_of_transactions_is_what_the_log_tells(seed: int) -> None:
    run(Walk(seed).go(60))


async def rebuild_nothing(partition: Partition, wall_ms: int) -> None:
    partition.log.owner_is_rebuilt()


restore_open = OpenTransactions.restore

DEFECTS: dict[str, tuple[type, str, object]] = breaks("transactions.partition-state-matches-log")({
    "takes a marker above the watermark for settled": (OpenTransactions, "first_unstable", lambda self, watermark: self.first_open),
    "does not restore what was aborted": (AbortedIndex, "restore", lambda self, snapshot, at: at),
    "does not restore what is open": (OpenTransactions, "restore", lambda self, *snapshot: restore_open(OpenTransactions(), *snapshot)),
    "remembers what was cut": (Partition, "remember_producers", rebuild_nothing),
    "passes over markers": (ProducerStates, "replay_marker", lambda self, header, marker, wall_ms: None),
    "knows of no epoch": (ProducerStates, "epoch_of", lambda self, producer_id: -1),
})


@pytest.mark.invariant("transactions.partition-state-matches-log")
@pytest.mark.parametrize("defect", DEFECTS)
def test_the_walk_finds_what_was_planted(defect: str, monkeypatch: pytest.MonkeyPatch) -> None:
    where, name, planted = DEFECTS[defect]
    monkeypatch.setattr(where, name, planted)
    for seed in range(60):
        try:
            run(Walk(seed).go(60))
        except (AssertionError, Refusal, pytest.fail.Exception):
            return
    raise RuntimeError(f"nobody noticed a partition that {defect}")
