"""Every copy of partitions read by itself, so that nodes find what has changed on their disks while another copy can still mend it.

A node checks every batch that it reads. Where one is not what was written it answers KAFKA_STORAGE_ERROR while it fetches good bytes from
an in-sync replica, and the read is repeated until it succeeds. It answers CORRUPT_MESSAGE where it cannot mend the place by itself. If
another replica is in sync, the node then gives its copy up and fetches it anew, which is waited for as well; otherwise the place stays
damaged, and reading goes on behind it.

Nodes are read side by side, the copies of one node one after the other. Each is read from the start of its log to the high watermark that
it knew when reading began. What the memory of a node holds is checked there: nothing can make it read the disk instead.
"""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import NamedTuple

from penstock.errors import ErrorCode, MalformedInput
from penstock.peers.client import Client
from penstock.peers.cluster import PartitionDescription, describe_partitions
from penstock.peers.failures import PeerFailure, code_name
from penstock.peers.fetch_session import FetchWish
from penstock.peers.fetching import Fetched, FetchLimits, whole_batches
from penstock.vocabulary import TopicId, TopicPartition

READ_BYTES = 1 << 20
AGAIN_SECONDS = 0.5
AWAY_SECONDS = 30.0  # A node or a replica that cannot be read from for so long is left.
LANE = "scrub"

_DAMAGE = (ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.CORRUPT_MESSAGE)
_ELSEWHERE = (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID)


class Copy(NamedTuple):
    where: TopicPartition
    topic_id: TopicId
    node: int
    rack: str  # Of the node: a follower answers only readers that name a rack, and a leader sends none of its own elsewhere.


class Mended(NamedTuple):
    copy: Copy
    offset: int


class Damaged(NamedTuple):
    """A place that could not be mended."""

    copy: Copy
    offset: int
    next_offset: int | None  # From which the copy can be read again; None where it was not read any further.
    reason: str


class Unread(NamedTuple):
    copy: Copy
    offset: int
    reason: str


@dataclass(slots=True)
class Findings:
    copies: int = 0
    bytes: int = 0
    mended: list[Mended] = field(default_factory=list)
    damaged: list[Damaged] = field(default_factory=list)
    unread: list[Unread] = field(default_factory=list)
    gone: list[Copy] = field(default_factory=list)  # Deleted or moved away meanwhile.


async def scrub(
    client: Client, copies: Sequence[Copy], *, rate: int | None, patience_s: float, show: Callable[[Findings], None]
) -> Findings:  # fmt: skip
    """`rate`: bytes a second from each node. `patience_s`: how long a node may take to mend one place."""
    findings = Findings()
    by_node: dict[int, list[Copy]] = {}
    for copy in copies:
        by_node.setdefault(copy.node, []).append(copy)

    async def read_all(mine: Sequence[Copy]) -> None:
        for copy in mine:
            await _CopyReader(client, copy, findings, rate=rate, patience_s=patience_s, show=show).read()

    async with asyncio.TaskGroup() as group:
        for mine in by_node.values():
            group.create_task(read_all(mine))
    return findings


class _Left(Exception):
    """The copy is not there any more."""


class _CannotRead(Exception):
    """The copy is read no further; the message says why."""


class _CopyReader:
    def __init__(
        self, client: Client, copy: Copy, findings: Findings, *, rate: int | None, patience_s: float, show: Callable[[Findings], None]
    ) -> None:  # fmt: skip
        self._client = client
        self._copy = copy
        self._findings = findings
        self._rate = rate
        self._patience_s = patience_s
        self._show = show
        self._offset = 0
        self._end: int | None = None  # The high watermark when reading began.

    async def read(self) -> None:
        try:
            while (self._end is None or self._offset < self._end) and await self._read_on():
                pass
            self._findings.copies += 1
        except _CannotRead as failure:
            self._findings.unread.append(Unread(self._copy, self._offset, str(failure)))
        except _Left:
            self._findings.gone.append(self._copy)
        self._show(self._findings)

    async def _read_on(self) -> bool:
        """Whether there may be more to read."""
        row = await self._until(lambda row: row.error_code in (*_DAMAGE, ErrorCode.OFFSET_OUT_OF_RANGE) or self._has_news(row))
        if row.error_code in _DAMAGE:
            return await self._pass_damage(row)
        if row.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
            if row.log_start_offset <= self._offset:
                raise _CannotRead(f"the log ends before offset {self._offset} now")
            self._offset = row.log_start_offset
            return True
        await self._take(row)
        return True

    def _has_news(self, row: Fetched) -> bool:
        """Records, or that there are none: the end of the log is not always known at once."""
        if row.error_code != ErrorCode.NONE:
            return False
        return bool(row.records) or (self._end is None and 0 <= row.high_watermark <= self._offset)

    async def _take(self, row: Fetched) -> None:
        if self._end is None and row.high_watermark >= 0:  # A damaged log may not know where it ends.
            self._end = row.high_watermark
        try:
            for header, _ in whole_batches(row.records):
                self._offset = max(self._offset, header.end_offset)
        except MalformedInput as failure:
            raise _CannotRead(f"the node sent bytes that are not what was written: {failure}") from None
        self._findings.bytes += len(row.records)
        self._show(self._findings)
        if self._rate:
            await asyncio.sleep(max(0.001, len(row.records) / self._rate))

    # Damage

    async def _pass_damage(self, refused: Fetched) -> bool:
        """Waits until the place is mended, or reads on behind it; whether that can be done."""
        offset, row = self._offset, await self._mended(refused)
        if row.error_code not in _DAMAGE:
            self._findings.mended.append(Mended(self._copy, offset))
            return True
        reason = "no other replica is in sync" if await self._is_alone() else f"it was not mended within {self._patience_s:g} s"
        if row.error_code == ErrorCode.CORRUPT_MESSAGE:
            self._offset = await self._first_good_after(offset)
            self._findings.damaged.append(Damaged(self._copy, offset, self._offset, reason))
            return True
        said = f"the node answers {code_name(row.error_code)}, and its log says why; {reason}"
        self._findings.damaged.append(Damaged(self._copy, offset, None, said))
        return False

    async def _mended(self, refused: Fetched) -> Fetched:
        """What the node answers when it has mended the place; its last refusal if it cannot, or has not in time."""
        deadline = self._client.router.deadline(self._patience_s)
        while deadline.left_s() > 0 and not await self._is_alone():
            await asyncio.sleep(AGAIN_SECONDS)
            row = await self._fetch(self._offset)
            if row is not None and row.error_code == ErrorCode.NONE and row.records:
                return row
            if row is not None and row.error_code in _DAMAGE:
                refused = row
        return refused

    async def _first_good_after(self, offset: int) -> int:
        """The first offset behind the damaged place; by halves, so that few of its batches are asked for."""
        bad, good, step = offset, self._end, 1
        while good is None or bad + step < good:
            if not await self._is_damaged(bad + step):
                good = bad + step
                break
            bad, step = bad + step, 2 * step
        while good - bad > 1:
            middle = (bad + good) // 2
            if await self._is_damaged(middle):
                bad = middle
            else:
                good = middle
        return good

    async def _is_damaged(self, offset: int) -> bool:
        row = await self._until(lambda row: row.error_code != ErrorCode.KAFKA_STORAGE_ERROR, offset, bytes_max=1)
        return row.error_code == ErrorCode.CORRUPT_MESSAGE

    async def _is_alone(self) -> bool:
        state = await self._state()
        return state is not None and not set(state.in_sync) - {self._copy.node}

    async def _has_left(self) -> bool:
        state = await self._state()
        return state is None or self._copy.node not in state.replicas

    async def _state(self) -> PartitionDescription | None:
        """None where the topic is not there any more. Raises _CannotRead when no node can tell."""
        router, where = self._client.router, self._copy.where
        try:
            (topic,) = await describe_partitions(router, [where.topic], router.deadline(AWAY_SECONDS))
        except PeerFailure as failure:
            raise _CannotRead(failure.problem) from None
        if topic.topic_id != self._copy.topic_id:
            return None
        return next((state for state in topic.partitions if state.partition == where.partition), None)

    # Asking the node

    async def _until(self, is_answer: Callable[[Fetched], bool], offset: int | None = None, *, bytes_max: int = READ_BYTES) -> Fetched:
        """Asks until the node gives such an answer. Raises _CannotRead when it has not for too long."""
        at = self._offset if offset is None else offset
        deadline = self._client.router.deadline(AWAY_SECONDS)
        while True:
            row = await self._fetch(at, bytes_max)
            if row is not None and is_answer(row):
                return row
            if row is not None and row.error_code in _ELSEWHERE and await self._has_left():
                raise _Left
            if deadline.left_s() <= 0:
                raise _CannotRead(self._why_nothing(row, at))
            await asyncio.sleep(AGAIN_SECONDS)

    def _why_nothing(self, row: Fetched | None, offset: int) -> str:
        if row is None:
            return f"node {self._copy.node} does not answer"
        if row.error_code != ErrorCode.NONE:
            return f"node {self._copy.node} answers {code_name(row.error_code)} at offset {offset}"
        return f"node {self._copy.node} has nothing at offset {offset}, where its high watermark is {row.high_watermark}"

    async def _fetch(self, offset: int, bytes_max: int = READ_BYTES) -> Fetched | None:
        """None where the node cannot be asked, or the connection broke: it does when damage is found in the middle of a long answer."""
        wish = FetchWish(self._copy.where, self._copy.topic_id, offset, bytes_max=bytes_max)
        limits = FetchLimits(wait_ms=0, bytes_max=bytes_max, rack=self._copy.rack)
        try:
            (row,) = await self._client.fetch_from(self._copy.node, [wish], limits=limits, lane=LANE)
        except PeerFailure:
            with suppress(PeerFailure):  # It may have another address by now.
                await self._client.metadata((), deadline_s=AWAY_SECONDS)
            return None
        return row
