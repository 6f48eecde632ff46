"""Fetch sessions (KIP-227): a consumer names its partitions once and then only what changes.

A session stands in the watchers of each of its partitions, so an append wakes only the sessions that hold that partition, and a fetch
looks only at partitions that may have something to say (`ready`), not at all of them.
Sessions may be forgotten at any time: the client then names everything again. They are never written down.
"""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from penstock.env import Env
from penstock.errors import ErrorCode, Refusal
from penstock.partition.partition import Partition
from penstock.vocabulary import Instant
from penstock.wire.fetch import FetchedRow, FetchPartition, Topic

if TYPE_CHECKING:
    from penstock.broker.handlers.fetch import Fetch

NO_SESSION = 0
FINAL_EPOCH = -1
INITIAL_EPOCH = 0
EVICTABLE_AFTER_SECONDS = 120.0  # As Kafka's: a session used more recently is not taken from its owner.
_EPOCH_MAX = (1 << 31) - 1

Wishes = Sequence[tuple[Topic, list[FetchPartition]]]


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
        self.under_way: Fetch | None = None  # One at a time.
        self._by_partition: dict[Partition, Interest] = {}
        self._is_closed = False

    def update(self, topics: Wishes, forgotten: Iterable[tuple[Topic, list[int]]]) -> None:
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

    def watch(self, interest: Interest, partition: Partition | None) -> None:
        """The interest's partition was found, or found to be gone: from now on its appends wake this session, and no other's do."""
        self._unwatch(interest)
        if partition is not None and not self._is_closed:
            interest.partition = partition
            self._by_partition[partition] = interest
            partition.watchers[self] = None

    def advanced(self, partition: Partition, grown_bytes: int) -> None:
        interest = self._by_partition.get(partition)
        if interest is not None:
            self.ready[interest] = None
        if self.under_way is not None:
            self.under_way.advanced(partition, grown_bytes)

    def note_sent(self, interest: Interest, row: FetchedRow, *, reads_committed: bool) -> bool:
        """Remembers what the client is told; whether that is anything new. A partition with nothing left leaves the ready ones."""
        _, code, high_watermark, last_stable, log_start, records, *_ = row
        tells_something = bool(code or records or high_watermark != interest.sent_high_watermark or log_start != interest.sent_log_start)
        interest.sent_high_watermark, interest.sent_log_start = high_watermark, log_start
        if records:
            self.ready.pop(interest, None)  # Behind those that were left without, so that each gets its turn.
        if code or high_watermark < 0 or interest.fetch_offset < (last_stable if reads_committed else high_watermark):
            self.ready[interest] = None
        else:
            self.ready.pop(interest, None)
        return tells_something

    def close(self) -> None:
        self._is_closed = True
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
    def __init__(self, sessions_max: int, interests_max: int, env: Env) -> None:
        self._sessions_max = sessions_max
        self._interests_max = interests_max  # Of all sessions together: a client may name partitions that do not exist, without end.
        self._interests = 0
        self._rng = env.rng
        self._sessions: dict[int, FetchSession] = {}  # The longest unused first.

    def __len__(self) -> int:
        return len(self._sessions)

    def open(self, topics: Wishes, *, uses_topic_ids: bool, now: Instant) -> FetchSession | None:
        """A new session; None when there is no room, which only means that the client names everything each time."""
        if self._interests + sum(len(wishes) for _, wishes in topics) > self._interests_max:
            return None
        if len(self._sessions) >= self._sessions_max and not self._evict_one(now):
            return None
        session_id = self._rng.randrange(1, 1 << 31)
        while session_id in self._sessions:
            session_id = self._rng.randrange(1, 1 << 31)
        session = self._sessions[session_id] = FetchSession(session_id, uses_topic_ids=uses_topic_ids, now=now)
        session.update(topics, ())
        self._interests += len(session.interests)
        return session

    def resume(self, session_id: int, epoch: int, *, uses_topic_ids: bool, now: Instant) -> FetchSession:
        session = self._sessions.get(session_id)
        if session is None:
            raise Refusal(ErrorCode.FETCH_SESSION_ID_NOT_FOUND, "the session was forgotten; open a new one")
        if session.uses_topic_ids != uses_topic_ids:
            raise Refusal(ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR, "a session uses topic ids throughout, or not at all")
        if session.epoch != epoch or session.under_way is not None:
            raise Refusal(ErrorCode.INVALID_FETCH_SESSION_EPOCH, f"epoch {session.epoch} was expected, not {epoch}")
        self._sessions[session_id] = self._sessions.pop(session_id)
        session.epoch = 1 if epoch == _EPOCH_MAX else epoch + 1
        session.used_at = now
        return session

    def update(self, session: FetchSession, topics: Wishes, forgotten: Iterable[tuple[Topic, list[int]]]) -> None:
        """What changes from one request to the next. A session that outgrows the room is closed: its client then goes without one."""
        self._interests -= len(session.interests)
        session.update(topics, forgotten)
        self._interests += len(session.interests)
        if self._interests > self._interests_max:
            self.close(session.session_id)
            raise Refusal(ErrorCode.FETCH_SESSION_ID_NOT_FOUND, "sessions hold too many partitions; go on without one")

    def close(self, session_id: int) -> None:
        session = self._sessions.pop(session_id, None)
        if session is not None:
            self._interests -= len(session.interests)
            session.close()

    def _evict_one(self, now: Instant) -> bool:
        for session_id, session in self._sessions.items():
            if now - session.used_at < EVICTABLE_AFTER_SECONDS:
                return False
            if session.under_way is None:
                self.close(session_id)
                return True
        return False
