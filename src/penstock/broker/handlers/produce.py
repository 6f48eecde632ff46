"""Produce, versions 3 to 13 (advertised from 0, see api_versions; KIP-98, KIP-467 record errors, KIP-516 topic ids).

Every batch of the request is examined before the first one is appended. The reply waits until each is as durable as acks and the
topic's `flush` promise; acks=0 gets none, and on an error the connection is closed, which is all such a client can notice.
Batches that unpack to a lot are examined away from the loop; the connection's next request waits for that, so order is kept.
The first batch of a transaction waits for its coordinator's word that the partition is part of it (KIP-890; from version 12 that makes it
so).
Gaps: leader hints (KIP-951).
The usual request, one plain batch for one partition, takes a straight way through (single_produce.py) and comes here only to be refused.
"""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, TypeGuard

from penstock.broker.calls import Call
from penstock.broker.connection import Reply
from penstock.broker.handlers.verifying import is_v2, spoken, verify
from penstock.broker.patience import Patience
from penstock.errors import DiskFailed, DiskFull, ErrorCode, Refusal
from penstock.partition.admission import InvalidRecord, examine_header, examine_large, examine_records, payload_rules
from penstock.partition.guards import Guard
from penstock.partition.partition import NOT_LEADING, Partition
from penstock.vocabulary import Instant, Offset, TopicId
from penstock.wire.batches import BatchHeader
from penstock.wire.produce import Topic, read_produce_request, write_produce_response
from penstock.wire.records import RecordsVerdict

if TYPE_CHECKING:
    from penstock.broker.node import Node

ACKS_ALL, ACKS_LEADER, ACKS_NONE = -1, 1, 0

# index, error code, base offset, append time, log start, record errors, message, leader hint
Row = tuple[int, int, int, int, int, Sequence[tuple[int, str | None]], str | None, tuple[int, int] | None]
Admitted = tuple[Partition, memoryview, BatchHeader, RecordsVerdict]


def produce(node: "Node", call: Call) -> None:
    request = Produce(node, call)
    if request.examine() and not request.needs_verification():
        request.append_all()
        return
    assert isinstance(call.frame, memoryview)
    call.connection.requests_in_turn += 1
    frame, held_bytes = call.connection.keep_frame(call.frame)
    node.request_room.hold(held_bytes)
    node.spawn(_produce_large(node, call._replace(frame=frame), request, held_bytes))


async def _produce_large(node: "Node", call: Call, first_look: "Produce", held_bytes: int) -> None:
    """The same away from the connection's buffer, for a request with a batch that unpacks to a lot, or that begins a transaction."""
    try:
        request = Produce(node, call, reply_of=first_look)
        await request.examine_later()
        await request.verify()
        await request.append_later()
    except Exception:
        call.connection.close()  # There will be no answer; the node's top reports what went wrong.
        raise
    finally:
        node.request_room.let_go(held_bytes)
        call.connection.requests_in_turn -= 1
        call.connection.go_on()


class Produce:
    """One produce request, until every batch of it is durable or refused."""

    __slots__ = (
        "_admitted", "_connection", "_correlation_id", "_guards", "_missing", "_request", "_version", "_waits_in", "_wall_ms", "deadline",
        "is_over", "node", "reply", "rows",
    )  # fmt: skip

    def __init__(self, node: "Node", call: Call, reply_of: "Produce | None" = None) -> None:
        self.node = node
        self._connection = call.connection
        self._version = call.version
        self._correlation_id = call.correlation_id
        self._request = read_produce_request(call.frame, call.body_at, call.version)
        self._wall_ms = node.env.wall_ms()
        self._admitted: list[Admitted | Row] = []
        self._guards: dict[Partition, Guard] = {}  # Of partitions whose transaction was verified for this request.
        self._missing = 1  # Batches that are not settled, and one for the request itself until all of it is appended.
        self.rows: list[tuple[Topic, list[Row]]] = []
        self._waits_in: list[Partition] = []  # One for each batch whose token a leader keeps.
        self.is_over = False  # It was answered, or its client is gone.
        self.deadline = Instant(node.env.now() + max(0, self._request.timeout_ms) / 1000)
        self.reply: Reply | None
        if reply_of is not None:
            self.reply = reply_of.reply
        else:
            self.reply = call.connection.new_reply() if self._request.acks != ACKS_NONE else None

    def examine(self) -> bool:
        """Looks at every batch. False: one of them must be unpacked off the loop, or there are too many to look at in one go."""
        patience = Patience(self.node.env)
        for topic, partitions in self._request.topics:
            for index, records in partitions:
                verdict = None if patience.is_over() else self._admit(topic, index, records)
                if verdict is None:
                    return False
                self._admitted.append(verdict)
        return True

    async def examine_later(self) -> None:
        patience = Patience(self.node.env)
        for topic, partitions in self._request.topics:
            for index, records in partitions:
                await patience.pause_if_over()
                self._admitted.append(self._admit(topic, index, records) or await self._admit_large(topic, index, records))

    def needs_verification(self) -> bool:
        if self._request.transactional_id is None:
            return False
        return any(_begins_transaction(each) for each in self._admitted)

    async def verify(self) -> None:
        """Hears of the transaction's coordinator where this request begins it. What it does not vouch for is refused."""
        beginning = {at: each for at, each in enumerate(self._admitted) if _begins_transaction(each)}
        if self._request.transactional_id is None or not beginning:
            return
        batches = {at: (partition, header) for at, (partition, _, header, _) in beginning.items()}
        verified = await verify(self.node, self._request.transactional_id, batches, is_v2=is_v2(self._version))
        for at, outcome in verified.items():
            if isinstance(outcome, Refusal):
                self._admitted[at] = _refused(beginning[at][0].index, Refusal(spoken(outcome.code, self._version), outcome.reason))
            else:
                self._guards[beginning[at][0]] = outcome

    def append_all(self) -> None:
        """Appends what was admitted and answers when it is durable. The frame is not needed afterwards."""
        for _ in self._append_each():
            pass
        self._answer_when_durable()

    async def append_later(self) -> None:
        patience = Patience(self.node.env)
        for _ in self._append_each():
            await patience.pause_if_over()
        self._answer_when_durable()

    def _append_each(self) -> Iterator[None]:
        verdicts = iter(self._admitted)
        for topic, partitions in self._request.topics:
            rows: list[Row] = []
            self.rows.append((topic, rows))
            for index, _ in partitions:
                verdict = next(verdicts)
                if isinstance(verdict[0], Partition):
                    self._append(index, verdict, rows)
                else:
                    rows.append(verdict)
                yield

    def _answer_when_durable(self) -> None:
        self._admitted.clear()
        refused = sum(row[1] not in (ErrorCode.NONE, ErrorCode.REQUEST_TIMED_OUT) for _, rows in self.rows for row in rows)
        self.node.metrics.batches_refused += refused
        if self.reply is None:
            if refused:
                self._connection.close()
            return
        self.one_settled()
        if self._missing:
            self.reply.parked = self
            self.node.parked_produces[self] = None

    def one_settled(self) -> None:
        self._missing -= 1
        if self._missing == 0:
            self._answer()

    def time_out(self) -> None:
        """What isn't durable by now may still become so: the producer must ask again to know."""
        self._answer()
        self._give_up()

    def cancel(self) -> None:
        self.node.parked_produces.pop(self, None)
        self.is_over = True
        self._give_up()

    def _give_up(self) -> None:
        for partition in self._waits_in:
            partition.given_up()

    def _answer(self) -> None:
        self.node.parked_produces.pop(self, None)
        self.is_over = True
        if self.reply is not None and self.reply.pieces is None:
            self.reply.send([write_produce_response(self._version, self._correlation_id, self.rows)])

    def _admit(self, topic: Topic, index: int, records: memoryview | None) -> Admitted | Row | None:
        """The batch and what was learnt of it, or the row that refuses it; None: it must be unpacked off the loop."""
        partition = self._find(topic, index)
        if partition is None:
            return self._unknown(topic, index)
        batch = records if records is not None else memoryview(b"")
        try:
            self._check_may_write(partition)
            names_transaction = self._request.transactional_id is not None
            header = examine_header(batch, partition.config, self._version, names_transaction=names_transaction)
            verdict = examine_records(batch, header, payload_rules(partition.config, self._wall_ms))
        except Refusal as refusal:
            return _refused(index, refusal)
        return None if verdict is None else (partition, batch, header, verdict)

    async def _admit_large(self, topic: Topic, index: int, records: memoryview | None) -> Admitted | Row:
        partition = self._find(topic, index)
        if partition is None or records is None:
            return self._unknown(topic, index)
        header = examine_header(records, partition.config, self._version, names_transaction=self._request.transactional_id is not None)
        rules = payload_rules(partition.config, self._wall_ms)
        async with self.node.unpacking:  # One at a time: each may take up to the bound.
            verdict = await self.node.env.offload(examine_large, bytes(records), header, rules, self.node.settings.decompressed_bytes_max)
        return _refused(index, verdict) if isinstance(verdict, Refusal) else (partition, records, header, verdict)

    def _find(self, topic: Topic, index: int) -> Partition | None:
        partitions = self.node.partitions
        return partitions.find(topic, index) if isinstance(topic, str) else partitions.find_by_id(TopicId(topic), index)

    def _unknown(self, topic: Topic, index: int) -> Row:
        return _failure(index, *self.node.why_not_here(topic, index))

    def _check_may_write(self, partition: Partition) -> None:
        acks = self._request.acks
        if acks not in (ACKS_ALL, ACKS_LEADER, ACKS_NONE):
            raise Refusal(ErrorCode.INVALID_REQUIRED_ACKS, f"acks is -1 (all), 1 or 0, not {acks}")
        if partition.is_internal:
            raise Refusal(ErrorCode.INVALID_TOPIC_EXCEPTION, "this topic is the cluster's own")
        if partition.leader is None:
            raise Refusal(ErrorCode.NOT_LEADER_OR_FOLLOWER, NOT_LEADING)
        if partition.log.failure is not None:
            raise Refusal(ErrorCode.KAFKA_STORAGE_ERROR, f"the log is offline for writes: {partition.log.failure}")
        if self.node.disk_is_low:
            raise Refusal(ErrorCode.KAFKA_STORAGE_ERROR, "the disk has less room than disk.free.bytes.min and disk.reserve.bytes ask for")
        if acks == ACKS_ALL and not partition.leader.is_enough:  # Of fewer replicas than asked for, all: as Kafka since 3.7.
            have, need = len(partition.leader.in_sync), partition.config.min_insync_replicas
            raise Refusal(ErrorCode.NOT_ENOUGH_REPLICAS, f"{have} replicas are in sync, min.insync.replicas is {need}")

    def _append(self, index: int, admitted: Admitted, rows: list[Row]) -> None:
        partition, batch, header, verdict = admitted
        try:
            if partition.is_deleted:
                raise Refusal(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "the topic was deleted")
            partition.stamp_time(batch, header, verdict.max_timestamp, self._wall_ms)
            appended = partition.append(batch, self._wall_ms, self._guards.get(partition))
        except Refusal as refusal:
            rows.append(_refused(index, Refusal(spoken(refusal.code, self._version), refusal.reason)))
            return
        except DiskFull as full:
            self.node.disk_was_full(full)
            rows.append(_failure(index, ErrorCode.KAFKA_STORAGE_ERROR, f"the disk is full: {full}"))
            return
        except DiskFailed as failed:
            self.node.settle(partition)
            rows.append(_failure(index, ErrorCode.KAFKA_STORAGE_ERROR, f"the log went offline for writes: {failed}"))
            return
        row = (index, 0, appended.base_offset, appended.append_time_ms, partition.log.start_offset, (), None, None)
        acks, leader = self._request.acks, partition.leader
        assert leader is not None, "only a leader appends"
        if acks and leader.park(appended.end_offset, _Wait(self, rows, len(rows), row), needs_all=acks == ACKS_ALL):
            self._missing += 1
            self._waits_in.append(partition)
            rows.append(_failure(index, ErrorCode.REQUEST_TIMED_OUT, "not durable within the request's time-out"))  # Until it is.
        else:
            rows.append(row)
        if appended.is_duplicate:
            self.node.metrics.duplicates_in += 1
        else:
            self._count(header.record_count, len(batch))
            self.node.appended(partition)

    def _count(self, records: int, size: int) -> None:
        metrics = self.node.metrics
        metrics.batches_in += 1
        metrics.records_in += records
        metrics.bytes_in += size


def _begins_transaction(admitted: Admitted | Row) -> TypeGuard[Admitted]:
    """Whether this is a batch of a transaction that is not known to be open in its partition."""
    return isinstance(admitted[0], Partition) and admitted[2].is_transactional and admitted[0].needs_verification(admitted[2])


class _Wait:
    """One batch of a request: the token that its partition's leader keeps until the batch is durable."""

    __slots__ = ("_at", "_produce", "_row", "_rows")

    def __init__(self, produce: Produce, rows: list[Row], at: int, row: Row) -> None:
        self._produce = produce
        self._rows = rows
        self._at = at
        self._row = row  # What to answer once it is durable.

    def is_over(self, end_offset: Offset) -> bool:
        return self._produce.is_over

    def made_durable(self) -> None:
        self._rows[self._at] = self._row
        self._produce.one_settled()

    def refused(self, code: ErrorCode, reason: str) -> None:
        self._rows[self._at] = _failure(self._row[0], code, reason)
        self._produce.one_settled()


def _failure(index: int, code: ErrorCode, reason: str) -> Row:
    return (index, code, -1, -1, -1, (), reason, None)


def _refused(index: int, refusal: Refusal) -> Row:
    errors = tuple(refusal.records) if isinstance(refusal, InvalidRecord) else ()
    return (index, refusal.code, -1, -1, -1, errors, refusal.reason, None)
