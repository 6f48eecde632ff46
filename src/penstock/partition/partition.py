"""One partition on this node: its log, its producers' sequences, how far readers may see, and whether this node leads it.

A partition has a role once its node knows who leads: then it has a `leader`, the machine of this node's leadership, or it follows another.
Whoever has a partition in hand across an `await` looks again whether it still leads.

`append` takes a batch that admission has let through, stamps offset and epoch into its header, decides on its sequence and hands the
bytes to the log. What becomes of the producer's answer is the leader machine's business; who is told that more can be read is the broker's.

Transactions. Whoever has a transactional batch asks `needs_verification`. If so it takes a `guard`, asks the transaction's coordinator,
notes the number that it was told in the guard, and gives the guard to `append`, which refuses the batch if it is void by then (guards.py).
A coordinator ends the transaction here by `append_marker`. Readers of committed records see up to `last_stable_offset`, and are told which
transactions to pass over (`aborted`): asked after the bytes were read, for the range that they cover.
Hot path: one `append` per produced batch, one `read` per fetched partition.
"""

from typing import NamedTuple, Protocol

from penstock.env import SyncFailures
from penstock.errors import ErrorCode, Refusal
from penstock.log.compacted_log import CompactedLog
from penstock.log.log import FlushTicket
from penstock.log.streaming import Stream
from penstock.partition.aborted import Aborted
from penstock.partition.admission import plain_rules
from penstock.partition.guards import Guard, Guards
from penstock.partition.leader import Effect, Leader, LogFailed
from penstock.partition.producers import Duplicate, ProducerStates
from penstock.partition.transactions import Ending
from penstock.settings import TopicConfig
from penstock.vocabulary import Buffer, Instant, LeaderEpoch, Offset, TopicId
from penstock.wire.batches import TRANSACTIONAL_BIT, BatchHeader, read_header, set_max_timestamp, stamp, stamp_append_time
from penstock.wire.markers import NO_NUMBER, Marker, encode_marker
from penstock.wire.produce import SingleReply

APPEND_TIME_UNSET = -1
READ_BYTES = 1 << 20
NOT_LEADING = "this node does not lead the partition; ask for metadata again"

_REASONS = {
    ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER: "a batch before this one is missing",
    ErrorCode.INVALID_PRODUCER_EPOCH: "a newer producer has taken over this producer id",
    ErrorCode.INVALID_TXN_STATE: "the batch is not part of the producer's open transaction",
    ErrorCode.TRANSACTION_COORDINATOR_FENCED: "a newer coordinator has taken over its transactions",
}


class ProduceToken(Protocol):
    """A producer that waits to hear of its batches."""

    def made_durable(self) -> None: ...

    def is_over(self, end_offset: Offset) -> bool:
        """Whether nobody waits any more for what is durable with this offset: the leader may forget the token."""
        ...

    def refused(self, code: ErrorCode, reason: str) -> None: ...


class Watcher(Protocol):
    """Somebody who wants to know when more of a partition can be read, and how much, or when it is gone."""

    def advanced(self, partition: "Partition", grown_bytes: int) -> None: ...


class Follower(Protocol):
    """A replica on another node that wants to know when something was appended."""

    def appended(self, partition: "Partition") -> None: ...


class Flush(NamedTuple):
    """A flush of a partition's log, under way."""

    ticket: FlushTicket
    appended_bytes: int  # What the log had taken in all when it began.


class Appended(NamedTuple):
    base_offset: Offset
    end_offset: Offset
    append_time_ms: int  # -1 where the producer's own timestamps hold
    is_duplicate: bool


def _is_over(token: ProduceToken, end_offset: Offset) -> bool:
    return token.is_over(end_offset)


class Partition:
    __slots__ = (
        "_config", "_decided_below", "_flushed_bytes", "_guards", "_readable_bytes", "_watermark", "end_is_known", "epoch",
        "followers", "index", "is_being_mended", "is_beyond_mending", "is_damaged", "is_deleted", "is_internal", "leader", "log",
        "plain_rules", "producers", "single_replies", "topic", "topic_id", "watchers",
    )  # fmt: skip

    def __init__(
        self,
        topic: str,
        topic_id: TopicId,
        index: int,
        *,
        log: CompactedLog,
        producers: ProducerStates,
        config: TopicConfig,
        is_internal: bool = False,
    ) -> None:
        self.topic = topic
        self.topic_id = topic_id
        self.index = index
        self.log = log
        self.leader: Leader[ProduceToken] | None = None  # None: another node leads, or nobody.
        self.epoch = LeaderEpoch(-1)  # In which somebody leads, as far as this node knows.
        self._watermark = Offset(log.start_offset)  # What is known of the leader's, while another leads. Never goes back.
        self.producers = producers
        self._guards = Guards(producers.producers_max)
        self._decided_below = self._found_decided()  # When `forget_old` last looked.
        producers.aborted.forget_below(self._decided_below)  # Compaction may have come further than what was remembered of them.
        self.is_internal = is_internal  # The cluster's own: clients may read it, but not write.
        self.config = config
        self.is_deleted = False
        # A log that could not be opened whole may go on past what is readable. Nobody may be told that it ends there: a reader would
        # take the rest for lost, and begin again somewhere else.
        self.end_is_known = log.failure is None
        self.is_being_mended = False  # Its log has a damaged place, which is being replaced from another replica.
        self.is_beyond_mending = False  # Its log has a damaged place, and no other replica is in sync: readers need not come again.
        self.is_damaged = log.failure is not None  # It lacks records that it had, or has bytes that changed: nobody may count on it.
        self._flushed_bytes = self._readable_bytes = log.appended_bytes
        self.single_replies: dict[int, SingleReply] = {}  # By version: laid out once, since only offsets differ.
        self.watchers: dict[Watcher, None] = {}  # Ordered: who came first is told first.
        self.followers: dict[Follower, None] = {}  # Replicas that want what is appended, before it is committed.

    def __str__(self) -> str:
        return f"{self.topic}-{self.index}"

    @property
    def config(self) -> TopicConfig:
        return self._config

    @config.setter
    def config(self, config: TopicConfig) -> None:
        self._config = config
        self._set_plain_rules()

    @property
    def high_watermark(self) -> Offset:
        """Everything below is on the disk of each in-sync replica, as far as this node knows."""
        return self.leader.high_watermark if self.leader is not None else self._watermark

    @property
    def last_stable_offset(self) -> Offset:
        """Below this no transaction is open, or has ended with a marker that is not below the watermark."""
        watermark = self.high_watermark
        unstable = self.producers.transactions.first_unstable(watermark)
        if unstable is None or unstable >= watermark:
            return watermark
        return max(Offset(unstable), self.log.start_offset)  # Retention does not wait for transactions.

    @property
    def durable_end(self) -> Offset:
        """Everything below is here as durable as the topic promises. What is readable of a log that opened damaged was on the disk."""
        needs_flush = self._config.acknowledges_after_flush and self.end_is_known
        return self.log.flushed_end if needs_flush else self.log.end_offset

    def given_up(self) -> None:
        """A producer that waited here for its batches to be durable waits no longer."""
        if self.leader is not None:
            self.leader.given_up(_is_over)

    # Roles

    def lead(self, leader: Leader[ProduceToken]) -> None:
        self.leader, self.epoch = leader, leader.epoch
        self._guards.void_all()
        self._set_plain_rules()

    def follow(self, epoch: LeaderEpoch) -> None:
        """Another node leads in this epoch, or nobody. Who waited for an answer here must be told before."""
        self._watermark, self.leader, self.epoch = self.high_watermark, None, epoch
        self._guards.void_all()
        self._set_plain_rules()

    def learn_watermark(self, offset: Offset) -> bool:
        """Of the leader. Whether readers of this replica may see more now."""
        known = min(offset, self.log.end_offset)
        if self.leader is not None or known <= self._watermark:
            return False
        self._watermark = known
        return True

    def log_was_cut(self) -> None:
        """Where acknowledged records were lost the watermark may stand past the end: what comes there next is not committed yet."""
        self._watermark = min(self._watermark, self.log.end_offset)
        self._decided_below = Offset(0)

    def _set_plain_rules(self) -> None:
        """The straight way of a produce request is for those who lead."""
        self.plain_rules = None if self.is_internal or self.leader is None else plain_rules(self._config)

    def check_leader_epoch(self, claimed: int) -> ErrorCode:
        """A client that knows an older epoch must ask for metadata again; one that knows a newer one came too early (KIP-320)."""
        if claimed in (-1, self.epoch):
            return ErrorCode.NONE
        return ErrorCode.FENCED_LEADER_EPOCH if claimed < self.epoch else ErrorCode.UNKNOWN_LEADER_EPOCH

    def stamp_time(self, batch: bytearray | memoryview, header: BatchHeader, max_timestamp: int, wall_ms: int) -> None:
        """Before `append`: gives the batch the time that the topic wants it to have."""
        if self.config.message_timestamp_type == "LogAppendTime":
            stamp_append_time(batch, wall_ms)
        elif header.max_timestamp != max_timestamp:
            set_max_timestamp(batch, max_timestamp)  # The time index believes the header, so a header that lies is put right.

    def append(self, batch: bytearray | memoryview, wall_ms: int, guard: Guard | None = None) -> Appended:
        """Appends one admitted batch, or says where it stands already. Raises Refusal, DiskFailed or DiskFull with nothing appended."""
        log = self.log
        base_offset = log.end_offset
        if self.leader is None:
            raise Refusal(ErrorCode.NOT_LEADER_OR_FOLLOWER, NOT_LEADING)
        stamp(batch, base_offset, self.leader.epoch)
        header = read_header(batch)
        if header.producer_id >= 0:
            producers = self.producers
            verdict = producers.decide(header, is_first_ever=base_offset == 0)
            is_transactional = header.attributes & TRANSACTIONAL_BIT
            if is_transactional or producers.transactions.by_producer:
                verdict = self._decide_transactional(header, verdict, guard)
            if verdict is not ErrorCode.NONE:
                if isinstance(verdict, ErrorCode):
                    raise _refusal(verdict, header.producer_id)
                end_offset = Offset(verdict.base_offset + header.record_count)
                return Appended(verdict.base_offset, end_offset, self._append_time(verdict.timestamp), True)
        log.append(batch, header)
        if header.producer_id >= 0:
            if is_transactional:
                self._begin_transaction(header, guard)
            producers.replay(header, wall_ms)
        return Appended(base_offset, log.end_offset, self._append_time(wall_ms), False)

    def replicate(self, batch: Buffer, header: BatchHeader, wall_ms: int) -> None:
        """Appends one batch of the leader's, as it came. Raises DiskFailed or DiskFull with nothing appended."""
        self.log.append(batch, header)
        self.producers.replay_stored(header, batch, wall_ms=wall_ms)
        if header.is_control:
            self.producers.transactions.settle(self.high_watermark)

    # Transactions

    def needs_verification(self, header: BatchHeader) -> bool:
        """Whether the coordinator must be asked before this transactional batch is appended: no open transaction of its producer and
        epoch is known here. A batch that is here already needs none, and is answered by `append`."""
        return not self.producers.is_open(header) and not isinstance(self.producers.decide(header, is_first_ever=False), Duplicate)

    def guard(self, header: BatchHeader, *, is_v2: bool) -> Guard:
        """To be held from before the coordinator is asked until the batch is appended. Refuses at once who would be refused anyway."""
        if self.leader is None:
            raise Refusal(ErrorCode.NOT_LEADER_OR_FOLLOWER, NOT_LEADING)
        if header.producer_epoch < self.producers.epoch_of(header.producer_id):
            raise _refusal(ErrorCode.INVALID_PRODUCER_EPOCH, header.producer_id)
        return self._guards.hold(header, is_v2=is_v2)

    def append_marker(
        self, producer_id: int, epoch: int, *, is_commit: bool, coordinator_epoch: int, number: int, wall_ms: int, is_v2: bool
    ) -> Appended | None:
        """Ends the producer's transaction. None: it ended here so long ago that a later one is known; that is as good.

        The marker is written even where the producer has no open transaction: its epoch then fences whoever still writes with an older
        one. One that comes again is told where it stands: its coordinator must not hear of it before it is as durable as it must be.
        """
        if self.leader is None:
            raise Refusal(ErrorCode.NOT_LEADER_OR_FOLLOWER, NOT_LEADING)
        marker = Marker(is_commit, coordinator_epoch, number)
        verdict = self.producers.decide_marker(producer_id, epoch, marker, is_v2=is_v2)
        if verdict is None:
            return None
        if isinstance(verdict, Ending):
            return Appended(Offset(verdict.marker_offset), Offset(verdict.marker_offset + 1), self._append_time(wall_ms), True)
        if verdict is not ErrorCode.NONE:
            raise _refusal(verdict, producer_id)
        batch = encode_marker(marker, producer_id=producer_id, producer_epoch=epoch, timestamp_ms=wall_ms)
        if self.config.message_timestamp_type == "LogAppendTime":
            stamp_append_time(batch, wall_ms)
        base_offset = self.log.end_offset
        stamp(batch, base_offset, self.leader.epoch)
        header = read_header(batch)
        self.log.append(batch, header)
        self.producers.replay_marker(header, marker, wall_ms)
        self.producers.transactions.settle(self.high_watermark)
        self._guards.void(producer_id)
        return Appended(base_offset, self.log.end_offset, self._append_time(wall_ms), False)

    def aborted(self, from_offset: int, end_offset: int) -> list[Aborted]:
        """(producer, first offset) of the aborted transactions that have records in this range of offsets."""
        return self.producers.aborted.between(from_offset, end_offset)

    def has_aborted_after(self, offset: int) -> bool:
        """Whether any transaction that was aborted ended at or after the offset; far cheaper than asking which."""
        return self.producers.aborted.has_any_after(offset)

    def _decide_transactional(self, header: BatchHeader, verdict: ErrorCode | Duplicate, guard: Guard | None) -> ErrorCode | Duplicate:
        """A batch that is here already, or of an old epoch, is answered so whatever its transaction is (KAFKA-19690)."""
        if not isinstance(verdict, ErrorCode) or verdict is ErrorCode.INVALID_PRODUCER_EPOCH:
            return verdict
        objection = self.producers.decide_transactional(header, guard)
        return verdict if objection is ErrorCode.NONE else objection

    def _begin_transaction(self, header: BatchHeader, guard: Guard | None) -> None:
        """Or go on with it: then nobody holds a guard any more."""
        self.producers.transactions.begin(header.producer_id, header.base_offset)
        self._guards.void(header.producer_id)
        if guard is not None and guard.number != NO_NUMBER:
            self.producers.transactions.learn_number(header.producer_id, guard.number)

    async def remember_producers(self, wall_ms: int) -> None:
        """From the log alone, after some of it was cut off: what was cut must not count as seen. Until it has ended, what was known before
        stands, and the log vouches for none of it (`owner_is_void`)."""
        fresh = self.producers.empty_copy()
        offset = self.log.start_offset
        while offset < self.log.end_offset:
            content = await self.log.read_later(offset, bytes_max=READ_BYTES, end_offset=self.log.end_offset)
            at = 0
            while at < len(content):
                header = read_header(content, at)
                batch = content[at : at + header.size] if header.is_control else b""
                fresh.replay_stored(header, batch, wall_ms=wall_ms)
                offset, at = Offset(header.end_offset), at + header.size
            fresh.transactions.settle(self.high_watermark)
            if not content:
                break  # Compaction took what was left.
        self.producers.forget_all()
        self.producers = fresh
        self.log.owner_is_rebuilt()

    def forget_old(self, silent_since_ms: int) -> None:
        """By the clock: producers that are silent, and aborted transactions of which retention or compaction has left nothing. Those go a
        round later: somebody may still have bytes in hand from before, and ask which of them to pass over."""
        self.producers.forget_silent_since(silent_since_ms)
        self.producers.aborted.forget_below(self._decided_below)
        self._decided_below = self._found_decided()

    def _found_decided(self) -> Offset:
        """Below this no record of an aborted transaction is left."""
        return max(self.log.start_offset, Offset(self.log.clean_end))

    def begin_flush(self) -> Flush | None:
        """What must be flushed; None when nothing must be."""
        log = self.log
        ticket = log.begin_flush()
        return None if ticket is None else Flush(ticket, log.appended_bytes)

    def end_flush(self, flush: Flush, failures: SyncFailures) -> None:
        self.log.end_flush(flush.ticket, failures)
        self._flushed_bytes = flush.appended_bytes

    def take_growth(self) -> int:
        """How many bytes have come below the watermark since this was last asked."""
        log = self.log
        readable_bytes = log.appended_bytes if self.high_watermark == log.end_offset else self._flushed_bytes
        grown_bytes, self._readable_bytes = readable_bytes - self._readable_bytes, readable_bytes
        return grown_bytes if grown_bytes > 0 else 0  # A follower's log may have been cut.

    def reached(self, end_offset: Offset, now: Instant) -> list[Effect[ProduceToken]]:
        """This node, which leads, has everything below the offset as durable as the topic promises."""
        return [] if self.leader is None else self.leader.reach_here(end_offset)

    def failed(self, reason: str, now: Instant) -> list[Effect[ProduceToken]]:
        return [] if self.leader is None else self.leader.step(LogFailed(reason), now)

    def read(self, offset: Offset, bytes_max: int, *, reads_committed: bool = False) -> Buffer | None:
        """Whole batches below the watermark, or the last stable offset; None where that would wait for the disk."""
        return self.log.read(offset, bytes_max=bytes_max, end_offset=self.readable_end(reads_committed=reads_committed))

    def stream(self, offset: Offset, bytes_max: int, *, reads_committed: bool = False) -> Stream | None:
        """Much at once, as far as `read` goes, to be read while it is sent; None where `read` must do."""
        return self.log.stream(offset, bytes_max=bytes_max, end_offset=self.readable_end(reads_committed=reads_committed))

    async def read_later(self, offset: Offset, bytes_max: int, *, reads_committed: bool = False) -> Buffer:
        return await self.log.read_later(offset, bytes_max=bytes_max, end_offset=self.readable_end(reads_committed=reads_committed))

    def readable_end(self, *, reads_committed: bool) -> Offset:
        """How far such a reader may see."""
        return self.last_stable_offset if reads_committed else self.high_watermark

    def _append_time(self, wall_ms: int) -> int:
        return wall_ms if self._config.message_timestamp_type == "LogAppendTime" else APPEND_TIME_UNSET


def _refusal(code: ErrorCode, producer_id: int) -> Refusal:
    return Refusal(code, f"producer {producer_id}: {_REASONS[code]}")
