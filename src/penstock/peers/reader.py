"""Reads partitions from a start to the end that was seen at the start, or follows them for ever.

Rules:
- One fetch per leading node is on its way at a time, also while the records of the last one are handed out; memory is bounded by that.
- A partition whose leader moved, vanished or refused is looked up again after a pause; the others go on meanwhile. One that gets no answer
  for `patience_s` ends the reader with the last thing that went wrong.
- An offset that the partition does not have ends the reader, unless it was told to go on from the earliest or the latest.
- A topic that was deleted and made again is another topic: its offsets mean nothing here, so the reader ends.
- All records are read, those of open and aborted transactions too; or, with `fetch.is_committed_only`, nothing of aborted transactions,
  and nothing past the first that is still open.
`read` may be cancelled at any time without losing a record.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from types import TracebackType

from penstock.errors import ErrorCode
from penstock.peers.client import Client
from penstock.peers.failures import BadAnswer, GaveUp, OffsetLost, PeerFailure, Refused, UnreadablePlace
from penstock.peers.fetch_session import FetchSession, FetchWish
from penstock.peers.fetching import Fetched, FetchLimits
from penstock.peers.offsets import EARLIEST, LATEST, FoundOffset
from penstock.peers.patience import Backoff, until_ended
from penstock.peers.positions import NOWHERE, Position, ReadRecord, Start, StartKind
from penstock.vocabulary import TopicPartition


class OutOfRange(Enum):
    """What to do at an offset that the partition does not have, or no longer."""

    FAIL = "fail"
    EARLIEST = "earliest"
    LATEST = "latest"


@dataclass(frozen=True, slots=True)
class ReaderSettings:
    is_following: bool = False
    out_of_range: OutOfRange = OutOfRange.FAIL
    uses_sessions: bool = True
    fetch: FetchLimits = field(default_factory=FetchLimits)
    partition_bytes_max: int = 1 << 20
    unpacked_bytes_max: int = 64 << 20  # Of one batch.
    patience_s: float = 60.0
    corrupt_patience_s: float | None = None  # With a leader that says CORRUPT_MESSAGE, which is soon replaced if another can be.
    on_trouble: Callable[[PeerFailure, float], None] | None = None  # Told of each failure, and for how many seconds reading has failed.


_Outcome = Callable[[], list[ReadRecord]]

# The node has forgotten the session, or counts it differently: the next fetch opens another.
_SESSION_CODES = (
    ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
    ErrorCode.INVALID_FETCH_SESSION_EPOCH,
    ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR,
)
_LEAVING_S = 1.0


class Reader:
    """Use as `async with Reader(client, starts) as reader`, then `async for record in reader`, or `read` for whole answers."""

    def __init__(self, client: Client, starts: Mapping[TopicPartition, Start], settings: ReaderSettings | None = None) -> None:
        self.settings = settings or ReaderSettings()
        self._client = client
        self._starts = dict(starts)
        self._lane = client.new_lane("read")
        self._positions: dict[TopicPartition, Position] = {}
        self._sessions: dict[int, FetchSession] = {}
        self._tasks: dict[int, asyncio.Task[None]] = {}  # By node; NOWHERE for the look-up of positions that have none.
        self._outcomes: deque[tuple[int, _Outcome]] = deque()  # What tasks brought, to be digested in `read`.
        self._arrived = asyncio.Event()
        self._unread: deque[ReadRecord] = deque()
        self._backoff = Backoff(client.env)

    async def __aenter__(self) -> "Reader":
        await self.start()
        return self

    async def __aexit__(self, kind: type[BaseException] | None, failure: BaseException | None, trace: TracebackType | None) -> None:
        await self.close()

    def __aiter__(self) -> "Reader":
        return self

    async def __anext__(self) -> ReadRecord:
        if not self._unread:
            self._unread.extend(await self.read())
        if not self._unread:
            raise StopAsyncIteration
        return self._unread.popleft()

    @property
    def positions(self) -> dict[TopicPartition, int]:
        """For each partition the offset that `read` goes on from."""
        return {partition: position.offset for partition, position in self._positions.items()}

    async def start(self) -> None:
        """Looks up where to begin and, unless following, where to end. Raises at once for a topic or partition that is not there."""
        topics = {name: await self._client.describe(name) for name in dict.fromkeys(where.topic for where in self._starts)}
        for where in self._starts:
            count = len(topics[where.topic].partitions)
            if not 0 <= where.partition < count:
                raise PeerFailure(f"topic {where.topic!r} has no partition {where.partition}: it has {count}, counted from 0")
        ends = await self._offsets(dict.fromkeys(self._starts, LATEST))
        begins = await self._offsets({where: _wish(start) for where, start in self._starts.items() if start.kind is not StartKind.OFFSET})
        for where, start in self._starts.items():
            end = ends[where].offset
            offset = start.value if start.kind is StartKind.OFFSET else begins[where].offset
            self._positions[where] = Position(
                where,
                topics[where.topic].topic_id,
                offset if offset >= 0 else end,  # No record is as young as the timestamp that was asked for.
                None if self.settings.is_following else end,
                self._client.env.now(),
            )
            if self._positions[where].offset > end:
                await self._find_range(self._positions[where])

    async def read(self) -> list[ReadRecord]:
        """The next records, of whichever partitions have some. Empty when all partitions are read to their end."""
        while True:
            self._dispatch()
            if not self._tasks:
                return []
            while not self._outcomes:
                self._arrived.clear()
                await self._arrived.wait()
            node_id, outcome = self._outcomes.popleft()
            del self._tasks[node_id]
            records = outcome()
            if records:
                self._dispatch()  # The next answer is on its way while these are used.
                return records

    async def close(self) -> None:
        idle = [(node_id, session) for node_id, session in self._sessions.items() if node_id not in self._tasks and session.is_open]
        for task in self._tasks.values():
            task.cancel()
        for node_id, session in idle:  # Where a fetch still waits at the node, taking leave would wait behind it.
            await self._client.leave_session(node_id, session, lane=self._lane, deadline_s=_LEAVING_S)
        for task in self._tasks.values():
            await until_ended(task)
        self._tasks.clear()
        self._client.close_lane(self._lane)

    def _dispatch(self) -> None:
        """Starts a fetch at every node that leads an unfinished position, unless one is on its way there."""
        groups: dict[int, list[Position]] = {}
        for position in self._positions.values():
            if not position.is_done:
                groups.setdefault(position.node_id, []).append(position)
        for node_id, group in groups.items():
            if node_id not in self._tasks:
                self._tasks[node_id] = asyncio.get_running_loop().create_task(self._bring(node_id, group))

    async def _bring(self, node_id: int, group: list[Position]) -> None:
        try:
            outcome = await (self._look_up(group) if node_id == NOWHERE else self._fetch(node_id, group))
        except Exception as failure:
            outcome = _raiser(failure)  # Whoever reads is told.
        self._outcomes.append((node_id, outcome))
        self._arrived.set()

    # Fetching.

    async def _fetch(self, node_id: int, group: list[Position]) -> _Outcome:
        session = self._sessions.setdefault(node_id, FetchSession()) if self.settings.uses_sessions else None
        bytes_max = self.settings.partition_bytes_max
        wishes = [FetchWish(position.partition, position.topic_id, position.offset, position.leader_epoch, bytes_max) for position in group]
        try:
            rows = await self._client.fetch_from(node_id, wishes, limits=self.settings.fetch, session=session, lane=self._lane)
        except PeerFailure as failure:
            lost = failure
            return lambda: self._lose(group, lost)
        return lambda: self._take_rows(group, rows)

    def _lose(self, group: list[Position], failure: PeerFailure) -> list[ReadRecord]:
        """The whole fetch failed."""
        if not failure.is_retriable and not (isinstance(failure, Refused) and failure.code in _SESSION_CODES):
            raise failure
        for position in group:
            self._note_failure(position, failure)
        return []

    def _take_rows(self, group: list[Position], rows: list[Fetched]) -> list[ReadRecord]:
        by_partition = {row.partition: row for row in rows}
        records: list[ReadRecord] = []
        for position in group:
            try:
                records += self._take_row(position, by_partition.get(position.partition))
            except PeerFailure as failure:
                if failure.is_retriable:
                    self._note_failure(position, failure)
                elif not records:
                    raise
                # Otherwise it is met again at the next fetch, when what was read before it has been handed out.
        if all(position.last_failure is None for position in group):
            self._backoff = Backoff(self._client.env)
        return records

    def _take_row(self, position: Position, row: Fetched | None) -> list[ReadRecord]:
        """No row means no news, which only a session leaves out."""
        if row is None:
            self._note_answer(position, has_moved=False)
            return []
        if row.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
            position.is_out_of_range = True
            raise BadAnswer(f"{row.partition} does not have offset {position.offset}")  # Retriable: what it has is looked up first.
        if row.error_code in (ErrorCode.CORRUPT_MESSAGE, ErrorCode.KAFKA_STORAGE_ERROR):
            raise UnreadablePlace(row.error_code, row.partition, position.node_id, position.offset)
        if row.error_code != ErrorCode.NONE:
            raise Refused(row.error_code, f"fetch {row.partition} from offset {position.offset}")
        before = position.offset
        records = position.advance(row.records, unpacked_bytes_max=self.settings.unpacked_bytes_max, aborted=row.aborted)
        self._note_answer(position, has_moved=position.offset > before)
        return records

    def _note_answer(self, position: Position, *, has_moved: bool) -> None:
        now = self._client.env.now()
        position.note_answer(now, has_moved=has_moved)
        if not position.is_done and position.end_offset is not None and now - position.moved_at >= self.settings.patience_s:
            problem = f"it reached to offset {position.end_offset} when reading began, and now there is nothing from {position.offset} on"
            raise OffsetLost(position.partition, problem, "its node lost records that were not flushed: read again from the start")

    def _note_failure(self, position: Position, failure: PeerFailure) -> None:
        now = self._client.env.now()
        position.note_failure(failure, now)
        self._client.router.doubt(position.partition.topic)
        failing_s = 0.0 if position.failing_since is None else now - position.failing_since
        if self.settings.on_trouble is not None:
            self.settings.on_trouble(failure, failing_s)
        patience_s = self._patience_with(failure)
        if failing_s >= patience_s:
            raise GaveUp(f"read {position.partition}", patience_s, failure, may_have_happened=False) from failure

    def _patience_with(self, failure: PeerFailure) -> float:
        if isinstance(failure, UnreadablePlace) and failure.code == ErrorCode.CORRUPT_MESSAGE:
            return self.settings.patience_s if self.settings.corrupt_patience_s is None else self.settings.corrupt_patience_s
        return self.settings.patience_s

    # Looking up leaders, and what a partition has.

    async def _look_up(self, group: list[Position]) -> _Outcome:
        """Gives each position of the group a leader again. Nobody else touches them meanwhile: they are nowhere."""
        if any(position.last_failure is not None for position in group):
            await asyncio.sleep(self._backoff.pause_s())
        for position in group:
            try:
                await self._place(position)
            except PeerFailure as failure:
                if not failure.is_retriable:
                    raise
                self._note_failure(position, failure)
        return lambda: []

    async def _place(self, position: Position) -> None:
        deadline = self._client.router.deadline(self.settings.patience_s)
        topic, partition = await self._client.router.find(position.partition, deadline)
        if topic.topic_id != position.topic_id:
            raise OffsetLost(
                position.partition,
                "the topic was deleted and made again while it was read",
                "start over: the offsets of the old topic mean nothing in the new one",
            )
        if position.is_out_of_range:
            await self._find_range(position)
        position.leader_epoch = partition.leader_epoch
        position.node_id = partition.leader

    async def _offsets(self, wishes: Mapping[TopicPartition, int]) -> dict[TopicPartition, FoundOffset]:
        return await self._client.list_offsets(wishes, is_committed_only=self.settings.fetch.is_committed_only)

    async def _find_range(self, position: Position) -> None:
        """Decides where to go on from an offset that the leader did not have."""
        where = position.partition
        first = (await self._client.list_offsets({where: EARLIEST}, deadline_s=self.settings.patience_s))[where].offset
        end = (await self._client.list_offsets({where: LATEST}, deadline_s=self.settings.patience_s))[where].offset  # Open ones count.
        position.is_out_of_range = False
        if first <= position.offset <= end:
            return  # A leader that lagged behind; now there is one that does not.
        match self.settings.out_of_range:
            case OutOfRange.FAIL:
                problem = f"offset {position.offset} is not there: the partition begins at {first} and ends before {end}"
                raise OffsetLost(where, problem, "read from an offset in between, from the earliest or from the latest")
            case OutOfRange.EARLIEST:
                position.offset = first
            case OutOfRange.LATEST:
                position.offset = end


def _wish(start: Start) -> int:
    match start.kind:
        case StartKind.EARLIEST:
            return EARLIEST
        case StartKind.LATEST:
            return LATEST
        case _:
            return start.value


def _raiser(failure: Exception) -> _Outcome:
    def outcome() -> list[ReadRecord]:
        raise failure

    return outcome
