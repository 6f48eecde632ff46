"""Produce, versions 3 to 13 (advertised from 0, see api_versions; KIP-98, KIP-467 record errors, KIP-516 topic ids).

Every batch of the request is examined before the first one is appended. The reply waits until each is as durable as acks and the
topic's `flush` promise; acks=0 gets none, and on an error the connection is closed, which is all such a client can notice.
Batches that unpack to a lot are examined away from the loop; the connection's next request waits for that, so order is kept.
Gaps: transactions; leader hints (KIP-951) are not needed while one node leads everything.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from penstock.broker.calls import Call
from penstock.broker.connection import Reply
from penstock.errors import DiskFailed, DiskFull, ErrorCode, Refusal
from penstock.partition.admission import InvalidRecord, examine_header, examine_large, examine_records, payload_rules
from penstock.partition.partition import Appended, Partition
from penstock.vocabulary import Instant
from penstock.wire.batches import BatchHeader
from penstock.wire.produce import PartitionRecords, Topic, read_produce_request, write_produce_response
from penstock.wire.records import RecordsVerdict

if TYPE_CHECKING:
    from penstock.broker.node import Node

ACKS_ALL, ACKS_LEADER, ACKS_NONE = -1, 1, 0

# index, error code, base offset, append time, log start, record errors, message, leader hint
Row = tuple[int, int, int, int, int, Sequence[tuple[int, str | None]], str | None, tuple[int, int] | None]
Admitted = tuple[Partition, memoryview, BatchHeader, RecordsVerdict]
_TOPIC_IDS_FROM = 13


class ParkedProduce:
    """A produce request whose batches are appended but not all durable yet."""

    __slots__ = ("correlation_id", "deadline", "missing", "node", "reply", "topics", "version")

    def __init__(self, node: "Node", call: Call, reply: Reply, timeout_ms: int) -> None:
        self.node = node
        self.reply = reply
        self.version = call.version
        self.correlation_id = call.correlation_id
        self.topics: list[tuple[Topic, list[Row]]] = []
        self.missing = 1  # Rows that are not settled, and one for the request itself until it is all appended.
        self.deadline = Instant(node.env.now() + max(0, timeout_ms) / 1000)

    def one_settled(self) -> None:
        self.missing -= 1
        if self.missing == 0:
            self.answer()

    def answer(self) -> None:
        self.node.parked_produces.pop(self, None)
        if self.reply.pieces is None:
            self.reply.send([write_produce_response(self.version, self.correlation_id, self.topics)])

    def time_out(self) -> None:
        """What isn't durable by now may still become so: the producer must ask again to know."""
        for _, rows in self.topics:
            rows[:] = [row if row[1] else _failure(row[0], ErrorCode.REQUEST_TIMED_OUT, "not durable within the request's time-out") for row in rows]
        self.answer()

    def cancel(self) -> None:
        self.node.parked_produces.pop(self, None)


class _Wait:
    """One row of a parked request: the token that its partition's leader keeps."""

    __slots__ = ("_at", "_parked", "_rows")

    def __init__(self, parked: ParkedProduce, rows: list[Row], at: int) -> None:
        self._parked = parked
        self._rows = rows
        self._at = at

    def made_durable(self) -> None:
        self._parked.one_settled()

    def refused(self, code: ErrorCode, reason: str) -> None:
        self._rows[self._at] = _failure(self._rows[self._at][0], code, reason)
        self._parked.one_settled()


def produce(node: "Node", call: Call) -> None:
    request = read_produce_request(call.frame, call.body_at, call.version)
    wall_ms = node.env.wall_ms()
    admitted: list[Admitted | Row] = []
    for topic, partitions in request.topics:
        for index, records in partitions:
            verdict = _admit(node, call.version, request.transactional_id, request.acks, topic, index, records, wall_ms)
            if verdict is None:
                call.connection.requests_in_turn += 1
                reply = call.connection.new_reply() if request.acks else None
                node.spawn(_produce_later(node, call._replace(frame=bytearray(call.frame)), reply, wall_ms))
                return
            admitted.append(verdict)
    reply = call.connection.new_reply() if request.acks else None
    _append_all(node, call, reply, request.acks, request.timeout_ms, request.topics, admitted, wall_ms)


async def _produce_later(node: "Node", call: Call, reply: Reply | None, wall_ms: int) -> None:
    """The same for a request with a batch that unpacks to a lot, over a copy of its frame."""
    try:
        request = read_produce_request(call.frame, call.body_at, call.version)
        admitted: list[Admitted | Row] = []
        for topic, partitions in request.topics:
            for index, records in partitions:
                verdict = _admit(node, call.version, request.transactional_id, request.acks, topic, index, records, wall_ms)
                admitted.append(verdict or await _admit_large(node, call.version, topic, index, records, wall_ms))
        _append_all(node, call, reply, request.acks, request.timeout_ms, request.topics, admitted, wall_ms)
    finally:
        call.connection.requests_in_turn -= 1
        call.connection.go_on()


def _admit(
    node: "Node", version: int, transactional_id: str | None, acks: int, topic: Topic, index: int, records: memoryview | None, wall_ms: int
) -> Admitted | Row | None:
    """The batch and what was learnt of it, or the row that refuses it; None: it must be unpacked off the loop."""
    partition = _find(node, topic, index)
    if partition is None:
        return _failure(index, ErrorCode.UNKNOWN_TOPIC_ID if isinstance(topic, bytes) else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "there is no such partition")
    try:
        _check_request(node, partition, transactional_id, acks)
        batch = records if records is not None else memoryview(b"")
        header = examine_header(batch, partition.config, version)
        verdict = examine_records(batch, header, payload_rules(partition.config, wall_ms))
    except Refusal as refusal:
        return _refused(node, index, refusal)
    return None if verdict is None else (partition, batch, header, verdict)


async def _admit_large(node: "Node", version: int, topic: Topic, index: int, records: memoryview | None, wall_ms: int) -> Admitted | Row:
    partition = _find(node, topic, index)
    if partition is None or records is None:
        return _failure(index, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "there is no such partition")
    header = examine_header(records, partition.config, version)
    rules = payload_rules(partition.config, wall_ms)
    async with node.unpacking:  # One at a time: each may take up to the bound.
        verdict = await node.env.offload(examine_large, bytes(records), header, rules, node.settings.decompressed_bytes_max)
    if isinstance(verdict, Refusal):
        return _refused(node, index, verdict)
    return partition, records, header, verdict


def _find(node: "Node", topic: Topic, index: int) -> Partition | None:
    partitions = node.partitions.by_name.get(topic) if isinstance(topic, str) else node.partitions.by_id.get(topic)  # type: ignore[call-overload]
    return partitions[index] if partitions is not None and 0 <= index < len(partitions) else None


def _check_request(node: "Node", partition: Partition, transactional_id: str | None, acks: int) -> None:
    if acks not in (ACKS_ALL, ACKS_LEADER, ACKS_NONE):
        raise Refusal(ErrorCode.INVALID_REQUIRED_ACKS, f"acks is -1 (all), 1 or 0, not {acks}")
    if transactional_id is not None:
        raise Refusal(ErrorCode.INVALID_TXN_STATE, "this node does not serve transactions")
    if partition.log.failure is not None:
        raise Refusal(ErrorCode.KAFKA_STORAGE_ERROR, f"the log is offline for writes: {partition.log.failure}")
    if node.disk_is_low:
        raise Refusal(ErrorCode.KAFKA_STORAGE_ERROR, "the disk has less room than disk.free.bytes.min")
    if acks == ACKS_ALL and len(partition.leader.in_sync) < partition.config.min_insync_replicas:
        needed = partition.config.min_insync_replicas
        raise Refusal(ErrorCode.NOT_ENOUGH_REPLICAS, f"{len(partition.leader.in_sync)} replicas in sync, min.insync.replicas is {needed}")


def _append_all(
    node: "Node",
    call: Call,
    reply: Reply | None,
    acks: int,
    timeout_ms: int,
    topics: list[tuple[Topic, list[PartitionRecords]]],
    admitted: list[Admitted | Row],
    wall_ms: int,
) -> None:
    parked = ParkedProduce(node, call, reply, timeout_ms) if reply is not None else None
    refusals = 0
    verdicts = iter(admitted)
    for topic, partitions in topics:
        rows: list[Row] = []
        if parked is not None:
            parked.topics.append((topic, rows))
        for index, _ in partitions:
            verdict = next(verdicts)
            row = _append(node, verdict, index, rows, parked, acks, wall_ms) if isinstance(verdict[0], Partition) else verdict  # type: ignore[arg-type]
            refusals += row[1] != 0
            rows.append(row)  # type: ignore[arg-type]
    if parked is None:
        if refusals:
            call.connection.close()
        return
    parked.one_settled()
    if parked.missing:
        parked.reply.parked = parked
        node.parked_produces[parked] = None


def _append(
    node: "Node", admitted: Admitted, index: int, rows: list[Row], parked: ParkedProduce | None, acks: int, wall_ms: int
) -> Row:
    partition, batch, header, verdict = admitted
    if partition.is_deleted:
        return _failure(index, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "the topic was deleted")
    try:
        appended = partition.append(batch, header, verdict.max_timestamp, wall_ms)
    except Refusal as refusal:
        return _refused(node, index, refusal)
    except DiskFull as full:
        node.disk_is_low = True
        return _refused(node, index, Refusal(ErrorCode.KAFKA_STORAGE_ERROR, f"the disk is full: {full}"))
    except DiskFailed as failed:
        node.settle(partition)
        return _refused(node, index, Refusal(ErrorCode.KAFKA_STORAGE_ERROR, f"the log went offline for writes: {failed}"))
    if parked is not None and partition.leader.park(appended.end_offset, _Wait(parked, rows, len(rows)), needs_all=acks == ACKS_ALL):
        parked.missing += 1
    _count_and_flush(node, partition, appended, header, len(batch))
    return (index, 0, appended.base_offset, appended.append_time_ms, partition.log.start_offset, (), None, None)


def _count_and_flush(node: "Node", partition: Partition, appended: Appended, header: BatchHeader, size: int) -> None:
    metrics = node.metrics
    if appended.is_duplicate:
        metrics.duplicates_in += 1
        return
    metrics.batches_in += 1
    metrics.records_in += header.record_count
    metrics.bytes_in += size
    node.appended(partition)


def _refused(node: "Node", index: int, refusal: Refusal) -> Row:
    node.metrics.batches_refused += 1
    errors = ((refusal.index, refusal.reason),) if isinstance(refusal, InvalidRecord) else ()
    return (index, refusal.code, -1, -1, -1, errors, refusal.reason, None)


def _failure(index: int, code: ErrorCode, reason: str) -> Row:
    return (index, code, -1, -1, -1, (), reason, None)
