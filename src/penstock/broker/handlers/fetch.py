"""Fetch, versions 4 to 18 (KIP-74 size limits, KIP-227 sessions, KIP-320 epochs, KIP-392 reading from followers, KIP-516 topic ids).

A fetch is answered at once when it has an error, enough bytes, a full reply, or no time to wait; otherwise it parks until enough was
appended or its time is up. Readers see whole batches below the high watermark, checked again as they leave the disk; readers of committed
records below the last stable offset, with the transactions that they must pass over. A partition whose bytes are not in memory is read away
from the loop.
Refused: replica fetches, which nodes make on a listener of their own. Gaps: zstd batches are sent to readers older than version 10 as
they are.
"""

import asyncio
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

from penstock.broker.calls import Call
from penstock.broker.collector import Collector
from penstock.broker.connection import Reply
from penstock.broker.fetch_sessions import FINAL_EPOCH, INITIAL_EPOCH, NO_SESSION, FetchSession, Interest
from penstock.broker.read_replicas import preferred_replica
from penstock.errors import ErrorCode, Refusal
from penstock.partition.partition import Partition
from penstock.vocabulary import Instant, TopicId
from penstock.wire.fetch import FetchedRow, FetchRequest, Topic, read_fetch_request, write_fetch_response

if TYPE_CHECKING:
    from penstock.broker.node import Node

FETCH_BYTES, INTEREST_BYTES = 1_000, 300  # What a request, and each of its partitions, takes in memory while it waits.
_TOPIC_IDS_FROM = 13
READ_COMMITTED = 1


def fetch(node: "Node", call: Call) -> None:
    request = read_fetch_request(call.frame, call.body_at, call.version)
    reply = call.connection.new_reply()
    if request.replica_id >= 0:
        reply.send(write_fetch_response(call.version, call.correlation_id, _refused_rows(request)))
        return
    try:
        session, interests = _find_session(node, call.version, request)
    except Refusal as refusal:
        reply.send(write_fetch_response(call.version, call.correlation_id, (), error_code=refusal.code))
        return
    Fetch(node, call, request, reply=reply, session=session, interests=interests).begin()


def _find_session(node: "Node", version: int, request: FetchRequest) -> tuple[FetchSession | None, list[Interest] | None]:
    """The session, if there is one, and the partitions to look at; None for those that the session finds ready."""
    sessions, uses_topic_ids, now = node.fetch_sessions, version >= _TOPIC_IDS_FROM, node.env.now()
    if request.session_epoch not in (FINAL_EPOCH, INITIAL_EPOCH):
        session = sessions.resume(request.session_id, request.session_epoch, uses_topic_ids=uses_topic_ids, now=now)
        sessions.update(session, request.topics, request.forgotten)
        return session, None
    if request.session_id != NO_SESSION:
        sessions.close(request.session_id)
    if request.session_epoch == INITIAL_EPOCH and request.topics:
        opened = sessions.open(request.topics, uses_topic_ids=uses_topic_ids, now=now)
        if opened is not None:
            return opened, list(opened.interests.values())
    return None, [Interest(topic, wish) for topic, wishes in request.topics for wish in wishes]


class Fetch:
    """One fetch request until it is answered."""

    __slots__ = (
        "_bytes_expected", "_bytes_held", "_bytes_max", "_bytes_min", "_correlation_id", "_deadline", "_has_news", "_interests", "_is_done",
        "_is_reading", "_node", "_rack", "_reads_committed", "_reply", "_session", "_timer", "_version",
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
        self._node = node
        self._reply = reply
        self._session = session
        self._interests = interests
        self._version = call.version
        self._correlation_id = call.correlation_id
        self._bytes_min = request.bytes_min
        self._bytes_max = request.bytes_max
        self._deadline = Instant(node.env.now() + max(0, request.max_wait_ms) / 1000)
        self._reads_committed = request.isolation_level == READ_COMMITTED
        self._rack = request.rack_id
        self._timer: asyncio.TimerHandle | None = None
        self._bytes_expected = 0  # While parked: about how much would be found now.
        self._bytes_held = 0  # Of the node's room for requests, while it waits.
        self._is_reading = False  # From the disk, away from the loop.
        self._has_news = False  # A partition advanced meanwhile, perhaps one that was looked at before.
        self._is_done = False

    def begin(self) -> None:
        if self._session is not None:
            self._session.under_way = self
        self._reply.parked = self
        self._attempt(is_last=self._deadline <= self._node.env.now())

    def advanced(self, partition: Partition, grown_bytes: int) -> None:
        """More of a partition can be read, or it is gone. Somebody who wants many bytes is woken only when enough have come."""
        if self._is_reading:
            self._has_news = True
            return
        self._bytes_expected += grown_bytes
        if self._bytes_expected >= self._bytes_min or partition.is_deleted or partition.leader is None:
            self._unpark()
            self._attempt(is_last=False)

    def cancel(self) -> None:
        self._unpark()
        self._end()

    # Looking

    def _attempt(self, *, is_last: bool) -> None:
        node = self._node
        bytes_max = min(self._bytes_max, node.settings.fetch_max_bytes, node.reply_room.fair_share())
        preferred = partial(preferred_replica, node, rack=self._rack) if self._rack and node.settings.replica_selector else None
        collector = Collector(self._find, bytes_max, reads_committed=self._reads_committed, report=node.report, preferred=preferred)
        interests = self._looked_at()
        for at, interest in enumerate(interests):
            if not collector.look(interest):
                node.metrics.reads_cold += 1
                self._is_reading, self._has_news = True, False
                self._watch()
                node.spawn(self._read_the_rest(collector, interests[at:], is_last=is_last))
                return
        self._conclude(collector, is_last=is_last)

    async def _read_the_rest(self, collector: Collector, interests: Sequence[Interest], *, is_last: bool) -> None:
        try:
            for interest in interests:
                if self._is_done:
                    return
                if not collector.look(interest):
                    await collector.look_later(interest)
            if not self._is_done:
                self._is_reading = False
                self._unpark()
                self._conclude(collector, is_last=is_last)
        except Exception:
            self._reply.connection.close()  # There will be no answer; the node's top reports what went wrong.
            raise

    def _find(self, interest: Interest) -> Partition | ErrorCode:
        partition = interest.partition
        if partition is not None and not partition.is_deleted:
            return self._if_readable(partition)
        partitions, topic = self._node.partitions, interest.topic
        if isinstance(topic, str):
            partition = partitions.find(topic, interest.index)
        else:
            partition = partitions.find_by_id(TopicId(topic), interest.index)
        if self._session is not None:
            self._session.watch(interest, partition)
        else:
            interest.partition = partition
            if self._is_reading and partition is not None:
                partition.watchers[self] = None
        if partition is not None:
            return self._if_readable(partition)
        return self._node.why_not_here(topic, interest.index)[0]

    def _if_readable(self, partition: Partition) -> Partition | ErrorCode:
        """A follower answers readers that name a rack, as at Kafka: they know of KIP-392, and mean this replica. For others the leader must
        have moved, and they are sent to look for it, unless this cluster has its readers read from followers."""
        if partition.leader is None and not self._rack and not self._node.settings.replica_selector:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        return partition

    def _looked_at(self) -> list[Interest]:
        if self._interests is not None:
            return self._interests
        return list(self._session.ready) if self._session is not None else []

    def _conclude(self, collector: Collector, *, is_last: bool) -> None:
        is_late = is_last or self._deadline <= self._node.env.now()
        if is_late or collector.is_enough(self._bytes_min) or not self._has_interests() or not self._may_wait():
            self._answer(collector)
        elif self._has_news:
            self._has_news = False
            self._attempt(is_last=False)
        else:
            self._park(collector)

    # Waiting

    def _may_wait(self) -> bool:
        """A crowd that asks for much and waits long is answered at once, with what there is."""
        return self._session is not None or self._bytes_held > 0 or self._node.request_room.may_hold(self._bytes_waiting())

    def _bytes_waiting(self) -> int:
        return FETCH_BYTES + INTEREST_BYTES * len(self._interests or ())

    def _park(self, collector: Collector) -> None:
        self._bytes_expected = collector.bytes_found
        self._timer = asyncio.get_running_loop().call_at(self._deadline, self._time_is_up)
        self._watch()

    def _watch(self) -> None:
        """A session stands in its partitions' watchers already."""
        if self._session is None:
            if not self._bytes_held:
                self._bytes_held = self._bytes_waiting()
                self._node.request_room.hold(self._bytes_held)
            for interest in self._interests or ():
                if interest.partition is not None:
                    interest.partition.watchers[self] = None

    def _unpark(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._session is None:
            for interest in self._interests or ():
                if interest.partition is not None:
                    interest.partition.watchers.pop(self, None)

    def _time_is_up(self) -> None:
        self._unpark()
        self._attempt(is_last=True)

    def _has_interests(self) -> bool:
        return bool(self._interests if self._session is None else self._session.interests)

    # Answering

    def _answer(self, collector: Collector) -> None:
        self._end()
        is_incremental = self._interests is None
        topics: dict[Topic, list[FetchedRow]] = {}
        for interest, row in collector.rows:
            if self._session is not None:
                tells_something = self._session.note_sent(interest, row, reads_committed=self._reads_committed)
                if is_incremental and not tells_something:
                    continue
            topics.setdefault(interest.topic, []).append(row)
        self._node.metrics.bytes_out += collector.bytes_found
        session_id = NO_SESSION if self._session is None else self._session.session_id
        pieces = write_fetch_response(self._version, self._correlation_id, list(topics.items()), session_id=session_id)
        self._reply.send(pieces, sum(map(len, pieces)) - collector.bytes_streamed, is_streamed=collector.bytes_streamed > 0)

    def _end(self) -> None:
        self._is_done = True
        held, self._bytes_held = self._bytes_held, 0
        if held:
            self._node.request_room.let_go(held)
        if self._session is not None and self._session.under_way is self:
            self._session.under_way = None


def _refused_rows(request: FetchRequest) -> list[tuple[Topic, list[FetchedRow]]]:
    code = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    return [(topic, [(wish[0], code, -1, -1, -1, b"", None, -1, None, None) for wish in wishes]) for topic, wishes in request.topics]
