"""Batches of another node's copy, for a node whose own copy of the partition is damaged.

Every replica answers with what it can read, also one whose copy is damaged itself, not in sync or put aside: copies that are damaged in
different places mend each other. The node that asks checks each batch by its checksum, offset and epoch; two logs that have the same
epoch at the same offset have the same record there.
"""

from contextlib import suppress
from typing import TYPE_CHECKING

from penstock.errors import DiskFailed, ErrorCode, MalformedInput, Refusal
from penstock.links.copy_calls import (
    ONLY_HOW_FAR_IT_GOES,
    ONLY_WHETHER_IT_IS_GOOD,
    ONLY_WHETHER_IT_SERVES,
    CopyQuestion,
    read_end,
    read_question,
    read_reply,
    write_end,
    write_question,
    write_reply,
)
from penstock.links.door import Asked
from penstock.links.failures import LinkFailure
from penstock.links.kinds import Kind
from penstock.log.faults import OffsetOutOfRange
from penstock.partition.partition import Partition
from penstock.vocabulary import Buffer, NodeId, Offset

if TYPE_CHECKING:
    from penstock.broker.node import Node

ANSWER_SECONDS = 5.0
BYTES_MAX = 1 << 20


async def serves(node: "Node", source: NodeId, partition: Partition) -> bool:
    """Whether the source leads the partition, in the epoch that is known here, and can be read from."""
    try:
        await _ask(node, source, partition, ONLY_WHETHER_IT_SERVES)
    except Refusal:
        return False
    return True


async def has_good_copy(node: "Node", source: NodeId, partition: Partition) -> bool:
    """Whether the source is up, and has an in-sync copy in which it has found no damage."""
    try:
        await _ask(node, source, partition, ONLY_WHETHER_IT_IS_GOOD)
    except Refusal:
        return False
    return True


async def readable_end(node: "Node", source: NodeId, partition: Partition) -> tuple[int, int]:
    """The last epoch, and the end offset, of what can be read of the source's copy. Raises Refusal."""
    try:
        return read_end(await _ask(node, source, partition, ONLY_HOW_FAR_IT_GOES))
    except MalformedInput as malformed:
        raise Refusal(ErrorCode.REPLICA_NOT_AVAILABLE, str(malformed)) from None


async def read_batches(node: "Node", source: NodeId, partition: Partition, offset: Offset) -> Buffer:
    """At least the batch that begins at the offset, as the source has it. Raises Refusal."""
    return await _ask(node, source, partition, offset)


async def _ask(node: "Node", source: NodeId, partition: Partition, offset: Offset) -> Buffer:
    if node.links is None:
        raise Refusal(ErrorCode.REPLICA_NOT_AVAILABLE, "this node is alone")
    question = CopyQuestion(partition.topic_id, partition.index, partition.epoch, offset, BYTES_MAX)
    try:
        code, batches = read_reply(await node.links.ask(source, Kind.COPY, write_question(question), timeout_s=ANSWER_SECONDS))
    except (LinkFailure, MalformedInput) as failure:
        raise Refusal(ErrorCode.REPLICA_NOT_AVAILABLE, f"node {source} does not answer: {failure}") from None
    if code is not ErrorCode.NONE:
        raise Refusal(code, f"node {source} answers {code.name}")
    return batches


def asked_for_batches(node: "Node", asked: Asked) -> None:
    """Another node has a question. Raises MalformedInput."""
    node.spawn(_answer(node, asked, read_question(asked.body)))


async def _answer(node: "Node", asked: Asked, question: CopyQuestion) -> None:
    code, batches = ErrorCode.NONE, b""
    try:
        batches = bytes(await _read(node, question))
    except Refusal as refusal:
        code = refusal.code
    except (DiskFailed, OffsetOutOfRange, FileNotFoundError):
        code = ErrorCode.KAFKA_STORAGE_ERROR
    asked.answer(write_reply(code, batches))


async def _read(node: "Node", question: CopyQuestion) -> Buffer:
    if question.offset >= 0:
        return await _read_batches(node, question)
    partition = node.partitions.find_by_id(question.topic_id, question.partition)
    if partition is None:
        raise Refusal(*node.why_not_here(question.topic_id, question.partition))
    is_cutting = node.replica_fetching.is_cutting(partition)
    if question.offset == ONLY_HOW_FAR_IT_GOES and not is_cutting:
        return write_end(partition.log.epochs.latest, partition.log.end_offset)
    code = partition.check_leader_epoch(question.leader_epoch)
    if code is not ErrorCode.NONE:
        raise Refusal(code, "another epoch")
    state = node.image.partition(question.topic_id, question.partition)
    is_good = partition.log.failure is None and not partition.is_damaged and not is_cutting
    if not is_good or state is None or node.settings.node_id not in state.in_sync:
        raise Refusal(ErrorCode.KAFKA_STORAGE_ERROR, "this copy is not good")
    if question.offset == ONLY_WHETHER_IT_SERVES and partition.leader is None:
        raise Refusal(ErrorCode.NOT_LEADER_OR_FOLLOWER, "another node leads")
    if question.offset == ONLY_WHETHER_IT_IS_GOOD and partition.is_being_mended:
        raise Refusal(ErrorCode.KAFKA_STORAGE_ERROR, "this copy is damaged itself")
    return b""


async def _read_batches(node: "Node", question: CopyQuestion) -> Buffer:
    """From the copy in its place; or from the one that was put aside, where that has more."""
    partition = node.partitions.find_by_id(question.topic_id, question.partition)
    if partition is not None and not node.replica_fetching.is_cutting(partition):
        log = partition.log
        with suppress(DiskFailed, OffsetOutOfRange, FileNotFoundError):
            if batches := await log.read_later(question.offset, bytes_max=question.bytes_max, end_offset=log.end_offset):
                return batches
    aside = await node.damaged_copies.put_aside(question.topic_id, question.partition)
    if aside is None:
        raise Refusal(ErrorCode.KAFKA_STORAGE_ERROR, "this copy has nothing there that can be read")
    return await aside.read_later(question.offset, bytes_max=question.bytes_max, end_offset=aside.end_offset)
