"""The ledger: a compacted topic of one partition in which every sink of a cluster says what it committed.

Rules:
- It is created where it is missing: compacted, on three nodes where there are as many, acknowledged by two of them at least. A topic of
  that name that is not compacted is refused: it would forget what was committed.
- Reading is to the end of what is acknowledged, which the leader is asked for first: a leader that has just been elected says when it does
  not know it yet, while a fetch would show less.
- A process reads it once and then only what is new. Small segments let compaction keep the rest short.
- `append` stores its records once, directly after what the token's owner knew, or raises `Superseded`.
Not here: what the records mean (entries.py), who may take the ledger over (runs.py).
"""

import asyncio
from collections.abc import Sequence
from weakref import WeakKeyDictionary

from penstock.errors import ErrorCode
from penstock.peers.appending import ProducerIdentity
from penstock.peers.client import Client
from penstock.peers.configs import Configured
from penstock.peers.failures import PeerFailure, Refused, UnknownTopic
from penstock.peers.fetching import FetchLimits, whole_batches
from penstock.peers.offsets import EARLIEST, LATEST
from penstock.peers.transaction_calls import TransactionCalls
from penstock.pipeline.sink.entries import NOTHING, Begun, Entries, SinkState, Token, begun_record
from penstock.pipeline.sink.failures import SinkFailure, Undecided
from penstock.pipeline.sink.names import ledger_id
from penstock.vocabulary import NO_PRODUCER, TopicPartition
from penstock.wire.batches import Record, decode_records, encode_batch

REPLICAS = 3
SETTINGS = {
    "cleanup.policy": "compact",
    "segment.bytes": str(4 << 20),  # What is not compacted yet has to be read by every process that starts.
    "min.cleanable.dirty.ratio": "0.1",
    "delete.retention.ms": "3600000",  # Nobody reads for an hour, so that tombstones may go after it.
}
TIMEOUT_MS = 60_000  # Of the ledger's transactional id, which never begins a transaction.

_FETCH = FetchLimits(wait_ms=100, bytes_max=4 << 20)
_UNPACKED_BYTES_MAX = 64 << 20
_SUPERSEDED = (ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, ErrorCode.UNKNOWN_PRODUCER_ID)
_NOBODY = ProducerIdentity(NO_PRODUCER, -1)


class Superseded(SinkFailure):
    """The leader refused a record: somebody else has appended since, or took the ledger over. Nothing was stored."""


class Ledger:
    """Used from the client's event loop only."""

    def __init__(self, client: Client, topic: str) -> None:
        self.topic = topic
        self._client = client
        self._where = TopicPartition(topic, 0)
        self._entries = Entries()
        self._next: int | None = None  # The offset that reading goes on from; None before the first.
        self._is_ready = False
        self._reading = asyncio.Lock()

    async def read(self, sink: str) -> SinkState:
        """What it says of the sink now."""
        async with self._reading:
            await self._make_ready()
            end = await self._end()
            if self._next is None or self._next > end:  # More than there is: it was deleted and made again.
                self._entries = Entries()
                self._next = (await self._client.list_offsets({self._where: EARLIEST}))[self._where].offset
            while self._next < end:
                await self._read_some()
        return self._entries.states.get(sink, NOTHING)

    def states(self) -> dict[str, SinkState]:
        """Of every sink, as far as it was read."""
        return dict(self._entries.states)

    async def take(self, begun: Begun, records: Sequence[Record] = ()) -> None:
        """Makes this the run that may append, and stores the records with it. Whoever might before is refused from here on."""
        calls = TransactionCalls(self._client, ledger_id(begun.sink), deadline_s=self._client.router.deadline(None).span_s)
        identity = await calls.init(_NOBODY, timeout_ms=TIMEOUT_MS)
        first = begun_record(begun, self._client.env.wall_ms())
        await self.append(Token(*identity, sequence=0, offset=-1), [first, *records])

    async def append(self, token: Token, records: Sequence[Record]) -> int:
        """Returns the offset of the last of them."""
        await self._make_ready()
        batch = encode_batch(records, producer_id=token.producer_id, producer_epoch=token.epoch, base_sequence=token.sequence)
        try:
            produced = await self._client.produce(*self._where, batch)
        except Refused as refusal:
            if refusal.code in _SUPERSEDED and not refusal.may_have_happened:
                raise Superseded(refusal.problem) from refusal
            raise
        except PeerFailure as failure:
            if failure.may_have_happened:
                raise Undecided(
                    f"it is not known whether the ledger {self.topic!r} has stored a record: {failure.problem}",
                    "start the query again: it reads the ledger, and either finishes the batch or writes it anew",
                    may_have_happened=True,
                ) from failure
            raise
        return produced.base_offset + len(records) - 1

    async def _end(self) -> int:
        return (await self._client.list_offsets({self._where: LATEST}))[self._where].offset

    async def _read_some(self) -> None:
        at = self._next or 0
        try:
            fetched = await self._client.fetch(*self._where, at, limits=_FETCH)
        except Refused as refusal:
            if refusal.code == ErrorCode.OFFSET_OUT_OF_RANGE:
                self._next = None  # Compaction, or a new topic under the old name: the next read begins at the start.
            raise
        for header, batch in whole_batches(fetched.records):
            if header.end_offset > at and not header.is_control:
                self._entries.replay(header, decode_records(batch, bytes_max=_UNPACKED_BYTES_MAX))
            at = max(at, header.end_offset)
        self._next = at

    async def _make_ready(self) -> None:
        if self._is_ready:
            return
        try:
            await self._client.describe(self.topic)
        except UnknownTopic:
            await self._create()
        policy = {one.name: one.value for one in await self._client.settings_of(Configured.topic(self.topic))}.get("cleanup.policy")
        if policy != "compact":
            raise SinkFailure(
                f"the topic {self.topic!r} cannot be the sink's ledger: its cleanup.policy is {policy}: what it forgets is written twice",
                "set its cleanup.policy to compact, or name another topic by the option ledgerTopic",
            )
        self._is_ready = True

    async def _create(self) -> None:
        nodes = len((await self._client.metadata([])).nodes)
        replicas = min(REPLICAS, nodes)
        config = SETTINGS | ({"min.insync.replicas": "2"} if replicas == REPLICAS else {})
        try:
            await self._client.create_topic(self.topic, partitions=1, replication_factor=replicas, config=config)
        except Refused as refusal:
            if refusal.code != ErrorCode.TOPIC_ALREADY_EXISTS:
                raise
            await self._client.partition_count(self.topic)  # Another task was faster: wait until it has a leader.


_ledgers: WeakKeyDictionary[Client, dict[str, Ledger]] = WeakKeyDictionary()


def ledger(client: Client, topic: str) -> Ledger:
    """The one of this process."""
    return _ledgers.setdefault(client, {}).setdefault(topic, Ledger(client, topic))
