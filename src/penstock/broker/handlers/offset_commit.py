"""OffsetCommit, versions 2 to 10 (KIP-211 no retention from 5, KIP-320 leader epochs from 6, KIP-345 from 7, KIP-516 topic ids in 10).

Partitions that don't exist are refused each by itself; the others are committed together, in one batch, and answered when that is durable.
An offset is committed for the topic that had this name when the request came. If that one is deleted by the time of the answer, the
offset is gone with it and the answer says so: a client that means the next topic of this name commits again.
A group that has no members takes commits from anybody (generation -1); in one that has, only its members of this generation may commit.
Members of the new group protocol say their epoch, from version 9 on (KIP-848); below it they are told UNSUPPORTED_VERSION.
"""

from typing import TYPE_CHECKING, Any, NamedTuple

from penstock.broker.askers import Asker
from penstock.broker.calls import Call
from penstock.broker.groups import all_with
from penstock.errors import ErrorCode
from penstock.groups.commands import NO_RETENTION, CommitOffsets, NewOffset
from penstock.groups.replies import CommitReply
from penstock.vocabulary import TopicId
from penstock.wire import schemas

if TYPE_CHECKING:
    from penstock.broker.node import Node

_TOPIC_IDS_FROM = 10
_NOT_FOUND_FROM = 9
_EPOCHS_FROM = 9
_RETENTION_UNTIL = 4


class _TopicRows(NamedTuple):
    """One topic of the request. `refusal` is of a topic that isn't there; otherwise of each partition whether the coordinator is asked.

    `topic_id` is of one that was there."""

    named: dict[str, Any]  # As the request names it: by name or by id.
    refusal: ErrorCode
    partitions: list[tuple[int, bool]]
    topic_id: TopicId | None = None


def offset_commit(node: "Node", call: Call) -> None:
    request = schemas.read_request(call.api_key, call.version, call.frame, call.body_at)
    rows: list[_TopicRows] = []
    offsets: list[NewOffset] = []
    for topic in request.topics:
        _take(node, call.version, topic, rows, offsets)

    def write(version: int, reply: CommitReply) -> dict[str, Any]:
        return _written(node, version, rows, reply)

    def refuse(code: ErrorCode) -> CommitReply:
        return CommitReply(all_with(code, ((new.topic, new.partition) for new in offsets)))

    if not offsets:
        body = _written(node, call.version, rows, CommitReply(()))
        call.connection.new_reply().send([schemas.write_response(call.api_key, call.version, call.correlation_id, body)])
        return

    def order(asker: Asker) -> CommitOffsets:
        return CommitOffsets(
            token=asker,
            group=request.group_id,
            generation=request.generation_id_or_member_epoch,
            member_id=request.member_id,
            instance_id=getattr(request, "group_instance_id", None),
            offsets=tuple(offsets),
            knows_epochs=call.version >= _EPOCHS_FROM,
            retention_ms=schemas.milliseconds(request.retention_time) if call.version <= _RETENTION_UNTIL else NO_RETENTION,
        )

    node.groups.put(call, request.group_id, order, write=write, refuse=refuse, needs_name=False, may_begin=True)


def _take(node: "Node", version: int, wish: Any, rows: list[_TopicRows], offsets: list[NewOffset]) -> None:
    if version >= _TOPIC_IDS_FROM:
        topic_id = schemas.topic_id_bytes(wish.topic_id)
        named: dict[str, Any] = {"topic_id": topic_id}
        topic, refusal = node.image.topics_by_id.get(topic_id), ErrorCode.UNKNOWN_TOPIC_ID
    else:
        named = {"name": wish.name}
        topic, refusal = node.image.topics.get(wish.name), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    if topic is None:
        rows.append(_TopicRows(named, refusal, [(partition.partition_index, False) for partition in wish.partitions]))
        return
    partitions = []
    for partition in wish.partitions:
        is_there = 0 <= partition.partition_index < len(topic.partitions)
        partitions.append((partition.partition_index, is_there))
        if is_there:
            epoch = getattr(partition, "committed_leader_epoch", -1)
            row = (partition.partition_index, partition.committed_offset, epoch, partition.committed_metadata)
            offsets.append(NewOffset(topic.name, *row, topic.topic_id))
    rows.append(_TopicRows(named, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, partitions, topic.topic_id))


def _written(node: "Node", version: int, rows: list[_TopicRows], reply: CommitReply) -> dict[str, Any]:
    told = (_spoken(version, code) for *_, code in reply.offsets)
    gone = ErrorCode.UNKNOWN_TOPIC_ID if version >= _TOPIC_IDS_FROM else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    def code_of(topic: _TopicRows) -> ErrorCode:
        code = next(told)
        return gone if code is ErrorCode.NONE and topic.topic_id not in node.image.topics_by_id else code

    return {
        "topics": [
            {
                **topic.named,
                "partitions": [
                    {"partition_index": index, "error_code": code_of(topic) if was_asked else topic.refusal}
                    for index, was_asked in topic.partitions
                ],
            }
            for topic in rows
        ]
    }


def _spoken(version: int, code: ErrorCode) -> ErrorCode:
    """Older members know the loss of their group by another name."""
    return ErrorCode.ILLEGAL_GENERATION if code is ErrorCode.GROUP_ID_NOT_FOUND and version < _NOT_FOUND_FROM else code
