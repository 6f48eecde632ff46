"""The rows of one task on their way into partitions, in a transaction that is left open.

Rules:
- The task asks for the producer id of its transactional id first. That fences whoever had the id before and aborts what it left open, so
  that the transaction is the task's alone; it begins with the first partition.
- While a chunk of rows is on its way the next one is encoded; never more than these two are in memory.
- Each partition gets one batch at a time, in order, with sequence numbers: a retry is stored once.
- `finish` returns when every row is stored by all replicas that must have it. It ends nothing: that is the driver's.
- `abandon` aborts, where that is still possible. Nobody waits for long: a time-out does it too.
Without a transactional id rows count as soon as they are stored, and count again when the task is tried again.
"""

import asyncio
from collections.abc import Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass

from penstock.errors import ErrorCode
from penstock.peers.appending import ProducerIdentity, TransactionPart
from penstock.peers.failures import PeerFailure, Refused
from penstock.peers.transaction_calls import FENCED, MAPPING_LOST, TransactionCalls
from penstock.pipeline.brokers import Broker
from penstock.pipeline.sink.entries import Winner
from penstock.pipeline.sink.failures import SinkFailure, TakenOver
from penstock.pipeline.sink.options import SinkOptions
from penstock.pipeline.sink.rows import Cut
from penstock.pipeline.sink.steps import Step, reached
from penstock.vocabulary import NO_PRODUCER, TopicPartition
from penstock.wire.batches import wrap_records
from penstock.wire.columns import Encoded, RecordColumns, encode_records

SEQUENCE_END = 1 << 31
ABANDON_S = 5.0

_NOBODY = ProducerIdentity(NO_PRODUCER, -1)
_IS_OVER = (*FENCED, *MAPPING_LOST, ErrorCode.INVALID_TXN_STATE, ErrorCode.TRANSACTION_ABORTABLE)


@dataclass(frozen=True, slots=True)
class Parcel:
    """One batch of records for one partition, and the rows that it was made of."""

    where: TopicPartition
    columns: RecordColumns
    rows: memoryview
    sequence: int
    encoded: Encoded


class Staging:
    """Used by the task's thread; what talks to brokers runs in the loop of `broker`."""

    def __init__(self, broker: Broker, options: SinkOptions, transactional_id: str | None) -> None:
        self._broker = broker
        self._client = broker.client
        self._options = options
        self._calls = (
            TransactionCalls(self._client, transactional_id, deadline_s=broker.contact.deadline_s) if transactional_id is not None else None
        )
        self._transactional_id = transactional_id
        self._identity = _NOBODY
        self._sequences: dict[TopicPartition, int] = {}
        self._on_its_way: Future[None] | None = None
        self._first: tuple[TopicPartition, int] | None = None  # Where the first batch that was stored lies.
        self._announced: set[TopicPartition] = set()

    def begin(self) -> None:
        self._identity = self._broker.run(self._identify())
        reached(Step.NAMED)

    def add(self, cuts: Sequence[Cut]) -> None:
        parcels = [parcel for cut in cuts for parcel in self._parcels(cut)]
        self._settle()
        self._on_its_way = self._broker.start(self._deliver(parcels))

    def finish(self) -> Winner | None:
        """The transaction as the driver must name it. None without one, or where no row came."""
        self._settle()
        if self._first is None or self._transactional_id is None:
            return None
        reached(Step.STAGED)
        where, offset = self._first
        return Winner(self._transactional_id, self._identity.producer_id, self._identity.epoch, where.topic, where.partition, offset)

    def abandon(self) -> None:
        if self._on_its_way is not None:
            self._on_its_way.cancel()
        if self._calls is not None and self._announced:
            calls = TransactionCalls(self._client, self._transactional_id or "", deadline_s=ABANDON_S)
            with suppress(PeerFailure):
                self._broker.run(calls.end(self._identity, is_commit=False, is_v2=False), deadline_s=ABANDON_S)

    def _settle(self) -> None:
        """Waits for the chunk that is on its way."""
        running, self._on_its_way = self._on_its_way, None
        if running is not None:
            self._broker.wait(running, deadline_s=10 * self._options.delivery_s)

    def _parcels(self, cut: Cut) -> list[Parcel]:
        parcels, start = [], 0
        wall_ms = self._client.env.wall_ms()
        while start < len(cut.rows):
            encoded = encode_records(cut.columns, cut.rows, start=start, bytes_max=self._options.batch_bytes, wall_ms=wall_ms)
            end = start + encoded.record_count
            sequence = self._sequences.get(cut.where, 0)
            self._sequences[cut.where] = (sequence + encoded.record_count) % SEQUENCE_END
            parcels.append(Parcel(cut.where, cut.columns, cut.rows[start:end], sequence, encoded))
            start = end
        return parcels

    # In the event loop.

    async def _identify(self) -> ProducerIdentity:
        if self._calls is None:
            return await self._client.init_producer_id()
        try:
            return await self._calls.init(_NOBODY, timeout_ms=self._options.transaction_timeout_ms)
        except Refused as refusal:
            if refusal.code != ErrorCode.INVALID_TRANSACTION_TIMEOUT:
                raise
            raise SinkFailure(
                f"the brokers allow no transaction of {self._options.transaction_timeout_ms} ms: {refusal.problem}",
                "lower transactionTimeoutMs, or raise the brokers' transaction.max.timeout.ms",
            ) from refusal

    async def _deliver(self, parcels: Sequence[Parcel]) -> None:
        lanes: dict[TopicPartition, list[Parcel]] = {}
        for parcel in parcels:
            lanes.setdefault(parcel.where, []).append(parcel)
        try:
            await self._announce(list(lanes))
            outcomes = await asyncio.gather(*(self._deliver_lane(lane) for lane in lanes.values()), return_exceptions=True)
            for outcome in outcomes:
                if isinstance(outcome, BaseException):
                    raise outcome
        except Refused as refusal:
            if self._calls is None or refusal.code not in _IS_OVER:
                raise
            raise TakenOver(
                f"the transaction {self._transactional_id} was ended while rows were written to it ({refusal.problem}): it timed out, or "
                "another attempt or run has taken its id",
                "nothing of it counts, and Spark tries again. If batches take longer than transactionTimeoutMs, raise it",
            ) from refusal

    async def _announce(self, partitions: Sequence[TopicPartition]) -> None:
        new = [where for where in partitions if where not in self._announced]
        if self._calls is not None and new:
            self._announced.update(new)  # Perhaps known to the coordinator from here on, whatever is answered.
            await self._calls.announce(self._identity, new)

    async def _deliver_lane(self, parcels: Sequence[Parcel]) -> None:
        for parcel in parcels:
            await self._send(parcel)

    async def _send(self, parcel: Parcel) -> None:
        part = TransactionPart(self._transactional_id, is_v2=False) if self._transactional_id is not None else None
        try:
            produced = await self._client.produce(*parcel.where, self._wrapped(parcel), part=part, deadline_s=self._options.delivery_s)
        except Refused as refusal:
            if refusal.code != ErrorCode.MESSAGE_TOO_LARGE or parcel.encoded.record_count == 1:
                raise
            for smaller in _halves(parcel, self._client.env.wall_ms()):  # The topic takes less than what is usual.
                await self._send(smaller)
            return
        if self._first is None:
            self._first = parcel.where, produced.base_offset
            reached(Step.HALF_STAGED)

    def _wrapped(self, parcel: Parcel) -> bytearray:
        encoded = parcel.encoded
        return wrap_records(
            encoded.payload,
            record_count=encoded.record_count,
            base_timestamp_ms=encoded.base_timestamp_ms,
            max_timestamp_ms=encoded.max_timestamp_ms,
            producer_id=self._identity.producer_id,
            producer_epoch=self._identity.epoch,
            base_sequence=parcel.sequence,
            codec=self._options.codec,
            is_transactional=self._transactional_id is not None,
        )


def _halves(parcel: Parcel, wall_ms: int) -> list[Parcel]:
    """The same rows under the same sequence numbers, in smaller batches."""
    halves, start, bytes_max = [], 0, len(parcel.encoded.payload) // 2
    while start < len(parcel.rows):
        encoded = encode_records(parcel.columns, parcel.rows, start=start, bytes_max=bytes_max, wall_ms=wall_ms)
        end = start + encoded.record_count
        sequence = (parcel.sequence + start) % SEQUENCE_END
        halves.append(Parcel(parcel.where, parcel.columns, parcel.rows[start:end], sequence, encoded))
        start = end
    return halves
