"""The ends of transactions, written into the partitions that this node leads: a marker in a data log, a command to a group's coordinator.

A marker is answered for when it is as durable as a record with acks=all: the coordinator forgets the transaction then. What this node does
not lead, or cannot write now, is told with its code; the coordinator asks again, here or elsewhere. Writing one twice does no harm.
A transaction may have thousands of partitions: others have their turn between them.
"""

import asyncio
from collections.abc import Iterable, Sequence
from itertools import islice
from typing import TYPE_CHECKING

from penstock.broker.groups import CONSUMER_OFFSETS, GroupsPartition
from penstock.broker.patience import Patience
from penstock.errors import DiskFailed, DiskFull, ErrorCode, Refusal
from penstock.groups.commands import EndPending
from penstock.groups.replies import PendingEnded
from penstock.links.door import Asked
from penstock.links.transaction_calls import Ended, Place, read_ended, write_codes
from penstock.partition.partition import Partition
from penstock.vocabulary import Offset, TopicId

if TYPE_CHECKING:
    from penstock.broker.node import Node

Begun = asyncio.Future[ErrorCode]
DURABLE_SECONDS = 8.0  # A little less than whoever asks waits for the answer.


class MarkerWriting:
    def __init__(self, node: "Node") -> None:
        self._node = node

    def asked(self, asked: Asked) -> None:
        """A coordinator on another node. Raises MalformedInput."""
        self._node.spawn(self._answer(asked, read_ended(asked.body)))

    async def _answer(self, asked: Asked, ends: list[Ended]) -> None:
        asked.answer([write_codes(await self.write_all(ends))])

    async def write_all(self, ends: Sequence[Ended]) -> list[tuple[ErrorCode, ...]]:
        """Of each end, what became of each of its places. All are begun before the first is waited for."""
        patience, begun = Patience(self._node.env), []
        for end in ends:
            row = []
            for place in end.places:
                await patience.pause_if_over()
                row.append(self.begin(end, place))
            begun.append(row)
        codes = iter(await self.finished([one for row in begun for one in row]))
        return [tuple(islice(codes, len(row))) for row in begun]

    async def finished(self, begun: Iterable[Begun]) -> list[ErrorCode]:
        """What became of each."""
        deadline = self._node.env.now() + DURABLE_SECONDS
        return [await self._finished(one, deadline) for one in begun]

    def begin(self, end: Ended, place: Place) -> Begun:
        """For whoever has looked at the partition just now. It says nothing of the end's other places."""
        waiting = _Waiting()
        topic, topic_id, index = place
        try:
            if topic == CONSUMER_OFFSETS:
                self._end_offsets(end, index, waiting)
            else:
                self._append(end, self._leading(topic_id, index), waiting)
        except Refusal as refusal:
            waiting.refused(refusal.code, refusal.reason)
        return waiting.heard

    def _leading(self, topic_id: TopicId, index: int) -> Partition:
        partition = self._node.partitions.find_by_id(topic_id, index)
        if partition is None:
            raise Refusal(*self._node.why_not_here(topic_id, index))
        if partition.leader is None:
            raise Refusal(ErrorCode.NOT_LEADER_OR_FOLLOWER, "this node does not lead the partition")
        return partition

    def _append(self, end: Ended, partition: Partition, waiting: "_Waiting") -> None:
        leader = partition.leader
        assert leader is not None
        if not leader.is_enough:
            raise Refusal(ErrorCode.NOT_ENOUGH_REPLICAS, "too few replicas are in sync")
        try:
            appended = partition.append_marker(
                end.producer_id, end.producer_epoch, is_commit=end.is_commit, coordinator_epoch=end.coordinator_epoch, number=end.number,
                wall_ms=self._node.env.wall_ms(), is_v2=end.is_v2,
            )  # fmt: skip
        except DiskFull as full:
            self._node.disk_was_full(full)
            raise Refusal(ErrorCode.KAFKA_STORAGE_ERROR, f"the disk is full: {full}") from None
        except DiskFailed as failed:
            self._node.settle(partition)
            raise Refusal(ErrorCode.KAFKA_STORAGE_ERROR, f"the log went offline for writes: {failed}") from None
        # If it has ended before, the log's end knows how durable that is.
        end_offset = partition.log.end_offset if appended is None else appended.end_offset
        if leader.park(end_offset, waiting, needs_all=True):
            waiting.heard.add_done_callback(lambda heard: partition.given_up() if heard.cancelled() else None)
        else:
            waiting.made_durable()
        if appended is not None:
            self._node.appended(partition)

    def _end_offsets(self, end: Ended, index: int, waiting: "_Waiting") -> None:
        """Offsets of a group: they are committed with the transaction, or dropped with it."""
        for coordinator in self._node.groups:
            if coordinator.partition.index == index:
                _EndOffsets(coordinator, end, waiting).go_on()
                return
        raise Refusal(ErrorCode.NOT_COORDINATOR, "this node does not coordinate these groups")

    async def _finished(self, heard: Begun, deadline: float) -> ErrorCode:
        if heard.done():  # As most are, once the first was waited for.
            return heard.result()
        try:
            async with asyncio.timeout(max(0.001, deadline - self._node.env.now())):
                return await asyncio.shield(heard)
        except TimeoutError:
            heard.cancel()
            return ErrorCode.REQUEST_TIMED_OUT


class _Waiting:
    """For one marker to be durable."""

    __slots__ = ("heard",)

    def __init__(self) -> None:
        self.heard: asyncio.Future[ErrorCode] = asyncio.get_running_loop().create_future()

    def made_durable(self) -> None:
        self._hear(ErrorCode.NONE)

    def is_over(self, end_offset: Offset) -> bool:
        return self.heard.done()

    def refused(self, code: ErrorCode, reason: str) -> None:
        self._hear(code)

    def _hear(self, code: ErrorCode) -> None:
        if not self.heard.done():
            self.heard.set_result(code)


class _EndOffsets:
    """Asks a groups' coordinator, piece after piece."""

    __slots__ = ("_coordinator", "_end", "_waiting")

    def __init__(self, coordinator: GroupsPartition, end: Ended, waiting: _Waiting) -> None:
        self._coordinator = coordinator
        self._end = end
        self._waiting = waiting

    def go_on(self) -> None:
        end = self._end
        order = EndPending(
            token=self, producer_id=end.producer_id, producer_epoch=end.producer_epoch, number=end.number, is_commit=end.is_commit
        )  # fmt: skip
        self._coordinator.submit(order, self)

    def answered(self, reply: PendingEnded) -> None:
        if reply.error is ErrorCode.NONE and not reply.is_over:
            self.go_on()
        elif reply.error is ErrorCode.NONE:
            self._waiting.made_durable()
        else:
            self._waiting.refused(reply.error, "the groups' coordinator refused")

    def refused(self, code: ErrorCode, reason: str) -> None:
        self._waiting.refused(code, reason)
