"""The leader's side of replication: what followers fetch, and how far they say that they have come.

One session for each follower, beside everything that is durable: it knows which partitions the follower wants and from where, so that a
fetch names only what changed. A fetch parks until something is appended to one of them, or its time is up. Followers get what is appended
before it is committed; that they have it counts only once they say that it is durable there (`reached`).
A follower whose last record the leader does not have is told where its epoch ended here, and cuts its log there (KIP-101, KIP-279).
A session may be forgotten at any time: the follower hears UNKNOWN_SESSION and names everything again.
Not here: who is in sync (partition/leader.py), bytes of messages (links/replica_fetch.py).
"""

import asyncio
from typing import TYPE_CHECKING, NamedTuple

from penstock.errors import DiskFailed, ErrorCode
from penstock.links.door import Asked
from penstock.links.replica_fetch import NO_RECORDS, Fetched, ReplicaFetch, Wish, read_fetch, read_reached, write_fetched
from penstock.log.faults import OffsetOutOfRange
from penstock.partition.follower import diverging_at
from penstock.partition.leader import Reached
from penstock.partition.partition import Partition
from penstock.vocabulary import Buffer, LeaderEpoch, NodeId, Offset, TopicId

if TYPE_CHECKING:
    from penstock.broker.node import Node

Key = tuple[TopicId, int]


class _Parked(NamedTuple):
    asked: Asked
    fetch: ReplicaFetch
    timer: asyncio.TimerHandle


class ReplicaServing:
    def __init__(self, node: "Node") -> None:
        self._node = node
        self._sessions: dict[NodeId, ReplicaSession] = {}

    def asked(self, asked: Asked) -> None:
        """Raises MalformedInput."""
        fetch = read_fetch(asked.body)
        session = self._sessions.get(asked.node)
        if fetch.is_full:
            if session is not None:
                session.close()
            session = self._sessions[asked.node] = ReplicaSession(self._node, asked.node, fetch.session)
        if session is None or session.number != fetch.session:
            asked.answer(write_fetched(fetch.session, (), is_unknown=True))
            return
        session.asked(asked, fetch)

    def reached(self, follower: NodeId, body: memoryview) -> None:
        """Raises MalformedInput. Whoever could not join a set is heard only where it is a member: it reports again, and the controller is
        spared the asking."""
        now = self._node.env.now()
        node_epoch, rows = read_reached(body)
        known = self._node.image.nodes.get(follower)
        may_join = known is not None and known.node_epoch == node_epoch and known.is_live and not known.is_stopping
        for topic_id, index, leader_epoch, end_offset, start in rows:
            partition = self._node.partitions.find_by_id(TopicId(topic_id), index)
            if partition is not None and partition.leader is not None and (may_join or follower in partition.leader.in_sync):
                reached = Reached(follower, Offset(end_offset), node_epoch, LeaderEpoch(leader_epoch), Offset(start))
                self._node.carry_out(partition, partition.leader.step(reached, now))

    def close(self) -> None:
        for session in self._sessions.values():
            session.close()
        self._sessions.clear()


class ReplicaSession:
    def __init__(self, node: "Node", follower: NodeId, number: int) -> None:
        self.number = number
        self._node = node
        self._follower = follower
        self._wishes: dict[Key, Wish] = {}
        self._watched: dict[Key, Partition] = {}
        self._ready: dict[Key, None] = {}  # Those that may have something to say; the longest unserved first.
        self._sent: dict[Key, tuple[int, int]] = {}  # Watermark and log start that the follower knows.
        self._parked: _Parked | None = None
        self._is_answering = False

    def asked(self, asked: Asked, fetch: ReplicaFetch) -> None:
        for topic_id, index in fetch.dropped:
            self._forget((TopicId(topic_id), index))
        for wish in fetch.wishes:
            self._wish((TopicId(wish.topic_id), wish.partition), wish)
        if self._parked is not None:
            self._answer([])  # The follower has something new to ask, and waits for this one no longer.
        deadline = self._node.env.now() + max(fetch.wait_ms, 1) / 1000
        timer = asyncio.get_running_loop().call_at(deadline, self._time_is_up)
        self._parked, asked.parked = _Parked(asked, fetch, timer), self
        if self._ready:
            self._answer_soon()

    def appended(self, partition: Partition) -> None:
        """All that is appended in one turn of the loop travels together."""
        self._ready[partition.topic_id, partition.index] = None
        self._answer_soon()

    def cancel(self) -> None:
        """The follower's connection is gone."""
        self._unpark()

    def close(self) -> None:
        self._unpark()
        for key in list(self._wishes):
            self._forget(key)

    # What is wanted

    def _wish(self, key: Key, wish: Wish) -> None:
        self._wishes[key] = wish
        self._ready[key] = None
        self._sent.pop(key, None)  # Whoever asks anew is told: a follower may wait to hear that the logs agree.
        partition = self._node.partitions.find_by_id(*key)
        if self._watched.get(key) is not partition:
            self._unwatch(key)
            if partition is not None:
                self._watched[key] = partition
                partition.followers[self] = None

    def _forget(self, key: Key) -> None:
        self._wishes.pop(key, None)
        self._ready.pop(key, None)
        self._sent.pop(key, None)
        self._unwatch(key)

    def _unwatch(self, key: Key) -> None:
        watched = self._watched.pop(key, None)
        if watched is not None:
            watched.followers.pop(self, None)

    # Answering

    def _answer_soon(self) -> None:
        if self._parked is not None and not self._is_answering:
            self._is_answering = True
            asyncio.get_running_loop().call_soon(self._attempt)

    def _time_is_up(self) -> None:
        """Also tells of watermarks that have moved: nobody is woken for those alone."""
        for key, partition in self._watched.items():
            if self._sent.get(key) != (partition.high_watermark, partition.log.start_offset):
                self._ready[key] = None
        self._attempt(is_last=True)

    def _attempt(self, *, is_last: bool = False) -> None:
        self._is_answering = False
        if self._parked is None:
            return
        rows: list[Fetched] = []
        is_cold, bytes_left = [], self._parked.fetch.bytes_max
        for key in list(self._ready):
            if bytes_left <= 0:
                break
            row = self._look(key, min(bytes_left, self._parked.fetch.partition_bytes_max))
            if row is None:
                is_cold.append(key)
                continue
            self._note(key, row, rows)
            bytes_left -= len(row.records)
        if is_cold and not rows:
            self._is_answering = True  # Nobody else begins meanwhile.
            self._node.spawn(self._read_cold(is_cold[0]))
        elif rows or is_last:
            self._answer(rows)

    async def _read_cold(self, key: Key) -> None:
        """A follower that is far behind gets one partition at a time, read away from the loop.

        It may ask again meanwhile: then that question gets the answer. What nobody hears is not noted, and stays ready to be told.
        """
        rows: list[Fetched] = []
        parked, wish, partition = self._parked, self._wishes.get(key), self._watched.get(key)
        if parked is not None and wish is not None and partition is not None:
            bytes_max = min(parked.fetch.bytes_max, parked.fetch.partition_bytes_max)
            try:
                data = await partition.log.read_later(Offset(wish.fetch_offset), bytes_max=bytes_max, end_offset=partition.log.end_offset)
                row = self._checked(partition, wish) or self._row(partition, wish, data)
            except (OffsetOutOfRange, DiskFailed) as failure:
                row = self._failed(partition, wish, failure)
            if self._parked is not None and self._wishes.get(key) is wish:
                self._note(key, row, rows)
        self._is_answering = False
        if rows:
            self._answer(rows)
        elif self._ready:
            self._answer_soon()

    def _note(self, key: Key, row: Fetched, rows: list[Fetched]) -> None:
        """Rows that say nothing new are left out. One with bytes is looked at again when it is asked for from further on."""
        self._ready.pop(key, None)
        says = (row.high_watermark, row.log_start)
        if row.records or row.error_code or row.diverging is not None or self._sent.get(key) != says:
            self._sent[key] = says
            rows.append(row)

    def _look(self, key: Key, bytes_max: int) -> Fetched | None:
        """None: its bytes must come from the disk."""
        wish, partition = self._wishes[key], self._watched.get(key)
        if partition is None or partition.is_deleted:
            self._wish(key, wish)
            partition = self._watched.get(key)
            if partition is None:
                return _refused(wish, self._node.why_not_here(wish.topic_id, wish.partition)[0])
        row = self._checked(partition, wish)
        if row is not None:
            return row
        try:
            data = partition.log.read(wish.fetch_offset, bytes_max=bytes_max, end_offset=partition.log.end_offset)
        except (OffsetOutOfRange, DiskFailed) as failure:
            return self._failed(partition, wish, failure)
        return None if data is None else self._row(partition, wish, data)

    def _checked(self, partition: Partition, wish: Wish) -> Fetched | None:
        """The row that refuses the wish, or tells where the logs part; None where it may be served."""
        if partition.leader is None:
            return _refused(wish, ErrorCode.NOT_LEADER_OR_FOLLOWER)
        code = partition.check_leader_epoch(wish.leader_epoch)
        if code is ErrorCode.NONE and partition.log.failure is not None:
            code = ErrorCode.KAFKA_STORAGE_ERROR
        if code is not ErrorCode.NONE:
            return _refused(wish, code)
        diverging = diverging_at(partition.log, wish.fetch_offset, wish.last_epoch)
        if diverging is not None:
            return self._row(partition, wish, NO_RECORDS, diverging=diverging)
        return None

    def _row(self, partition: Partition, wish: Wish, data: Buffer, diverging: tuple[int, int] | None = None) -> Fetched:
        return Fetched(*wish, ErrorCode.NONE, partition.high_watermark, partition.log.start_offset, diverging, data)

    def _failed(self, partition: Partition, wish: Wish, failure: Exception) -> Fetched:
        if isinstance(failure, OffsetOutOfRange) or wish.fetch_offset < partition.log.start_offset:
            return self._row(partition, wish, b"")._replace(error_code=ErrorCode.OFFSET_OUT_OF_RANGE)
        self._node.report(f"cannot read {partition.topic}-{partition.index} at {wish.fetch_offset} for node {self._follower}: {failure}")
        return _refused(wish, ErrorCode.KAFKA_STORAGE_ERROR)

    def _answer(self, rows: list[Fetched]) -> None:
        if self._parked is not None:
            asked = self._parked.asked
            self._unpark()
            self._node.metrics.replica_bytes_out += sum(len(row.records) for row in rows)
            asked.answer(write_fetched(self.number, rows))

    def _unpark(self) -> None:
        if self._parked is not None:
            self._parked.timer.cancel()
            self._parked.asked.parked = None
            self._parked = None


def _refused(wish: Wish, code: ErrorCode) -> Fetched:
    return Fetched(*wish, code, Offset(-1), Offset(-1), None, NO_RECORDS)
