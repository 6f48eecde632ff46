"""Fetch sessions (KIP-227): a consumer names its partitions once and then only what changes.

A session stands in the watchers of each of its partitions, so an append wakes only the sessions that hold that partition, and a fetch
looks only at partitions that may have something to say (`ready`), not at all of them.
Sessions may be forgotten at any time: the client then names everything again. They are never written down.
"""

from collections.abc import Iterable
from typing import TYPE_CHECKING

from penstock.env import Env
from penstock.errors import ErrorCode, Refusal
from penstock.partition.partition import Partition
from penstock.vocabulary import Instant
from penstock.wire.fetch import FetchPartition, Topic

if TYPE_CHECKING:
    from penstock.broker.handlers.fetch import Fetch

NO_SESSION = 0
FINAL_EPOCH = -1
INITIAL_EPOCH = 0
EVICTABLE_AFTER_SECONDS = 120.0  # As Kafka's: a session used more recently is not taken from its owner.
_EPOCH_MAX = (1 << 31) - 1


class Interest:
    """One partition that a consumer reads, and what it was last told of it."""

    __slots__ = ("bytes_max", "fetch_offset", "index", "leader_epoch", "partition", "sent_high_watermark", "sent_log_start", "topic")

    def __init__(self, topic: Topic, wish: FetchPartition) -> None:
        self.topic = topic
        self.index: int = wish[0]
        self.partition: Partition | None = None  # Found when first looked at.
        self.sent_high_watermark = -1
        self.sent_log_start = -1
        self.update(wish)

    def update(self, wish: FetchPartition) -> None:
        self.fetch_offset = wish.fetch_offset
        self.bytes_max = wish.bytes_max
        self.leader_epoch = wish.leader_epoch


class FetchSession:
    def __init__(self, session_id: int, *, uses_topic_ids: bool, now: Instant) -> None:
        self.session_id = session_id
        self.uses_topic_ids = uses_topic_ids
        self.epoch = 1  # What the next request must carry.
        self.used_at = now
        self.interests: dict[tuple[Topic, int], Interest] = {}
        self.ready: dict[Interest, None] = {}  # Those that may have something to say; the longest unserved first.
        self.parked: Fetch | None = None
        self._by_partition: dict[Partition, Interest] = {}

    def update(self, topics: Iterable[tuple[Topic, list[FetchPartition]]], forgotten: Iterable[tuple[Topic, list[int]]]) -> None:
        for topic, wishes in topics:
            for wish in wishes:
                name = (topic, wish[0])
                known = self.interests.get(name)
                if known is None:
                    known = self.interests[name] = Interest(topic, wish)
                else:
                    known.update(wish)
                self.ready[known] = None
        for topic, indexes in forgotten:
            for index in indexes:
                self._forget((topic, index))

    def watch(self, interest: Interest, partition: Partition) -> None:
        """The interest's partition was found: from now on its appends wake this session."""
        if interest.partition is not None and interest.partition is not partition:
            self._unwatch(interest)
        interest.partition = partition
        self._by_partition[partition] = interest
        partition.watchers[self] = None

    def advanced(self, partition: Partition) -> None:
        interest = self._by_partition.get(partition)
        if interest is not None:
            self.ready[interest] = None
        if self.parked is not None:
            self.parked.advanced(partition)

    def close(self) -> None:
        for interest in self.interests.values():
            self._unwatch(interest)
        self.interests.clear()
        self.ready.clear()

    def _forget(self, name: tuple[Topic, int]) -> None:
        interest = self.interests.pop(name, None)
        if interest is not None:
            self.ready.pop(interest, None)
            self._unwatch(interest)

    def _unwatch(self, interest: Interest) -> None:
        if interest.partition is not None:
            self._by_partition.pop(interest.partition, None)
            interest.partition.watchers.pop(self, None)
            interest.partition = None


class FetchSessions:
    def __init__(self, sessions_max: int, env: Env) -> None:
        self._sessions_max = sessions_max
        self._rng = env.rng
        self._sessions: dict[int, FetchSession] = {}  # The longest unused first.

    def __len__(self) -> int:
        return len(self._sessions)

    def open(self, *, uses_topic_ids: bool, now: Instant) -> FetchSession | None:
        """A new session; None when there is no room, which only means that the client names everything each time."""
        if len(self._sessions) >= self._sessions_max and not self._evict_one(now):
            return None
        session_id = self._rng.randrange(1, 1 << 31)
        while session_id in self._sessions:
            session_id = self._rng.randrange(1, 1 << 31)
        session = self._sessions[session_id] = FetchSession(session_id, uses_topic_ids=uses_topic_ids, now=now)
        return session

    def resume(self, session_id: int, epoch: int, *, uses_topic_ids: bool, now: Instant) -> FetchSession:
        session = self._sessions.pop(session_id, None)
        if session is None:
            raise Refusal(ErrorCode.FETCH_SESSION_ID_NOT_FOUND, "the session was forgotten; open a new one")
        self._sessions[session_id] = session
        if session.uses_topic_ids != uses_topic_ids:
            raise Refusal(ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR, "a session uses topic ids throughout, or not at all")
        if session.epoch != epoch or session.parked is not None:
            raise Refusal(ErrorCode.INVALID_FETCH_SESSION_EPOCH, f"epoch {session.epoch} was expected, not {epoch}")
        session.epoch = 1 if epoch == _EPOCH_MAX else epoch + 1
        session.used_at = now
        return session

    def close(self, session_id: int) -> None:
        session = self._sessions.pop(session_id, None)
        if session is not None:
            session.close()

    def _evict_one(self, now: Instant) -> bool:
        for session_id, session in self._sessions.items():
            if now - session.used_at < EVICTABLE_AFTER_SECONDS:
                return False
            if session.parked is None:
                self.close(session_id)
                return True
        return False
