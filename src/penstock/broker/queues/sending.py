"""Messages sent to a partition of a queue by its own doors: one batch of records, as any producer would write it.

An id that counts already is answered with the first copy, before anything is appended; the ledger expects those that are appended, so that
two sends at once make one message. The answer leaves when everything that it speaks of is below the watermark, first copies too.
Some may be refused and the others sent: what is refused was not appended, but for what is not available now. Then the log may have failed
under it, and have it all the same.
Plain messages, which nearly all are, take a straighter way (plain_sending.py).
"""

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from hashlib import sha256
from typing import NamedTuple

from penstock.broker.queues import plain_sending
from penstock.broker.queues.calls import QUEUE_GROUP, Code, Draft, QueueRefusal, Sent
from penstock.broker.queues.leading import QueuePartition
from penstock.broker.queues.plain_sending import RECORD_OVERHEAD_BYTES
from penstock.broker.queues.refusals import NotHere
from penstock.errors import DiskFailed, DiskFull, Refusal
from penstock.queues import headers
from penstock.queues.headers import Traits
from penstock.queues.moves import MOVES_MAX
from penstock.settings import KIB, TopicConfig
from penstock.wire.batches import HEADER_BYTES, Record, encode_batch, stamp_append_time

ROOM_SECONDS = 10.0
HEADER_OVERHEAD_BYTES = 10
MOVED_BYTES_MAX = 64 * KIB  # More than that may be in a message that is moved: where it comes from, and what was tried, must fit.

_OPTIONS_AT, _OPTIONS_END = Draft._fields.index("priority"), Draft._fields.index("kept_id")
_NO_OPTIONS = Draft(b"")[_OPTIONS_AT:_OPTIONS_END]
_OURS = frozenset(
    {
        headers.PRIORITY, headers.DELIVER_AT, headers.EXPIRES_AT, headers.GROUP, headers.DEDUP, headers.FIRST, headers.ID, headers.MOVED,
    }
)  # fmt: skip


async def send(queue: QueuePartition, drafts: Sequence[Draft]) -> list[Sent | QueueRefusal]:
    """Raises NotHere with nothing sent, or QueueRefusal where nobody knows what was."""
    return await (_send_by_and_by if queue.data.config.queue_when_full == "wait" else _send)(queue, drafts)


async def _send_by_and_by(queue: QueuePartition, drafts: Sequence[Draft]) -> list[Sent | QueueRefusal]:
    """A queue that is full may rather keep its senders waiting for a while. In the end they hear what they would have heard."""
    results, ends = list[Sent | QueueRefusal](), asyncio.get_running_loop().time() + ROOM_SECONDS
    while len(results) < len(drafts):
        left = drafts[len(results) :]
        try:
            results += await _send(queue, left[: await _room(queue, ends) or len(left)])
        except NotHere:
            if not results:
                raise
            results += [QueueRefusal(Code.NOT_AVAILABLE, "another node leads the queue now")] * len(left)
    return results


async def _room(queue: QueuePartition, ends: float) -> int:
    """For how many messages there is room, once there is. 0: there was none for all that time."""
    with suppress(TimeoutError):
        async with asyncio.timeout_at(ends):
            while not (room := queue.state.room(queue.data.log.end_offset, is_dedup=False)):
                queue.has_changed.clear()
                await queue.has_changed.wait()
            return room
    return 0


async def _send(queue: QueuePartition, drafts: Sequence[Draft]) -> list[Sent | QueueRefusal]:
    size = plain_sending.size_of(drafts)
    if size and (sent := await queue.rounds.send(drafts, size)) is not None:
        return [*sent]
    sending = _Sending(queue, drafts)
    end_offset = sending.append_all()
    if end_offset and (durable := queue.durable.awaited(end_offset)) is not None:
        await durable
    return sending.results


class _Fresh(NamedTuple):
    """A draft that is to be appended."""

    at: int  # Which of the results is its.
    key: bytes  # Of its dedup id; empty: it has none.
    moved: bytes  # The move that brings it here; empty: none does.
    kept_id: str
    record: Record
    record_bytes: int  # At most.


class _Sending:
    """One send to one partition, up to its append: nothing of it waits."""

    def __init__(self, queue: QueuePartition, drafts: Sequence[Draft]) -> None:
        if queue.data.leader is None:
            raise NotHere
        self._queue = queue
        self._state = queue.state
        self._policy = queue.policy_of(QUEUE_GROUP)
        self._drafts = drafts
        self._wall_ms = queue.node.env.wall_ms()
        self._results: list[Sent | QueueRefusal | None] = []
        self._fresh: list[_Fresh] = []
        self._copies: list[tuple[int, int]] = []  # Which result is a copy of which.
        self._end_offset = 0

    @property
    def results(self) -> list[Sent | QueueRefusal]:
        return [each for each in self._results if each is not None]

    def append_all(self) -> int:
        """Returns where the last of them ends, first copies of duplicates included; 0 where nothing has to be waited for."""
        by_key: dict[bytes, int] = {}
        for at, draft in enumerate(self._drafts):
            self._results.append(self._planned(at, draft, by_key))
        if self._fresh:
            refusal = self._why_not_now()
            if refusal is None:
                self._keep_to_limits()
                self._append_fresh()
            else:
                self._refuse(self._fresh, refusal)
        for at, first_at in self._copies:
            first = self._results[first_at]
            self._results[at] = first._replace(is_duplicate=True) if isinstance(first, Sent) else first
        return self._end_offset

    # Planning

    def _planned(self, at: int, draft: Draft, by_key: dict[bytes, int]) -> Sent | QueueRefusal | None:
        """None: it is to be appended, or a copy of one that is."""
        try:
            traits = self._traits(draft)
            written = [] if traits is None else headers.write(traits)
        except ValueError as wrong:
            return QueueRefusal(Code.INVALID, str(wrong))
        key = self._state.dedup_key(traits.dedup, traits.group) if traits is not None and traits.dedup else b""
        if key:
            if (known := self._state.dedup(key, self._wall_ms)) is not None:
                self._end_offset = max(self._end_offset, known + 1)
                return self._sent(known, draft.kept_id, is_duplicate=True)
            if key in by_key:
                self._copies.append((at, by_key[key]))
                return None
        moved = draft.moved.encode()
        if moved:
            if (known := self._state.find_moved(moved)) is not None:
                self._end_offset = max(self._end_offset, known + 1)
                return self._sent(known, draft.kept_id, is_duplicate=True)
            written.append((headers.MOVED, moved))
        if traits is not None and traits.deliver_at and self._queue.pages.is_full:
            return QueueRefusal(Code.NOT_AVAILABLE, "delays cannot be written to the disk of the queue's leader, and many are in memory")
        if draft.kept_id:
            written.append((headers.ID, draft.kept_id.encode()))
        record = Record(draft.key, draft.body, (*draft.headers, *written), self._wall_ms)
        record_bytes, bound = _bytes_of(record), self._queue.data.config.max_message_bytes
        if record_bytes + HEADER_BYTES > bound + (MOVED_BYTES_MAX if draft.kept_id else 0):
            return QueueRefusal(Code.TOO_LARGE, f"the message has {record_bytes + HEADER_BYTES} bytes in the log, {bound} are allowed")
        if key:
            by_key[key] = at
        self._fresh.append(_Fresh(at, key, moved, draft.kept_id, record, record_bytes))
        return None

    def _traits(self, draft: Draft) -> Traits | None:
        """None: it asks for nothing. Raises ValueError with words for the sender."""
        for name, _ in draft.headers:
            if name in _OURS:
                raise ValueError(f"{name} is written by Penstock itself: say it by its own option")
        default_ms, config = 0 if self._policy.is_fifo else self._policy.delay_ms, self._queue.data.config  # The ledger has a FIFO queue's.
        if draft[_OPTIONS_AT:_OPTIONS_END] == _NO_OPTIONS and not config.queue_dedup_by_content and not default_ms:
            return None
        if (draft.delay_ms is not None and draft.delay_ms < 0) or (draft.ttl_ms is not None and draft.ttl_ms < 0):
            raise ValueError("a delay and a time to live are not negative")
        deliver_at, delay_ms = draft.deliver_at_ms or 0, default_ms if draft.delay_ms is None else draft.delay_ms
        if not deliver_at and (delay_ms or default_ms):  # The default is written down: it may change before the message is read again.
            deliver_at = self._wall_ms + delay_ms
        return Traits(
            priority=headers.PRIORITY_DEFAULT if draft.priority is None else draft.priority,
            deliver_at=deliver_at,
            expires_at=0 if draft.ttl_ms is None else self._wall_ms + draft.ttl_ms,
            group=draft.group.encode(),
            dedup=dedup_of(self._queue.data.config, draft),
            is_first=True,
        )

    # Appending

    def _why_not_now(self) -> QueueRefusal | None:
        node, leader = self._queue.node, self._queue.data.leader
        if len(self._state.moves) + sum(bool(each.moved) for each in self._fresh) > MOVES_MAX:
            words = f"{MOVES_MAX} messages came from queues that cannot tell now whether they send them again"
            return QueueRefusal(Code.NOT_AVAILABLE, words)
        if node.disk_is_low:
            return QueueRefusal(Code.NOT_AVAILABLE, "the disk of the queue's leader is nearly full")
        if leader is None or not leader.is_enough:
            return QueueRefusal(Code.NOT_AVAILABLE, "too few replicas of the queue are in sync")
        return None

    def _keep_to_limits(self) -> None:
        """As many as there is room for, the first ones: senders may have been put together on their way here."""
        room = self._state.room(self._queue.data.log.end_offset, is_dedup=any(each.key for each in self._fresh))
        full = QueueRefusal(Code.FULL, "the queue holds as many messages as it may; send later, or raise its limit")
        self._refuse(self._fresh[room:], full)
        del self._fresh[room:]

    def _append_fresh(self) -> None:
        """In as few batches as the topic's bound on their size lets it be. Those that no longer fit on the disk are refused."""
        bytes_max, waiting = self._queue.data.config.max_message_bytes - HEADER_BYTES, self._fresh
        while waiting:
            count, size = 1, waiting[0].record_bytes
            while count < len(waiting) and size + waiting[count].record_bytes <= bytes_max:
                size += waiting[count].record_bytes
                count += 1
            try:
                self._append(waiting[:count])
            except DiskFull as full:
                self._queue.node.disk_was_full(full)
                self._refuse(waiting, QueueRefusal(Code.NOT_AVAILABLE, "the disk of the queue's leader is full"))
                return
            except (DiskFailed, Refusal) as failure:
                self._queue.node.settle(self._queue.data)
                self._refuse(waiting, QueueRefusal(Code.NOT_AVAILABLE, f"the queue's log takes no more: {failure}"))
                return
            waiting = waiting[count:]

    def _append(self, chosen: list[_Fresh]) -> None:
        node, data = self._queue.node, self._queue.data
        batch = encode_batch([each.record for each in chosen])
        if data.config.message_timestamp_type == "LogAppendTime":
            stamp_append_time(batch, self._wall_ms)
        appended = data.append(batch, self._wall_ms)
        for offset, each in enumerate(chosen, appended.base_offset):
            if each.key:
                self._state.expect(each.key, offset, self._wall_ms)
            if each.moved:
                self._state.expect_moved(each.moved, offset, self._wall_ms)
            self._results[each.at] = self._sent(offset, each.kept_id)
        self._end_offset = max(self._end_offset, appended.end_offset)
        node.metrics.batches_in += 1
        node.metrics.records_in += len(chosen)
        node.metrics.bytes_in += len(batch)
        node.appended(data)

    def _refuse(self, refused: Sequence[_Fresh], refusal: QueueRefusal) -> None:
        for each in refused:
            self._results[each.at] = refusal

    def _sent(self, offset: int, kept_id: str, *, is_duplicate: bool = False) -> Sent:
        return Sent(kept_id or self._queue.id_of(offset), self._queue.data.index, offset, self._wall_ms, is_duplicate)


def dedup_of(config: TopicConfig, draft: Draft) -> bytes:
    """Its deduplication id: the one that it was given, or one that is made from its body. Empty: none."""
    if draft.dedup or draft.moved or not config.queue_dedup_by_content:
        return draft.dedup.encode()
    return sha256(draft.body).hexdigest().encode()


def _bytes_of(record: Record) -> int:
    """What it takes in a batch, at most."""
    names = sum(len(name) + len(content or b"") + HEADER_OVERHEAD_BYTES for name, content in record.headers)
    return len(record.key or b"") + len(record.value or b"") + names + RECORD_OVERHEAD_BYTES
