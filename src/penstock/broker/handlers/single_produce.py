"""The straight way of a produce request with one plain batch for one partition: what clients send when every microsecond counts.

Nothing is decided here that produce.py would decide otherwise. Wherever anything is not as usual (the partition isn't here, the batch isn't
plain, the log is offline) the answer is False, nothing has happened, and produce.py takes the request in full and says why.
Hot path: one object per request, which is at once the place in the queue of replies and the token that the partition's leader keeps.
"""

from typing import TYPE_CHECKING

from penstock.broker.connection import Connection, Reply
from penstock.errors import DiskFailed, ErrorCode, Refusal
from penstock.partition.partition import Appended, Partition
from penstock.vocabulary import Instant, Offset, TopicId
from penstock.wire.batches import stamp
from penstock.wire.produce import Single, SingleReply, read_single, write_produce_response
from penstock.wire.records import is_plain_batch

if TYPE_CHECKING:
    from penstock.broker.node import Node

ACKS_ALL, ACKS_LEADER = -1, 1


def produce_single(node: "Node", connection: Connection, frame: memoryview) -> bool:
    """Whether the request was taken. False: read it in full."""
    single = read_single(frame)
    if single is None:
        return False
    _, _, acks, _, topic, index, batch = single
    partition = node.partitions.find(topic, index) if isinstance(topic, str) else node.partitions.find_by_id(TopicId(topic), index)
    if partition is None:
        return False
    wall_ms = node.env.wall_ms()
    if not _may_enter(node, partition, acks, batch, wall_ms):
        return False
    try:
        appended = partition.append(batch, wall_ms)
    except (Refusal, DiskFailed):
        stamp(batch, 0, -1)  # As it came.
        if partition.log.failure is not None:
            node.settle(partition)
        return False
    _answer_when_durable(node, partition, connection, single, appended)
    return True


def _may_enter(node: "Node", partition: Partition, acks: int, batch: memoryview, wall_ms: int) -> bool:
    rules, leader = partition.plain_rules, partition.leader
    if rules is None or leader is None or len(batch) > rules.bytes_max or partition.log.failure is not None or node.disk_is_low:
        return False
    if acks == ACKS_ALL:
        if not leader.is_enough:
            return False
    elif acks != ACKS_LEADER:
        return False
    return is_plain_batch(batch, wall_ms - rules.before_ms, wall_ms + rules.after_ms, rules.keys_required)


def _answer_when_durable(node: "Node", partition: Partition, connection: Connection, single: Single, appended: Appended) -> None:
    version, _, acks, *_ = single
    layout = partition.single_replies.get(version)
    if layout is None:
        layout = partition.single_replies[version] = SingleReply(version, single[4], single[5])
    waiting = SingleProduce(node, connection, single, appended, layout, partition)
    leader = partition.leader
    assert leader is not None, "only a leader appends"
    if not leader.park(appended.end_offset, waiting, needs_all=acks == ACKS_ALL):
        waiting.made_durable()
    metrics = node.metrics
    if appended.is_duplicate:
        metrics.duplicates_in += 1
        return
    metrics.batches_in += 1
    metrics.records_in += appended.end_offset - appended.base_offset
    metrics.bytes_in += len(single[6])
    node.appended(partition)


class SingleProduce(Reply):
    """The request, appended and not yet durable."""

    __slots__ = ("_append_time_ms", "_base_offset", "_layout", "_log_start", "_node", "_partition", "_single", "deadline", "is_cancelled")

    def __init__(  # noqa: PLR0917 - called once per request, and keywords cost
        self, node: "Node", connection: Connection, single: Single, appended: Appended, layout: SingleReply, partition: Partition
    ) -> None:
        self.connection = connection
        self.pieces = None
        self.counted = 0
        self.is_streamed = False
        self.parked = self
        self.deadline = Instant(node.env.now() + single[3] / 1000)
        self._node = node
        self._single = single[:6]  # Not the batch: its buffer is another request's by the time that we answer.
        self._base_offset = appended.base_offset
        self._append_time_ms = appended.append_time_ms
        self._layout = layout
        self._log_start = partition.log.start_offset
        self._partition = partition
        self.is_cancelled = False
        connection.take_place(self)
        node.parked_produces[self] = None

    def made_durable(self) -> None:
        if self.pieces is None:
            self._node.parked_produces.pop(self, None)
            self.send([self._layout.write(self._single[1], self._base_offset, self._append_time_ms, self._log_start)])

    def refused(self, code: ErrorCode, reason: str) -> None:
        if self.pieces is None:
            self._node.parked_produces.pop(self, None)
            version, correlation_id, _, _, topic, index = self._single
            row = (index, code, -1, -1, -1, (), reason, None)
            self.send([write_produce_response(version, correlation_id, [(topic, [row])])])

    def time_out(self) -> None:
        """What isn't durable by now may still become so: the producer must ask again to know."""
        self.refused(ErrorCode.REQUEST_TIMED_OUT, "not durable within the request's time-out")
        self._partition.given_up()

    def is_over(self, end_offset: Offset) -> bool:
        return self.is_cancelled or self.pieces is not None

    def cancel(self) -> None:
        self._node.parked_produces.pop(self, None)
        self.is_cancelled = True
        self._partition.given_up()
