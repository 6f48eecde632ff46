"""Records in, batches out: each partition in order, each record once.

Rules:
- One batch per partition is on its way at a time. A retry sends the same bytes with the same sequence, so the node can tell it from a new
  batch, and nothing can overtake it.
- The sequence moves on only when a batch is known to be stored. A refused batch leaves no gap behind it.
- Where it stays unknown whether a batch is stored, an idempotent producer ends: going on could store it twice, or leave a gap. Everything
  that was still queued fails with `ProducerBroken`; a new producer can go on.
- What was accepted and not settled never takes more than `buffer_bytes_max`; `send` waits for room.
Not here: transactions (transactions.py).
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from types import TracebackType

from penstock.errors import ErrorCode
from penstock.peers.appending import ACKS_ALL, Produced, ProducerIdentity, TransactionPart
from penstock.peers.batching import Delivered, Lane, Pending, Room, size_of
from penstock.peers.client import Client
from penstock.peers.failures import PeerFailure, ProducerBroken, Refused
from penstock.peers.partitioner import StickyPartitions, partition_of_key
from penstock.peers.patience import TIMER_MIN_S, until_ended
from penstock.vocabulary import NO_PRODUCER, TopicPartition
from penstock.wire.batches import Record, encode_batch

SEQUENCE_END = 1 << 31  # Sequences start over at 0 after the largest 32-bit integer.

# The node's record of this producer is not what the producer knows of itself: one of the two has lost something.
_BREAKING = (ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, ErrorCode.UNKNOWN_PRODUCER_ID, ErrorCode.INVALID_PRODUCER_EPOCH)

_NO_IDENTITY = ProducerIdentity(NO_PRODUCER, -1)
_AFTER_BREAKING = "start a new producer; before sending anything again, read back what of this one's records arrived"


@dataclass(frozen=True, slots=True)
class ProducerSettings:
    acks: int = ACKS_ALL
    is_idempotent: bool = True
    codec: int = 0
    linger_s: float = 0.005  # How long a record may wait for company.
    batch_bytes_max: int = 64 << 10
    buffer_bytes_max: int = 32 << 20
    delivery_s: float = 120.0  # From `send` to the last try.


class Producer:
    """Use as `async with Producer(client) as producer`; leaving flushes. `send` gives a future for each record."""

    def __init__(self, client: Client, settings: ProducerSettings | None = None) -> None:
        self.settings = settings or ProducerSettings()
        if self.settings.is_idempotent and self.settings.acks != ACKS_ALL:
            raise ValueError("an idempotent producer needs acks all: set acks to -1, or is_idempotent to False")
        self.failure: ProducerBroken | None = None  # Why this producer ended, once it has.
        self._client = client
        self._identity: ProducerIdentity | None = None if self.settings.is_idempotent else _NO_IDENTITY
        self._identifying = asyncio.Lock()
        self._sticky = StickyPartitions(client.env.rng, self.settings.batch_bytes_max)
        self._room = Room(self.settings.buffer_bytes_max)
        self._lanes: dict[TopicPartition, Lane] = {}
        self._unyielded_bytes = 0
        self._flushing = 0  # While above 0 nothing waits for company.

    async def __aenter__(self) -> "Producer":
        return self

    async def __aexit__(self, kind: type[BaseException] | None, failure: BaseException | None, trace: TracebackType | None) -> None:
        if failure is None:
            await self.close()
        else:
            await self.abandon()

    async def send(
        self,
        topic: str,
        value: bytes | None,
        *,
        key: bytes | None = None,
        partition: int | None = None,
        headers: Sequence[tuple[str, bytes | None]] = (),
        timestamp_ms: int | None = None,
    ) -> asyncio.Future[Delivered]:
        """Queues one record, waiting for room if need be. The future tells where it was stored, or fails with a `PeerFailure`."""
        record = Record(key, value, tuple(headers), self._client.env.wall_ms() if timestamp_ms is None else timestamp_ms)
        size = size_of(record)
        if size > self._room.bytes_max:
            raise ValueError(f"a record of {size} bytes can never fit into a buffer of {self._room.bytes_max}: raise buffer_bytes_max")
        await self._identify()
        await self._let_others_run(size)
        await self._room.take(size)
        try:
            chosen = await self._choose(topic, key, partition, size)
            self._check_going()
        except BaseException:
            self._room.free(size)
            raise
        pending = Pending(record, size, self._client.env.now(), asyncio.get_running_loop().create_future())
        self._enqueue(TopicPartition(topic, chosen), pending)
        return pending.delivered

    async def flush(self) -> None:
        """Waits until everything sent before is settled, well or ill: the futures tell which."""
        goals = [(lane, lane.accepted) for lane in self._lanes.values()]
        self._flushing += 1
        try:
            for lane, _ in goals:
                lane.is_ripe.set()
            for lane, count in goals:
                await lane.until_settled(count)
        finally:
            self._flushing -= 1

    async def close(self) -> None:
        """Flushes, and takes nothing more."""
        await self.flush()
        await self.abandon()

    async def abandon(self) -> None:
        """Drops what is not settled: those futures fail."""
        self._break("the producer was closed", "")
        await self._drop_unsettled()

    async def _drop_unsettled(self) -> None:
        """Called when nothing may be sent any more."""
        for lane in self._lanes.values():
            if lane.task is not None:
                lane.task.cancel()
        for lane in self._lanes.values():
            if lane.task is not None:
                await until_ended(lane.task)
            while lane:
                await self._settle(lane, lane.take(self.settings.batch_bytes_max))

    async def _identify(self) -> None:
        self._check_going()
        if self._identity is None:
            async with self._identifying:
                if self._identity is None:
                    self._identity = await self._client.init_producer_id()

    async def _let_others_run(self, size: int) -> None:
        """With room and a known topic nothing else in `send` waits, and a busy sender would keep the loop from sending at all."""
        self._unyielded_bytes += size
        if self._unyielded_bytes >= self.settings.batch_bytes_max:
            self._unyielded_bytes = 0
            await asyncio.sleep(0)

    async def _choose(self, topic: str, key: bytes | None, partition: int | None, size: int) -> int:
        count = await self._client.partition_count(topic, deadline_s=self.settings.delivery_s)
        if partition is not None:
            if not 0 <= partition < count:
                raise PeerFailure(f"topic {topic!r} has no partition {partition}: it has {count}, counted from 0")
            return partition
        return self._sticky.choose(topic, size, count) if key is None else partition_of_key(key, count)

    def _enqueue(self, where: TopicPartition, pending: Pending) -> None:
        lane = self._lanes.get(where)
        if lane is None:
            lane = self._lanes[where] = Lane(where)
        lane.accept(pending, self.settings.batch_bytes_max)
        if lane.task is None:
            lane.task = asyncio.get_running_loop().create_task(self._drain(lane))

    async def _drain(self, lane: Lane) -> None:
        """Sends what the lane holds, batch by batch, until it is empty."""
        try:
            while lane:
                await self._linger(lane)
                await self._settle(lane, lane.take(self.settings.batch_bytes_max))
        finally:
            lane.task = None

    async def _linger(self, lane: Lane) -> None:
        wait_s = lane.oldest_at + self.settings.linger_s - self._client.env.now()
        if wait_s < TIMER_MIN_S or self._flushing:
            return
        try:
            async with asyncio.timeout(wait_s):
                await lane.is_ripe.wait()
        except TimeoutError:
            return

    async def _settle(self, lane: Lane, batch: list[Pending]) -> None:
        """Delivers a batch, or fails it; either way its records are settled afterwards."""
        try:
            await self._deliver(lane, batch)
        except PeerFailure as failure:
            self._fail(lane, batch, failure)
        except BaseException as failure:
            self._fail(lane, batch, ProducerBroken(f"produce to {lane.where} was cut short: {failure!r}", may_have_happened=True))
            raise
        finally:
            self._room.free(sum(pending.size for pending in batch))
            lane.note_settled(len(batch))

    async def _deliver(self, lane: Lane, batch: list[Pending]) -> None:
        try:
            produced = await self._produce(lane, batch)
        except Refused as refusal:
            if refusal.code != ErrorCode.MESSAGE_TOO_LARGE or len(batch) == 1 or refusal.may_have_happened:
                raise
            half = len(batch) // 2  # Together they are too large for the topic; each alone may not be.
            await self._deliver_or_fail(lane, batch[:half])
            await self._deliver_or_fail(lane, batch[half:])
            return
        lane.sequence = (lane.sequence + len(batch)) % SEQUENCE_END
        for place, pending in enumerate(batch):
            pending.succeed(_delivered(lane.where, place, pending, produced))

    async def _deliver_or_fail(self, lane: Lane, batch: list[Pending]) -> None:
        try:
            await self._deliver(lane, batch)
        except PeerFailure as failure:
            self._fail(lane, batch, failure)

    async def _produce(self, lane: Lane, batch: list[Pending]) -> Produced:
        self._check_going()
        identity = self._identity or _NO_IDENTITY
        part = await self._join_transaction(lane.where)
        encoded = encode_batch(
            [pending.record for pending in batch],
            producer_id=identity.producer_id,
            producer_epoch=identity.epoch,
            base_sequence=lane.sequence if self.settings.is_idempotent else -1,
            codec=self.settings.codec,
            is_transactional=part is not None,
        )
        left_s = batch[0].accepted_at + self.settings.delivery_s - self._client.env.now()
        if left_s <= 0:
            raise PeerFailure(f"produce to {lane.where}: the record waited {self.settings.delivery_s:g} s behind others and was not sent")
        return await self._client.produce(
            lane.where.topic, lane.where.partition, encoded, acks=self.settings.acks, part=part, deadline_s=left_s
        )

    async def _join_transaction(self, where: TopicPartition) -> TransactionPart | None:
        """Before each batch: which transaction it belongs to. Here to none."""
        return None

    def _fail(self, lane: Lane, batch: list[Pending], failure: PeerFailure) -> None:
        if self.settings.is_idempotent and self.failure is None:
            if isinstance(failure, Refused) and failure.code in _BREAKING:
                self._break(f"the node does not know {lane.where} as this producer does: {failure.problem}", _AFTER_BREAKING)
            elif failure.may_have_happened:
                self._break(f"it is not known whether a batch for {lane.where} was stored: {failure.problem}", _AFTER_BREAKING)
        for pending in batch:
            pending.fail(failure)

    def _break(self, problem: str, advice: str) -> None:
        """Nothing more is accepted or sent. Lanes find out at their next batch, and fail what they hold."""
        if self.failure is None:
            self.failure = ProducerBroken(problem, advice)
            for lane in self._lanes.values():
                lane.is_ripe.set()

    def _check_going(self) -> None:
        if self.failure is not None:
            raise type(self.failure)(self.failure.problem, self.failure.advice)


def _delivered(where: TopicPartition, place: int, pending: Pending, produced: Produced) -> Delivered:
    offset = produced.base_offset + place if produced.base_offset >= 0 else -1
    timestamp_ms = pending.record.timestamp_ms if produced.append_time_ms < 0 else produced.append_time_ms
    return Delivered(where.topic, where.partition, offset, timestamp_ms)
