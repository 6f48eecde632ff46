"""Fetch, versions 4 to 18 (KIP-74 size limits, KIP-227 sessions, KIP-320 epochs, KIP-516 topic ids).

A fetch is answered at once when it has an error, enough bytes, or no time to wait; otherwise it parks until enough was appended or its
time is up. Readers see whole batches below the high watermark, checked again as they leave the disk. A partition whose bytes are not in
memory is read away from the loop. The first batch of a reply is sent however large it is, so that a reader never hangs on it.
Refused: replica fetches, which nodes make on a listener of their own. Gaps: follower fetching (KIP-392); zstd batches are sent to
readers older than version 10 as they are.
"""

import asyncio
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from penstock.broker.calls import Call
from penstock.broker.connection import Reply
from penstock.broker.fetch_sessions import FINAL_EPOCH, INITIAL_EPOCH, NO_SESSION, FetchSession, Interest
from penstock.errors import DiskFailed, ErrorCode, Refusal
from penstock.log.faults import LogDamaged, OffsetOutOfRange
from penstock.partition.partition import Partition
from penstock.vocabulary import Buffer, Instant, Offset, TopicId
from penstock.wire.fetch import FetchedRow, FetchRequest, Topic, read_fetch_request, write_fetch_response

if TYPE_CHECKING:
    from penstock.broker.node import Node

_TOPIC_IDS_FROM = 13
READ_COMMITTED = 1


def fetch(node: "Node", call: Call) -> None:
    request = read_fetch_request(call.frame, call.body_at, call.version)
    reply = call.connection.new_reply()
    try:
        session, interests = _find_session(node, call.version, request)
    except Refusal as refusal:
        reply.send(write_fetch_response(call.version, call.correlation_id, (), error_code=refusal.code))
        return
    if request.replica_id >= 0:
        reply.send(write_fetch_response(call.version, call.correlation_id, _refused_rows(interests)))
        return
    Fetch(node, call, request, reply=reply, session=session, interests=interests).begin()


def _find_session(node: "Node", version: int, request: FetchRequest) -> tuple[FetchSession | None, list[Interest] | None]:
    """The session, if there is one, and the partitions to look at; None for those that the session finds ready."""
    uses_topic_ids = version >= _TOPIC_IDS_FROM
    if request.session_epoch not in (FINAL_EPOCH, INITIAL_EPOCH):
        session = node.fetch_sessions.resume(request.session_id, request.session_epoch, uses_topic_ids=uses_topic_ids, now=node.env.now())
        session.update(request.topics, request.forgotten)
        return session, None
    if request.session_id != NO_SESSION:
        node.fetch_sessions.close(request.session_id)
    if request.session_epoch == INITIAL_EPOCH and request.topics:
        opened = node.fetch_sessions.open(uses_topic_ids=uses_topic_ids, now=node.env.now())
        if opened is not None:
            opened.update(request.topics, ())
            return opened, list(opened.interests.values())
    return None, [Interest(topic, wish) for topic, wishes in request.topics for wish in wishes]


class Collector:
    """Gathers the rows of one reply within its bounds."""

    def __init__(self, fetch: "Fetch", bytes_max: int) -> None:
        self._fetch = fetch
        self._bytes_left = bytes_max
        self.bytes_found = 0
        self.has_error = False
        self.rows: list[tuple[Interest, FetchedRow]] = []

    def look(self, interest: Interest) -> bool:
        """Looks at one partition. False: its bytes must come from the disk, use `look_later`."""
        partition = self._checked(interest)
        if partition is None:
            return True
        try:
            data = partition.read(Offset(interest.fetch_offset), self._allowance(interest))
        except (OffsetOutOfRange, DiskFailed) as failure:
            self._fail(interest, partition, failure)
            return True
        if data is None:
            return False
        self._add(interest, partition, data)
        return True

    async def look_later(self, interest: Interest) -> None:
        partition = self._checked(interest)
        if partition is None:
            return
        try:
            self._add(interest, partition, await partition.read_later(Offset(interest.fetch_offset), self._allowance(interest)))
        except (OffsetOutOfRange, DiskFailed) as failure:
            self._fail(interest, partition, failure)

    def _checked(self, interest: Interest) -> Partition | None:
        """The partition, if it has bytes for this interest; otherwise its row is written already."""
        partition = self._fetch.find(interest)
        if partition is None:
            is_by_id = isinstance(interest.topic, bytes)
            self._add_row(interest, ErrorCode.UNKNOWN_TOPIC_ID if is_by_id else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            return None
        code = partition.check_leader_epoch(interest.leader_epoch)
        log = partition.log
        if code is ErrorCode.NONE and not log.start_offset <= interest.fetch_offset <= log.end_offset:
            code = ErrorCode.OFFSET_OUT_OF_RANGE
        if not partition.end_is_known and interest.fetch_offset >= log.end_offset:
            code = ErrorCode.KAFKA_STORAGE_ERROR
        if code is not ErrorCode.NONE:
            self._add_row(interest, code, partition)
            return None
        if interest.fetch_offset >= partition.high_watermark or (self._bytes_left <= 0 and self.bytes_found):
            self._add_row(interest, ErrorCode.NONE, partition)
            return None
        return partition

    def _allowance(self, interest: Interest) -> int:
        return max(0, min(interest.bytes_max, self._bytes_left))

    def _add(self, interest: Interest, partition: Partition, data: Buffer) -> None:
        if self.bytes_found and len(data) > self._bytes_left:
            data = b""  # Only the first batch of a reply may be larger than what was asked for (KIP-74).
        self._bytes_left -= len(data)
        self.bytes_found += len(data)
        self._add_row(interest, ErrorCode.NONE, partition, data)

    def _fail(self, interest: Interest, partition: Partition, failure: Exception) -> None:
        if isinstance(failure, OffsetOutOfRange):
            code = ErrorCode.OFFSET_OUT_OF_RANGE
        else:
            code = ErrorCode.CORRUPT_MESSAGE if isinstance(failure, LogDamaged) else ErrorCode.KAFKA_STORAGE_ERROR
            self._fetch.node.report(f"cannot read {partition.topic}-{partition.index} at {interest.fetch_offset}: {failure}")
        self._add_row(interest, code, partition)

    def _add_row(self, interest: Interest, code: ErrorCode, partition: Partition | None = None, data: Buffer = b"") -> None:
        if partition is None:
            row: FetchedRow = (interest.index, code, -1, -1, -1, b"", None, -1, None, None)
        else:
            high_watermark = partition.high_watermark if partition.end_is_known else -1
            aborted = () if self._fetch.reads_committed else None
            row = (interest.index, code, high_watermark, high_watermark, partition.log.start_offset, data, aborted, -1, None, None)
        self.has_error |= code is not ErrorCode.NONE
        self.rows.append((interest, row))


class Fetch:
    """One fetch request until it is answered."""

    __slots__ = (
        "_bytes_max", "_bytes_min", "_correlation_id", "_deadline", "_found", "_interests", "_is_gone", "_reply", "_session", "_sizes",
        "_timer", "_version", "node", "reads_committed",
    )  # fmt: skip

    def __init__(
        self,
        node: "Node",
        call: Call,
        request: FetchRequest,
        *,
        reply: Reply,
        session: FetchSession | None,
        interests: list[Interest] | None,  # None: those that the session finds ready.
    ) -> None:
        self.node = node
        self._reply = reply
        self._session = session
        self._interests = interests
        self._version = call.version
        self._correlation_id = call.correlation_id
        self._bytes_min = request.bytes_min
        self._bytes_max = request.bytes_max
        self._deadline = Instant(node.env.now() + max(0, request.max_wait_ms) / 1000)
        self._timer: asyncio.TimerHandle | None = None
        self._sizes: dict[Partition, int] = {}  # While parked for more than a byte: how large each log was.
        self._found = 0
        self._is_gone = False
        self.reads_committed = request.isolation_level == READ_COMMITTED

    def begin(self) -> None:
        self._attempt(is_last=self._deadline <= self.node.env.now())

    def find(self, interest: Interest) -> Partition | None:
        partition = interest.partition
        if partition is not None and not partition.is_deleted:
            return partition
        partitions = self.node.partitions
        if isinstance(interest.topic, bytes):
            partition = partitions.find_by_id(TopicId(interest.topic), interest.index)
        else:
            partition = partitions.find(interest.topic, interest.index)
        if partition is not None:
            if self._session is not None:
                self._session.watch(interest, partition)
            else:
                interest.partition = partition
        return partition

    def advanced(self, partition: Partition) -> None:
        """More of a partition can be read. Somebody who wants more than a byte is woken only when enough has come."""
        if self._bytes_min > 1:
            self._found += partition.log.size_bytes - self._sizes.get(partition, 0)
            self._sizes[partition] = partition.log.size_bytes
            if self._found < self._bytes_min and not partition.is_deleted:
                return
        self._unpark()
        self._attempt(is_last=False)

    def cancel(self) -> None:
        self._is_gone = True
        self._unpark()

    def _attempt(self, *, is_last: bool) -> None:
        collector = Collector(self, min(self._bytes_max, self.node.settings.fetch_max_bytes, self.node.reply_room.fair_share()))
        interests = self._looked_at()
        for at, interest in enumerate(interests):
            if not collector.look(interest):
                self.node.metrics.reads_cold += 1
                self._reply.parked = self
                self.node.spawn(self._attempt_cold(collector, interests[at:], is_last=is_last))
                return
        self._conclude(collector, is_last=is_last)

    async def _attempt_cold(self, collector: Collector, interests: Sequence[Interest], *, is_last: bool) -> None:
        for interest in interests:
            if self._is_gone:
                return
            if not collector.look(interest):
                await collector.look_later(interest)
        if not self._is_gone:
            self._conclude(collector, is_last=is_last)

    def _looked_at(self) -> list[Interest]:
        if self._interests is not None:
            return self._interests
        return list(self._session.ready) if self._session is not None else []

    def _conclude(self, collector: Collector, *, is_last: bool) -> None:
        has_somebody_to_wait_for = any(True for _ in self._all_interests())
        is_enough = collector.has_error or collector.bytes_found >= self._bytes_min
        if is_last or is_enough or not has_somebody_to_wait_for or self._deadline <= self.node.env.now():
            self._answer(collector)
        else:
            self._park(collector)

    def _park(self, collector: Collector) -> None:
        self._reply.parked = self
        self._found = collector.bytes_found
        self._timer = asyncio.get_running_loop().call_at(self._deadline, self._time_is_up)
        if self._bytes_min > 1:
            partitions = [interest.partition for interest in self._all_interests() if interest.partition is not None]
            self._sizes = {partition: partition.log.size_bytes for partition in partitions}
        if self._session is not None:
            self._session.parked = self
            return
        for interest in self._all_interests():
            if interest.partition is not None:
                interest.partition.watchers[self] = None

    def _unpark(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._session is not None:
            if self._session.parked is self:
                self._session.parked = None
            return
        for interest in self._all_interests():
            if interest.partition is not None:
                interest.partition.watchers.pop(self, None)

    def _time_is_up(self) -> None:
        self._unpark()
        self._attempt(is_last=True)

    def _all_interests(self) -> Iterable[Interest]:
        if self._session is not None:
            return self._session.interests.values()
        return self._interests or ()

    def _answer(self, collector: Collector) -> None:
        is_incremental = self._interests is None
        topics: dict[Topic, list[FetchedRow]] = {}
        for interest, row in collector.rows:
            if self._session is not None:
                tells_something = _note_sent(self._session, interest, row)
                if is_incremental and not tells_something:
                    continue
            topics.setdefault(interest.topic, []).append(row)
        self.node.metrics.bytes_out += collector.bytes_found
        session_id = NO_SESSION if self._session is None else self._session.session_id
        pieces = write_fetch_response(self._version, self._correlation_id, list(topics.items()), session_id=session_id)
        self._reply.send(pieces, collector.bytes_found)


def _note_sent(session: FetchSession, interest: Interest, row: FetchedRow) -> bool:
    """Remembers what the client is told; whether that is anything new. A partition with nothing left leaves the ready ones."""
    _, code, high_watermark, _, log_start, records, *_ = row
    tells_something = bool(code or records or high_watermark != interest.sent_high_watermark or log_start != interest.sent_log_start)
    interest.sent_high_watermark, interest.sent_log_start = high_watermark, log_start
    session.ready.pop(interest, None)
    if code or high_watermark < 0 or interest.fetch_offset < high_watermark:
        session.ready[interest] = None  # Behind the others, so that each gets its turn.
    return tells_something


def _refused_rows(interests: list[Interest] | None) -> list[tuple[Topic, list[FetchedRow]]]:
    topics: dict[Topic, list[FetchedRow]] = {}
    for interest in interests or ():
        row: FetchedRow = (interest.index, ErrorCode.CLUSTER_AUTHORIZATION_FAILED, -1, -1, -1, b"", None, -1, None, None)
        topics.setdefault(interest.topic, []).append(row)
    return list(topics.items())
