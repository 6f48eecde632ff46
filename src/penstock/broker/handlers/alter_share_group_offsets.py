"""AlterShareGroupOffsets, version 0 (KIP-932).

A share group without members begins anew at the given offsets, within what the log has: what is below is done, what is above is not, and
whatever was lent is void. With members: NON_EMPTY_GROUP. A group that is not there is made, as at Kafka. Each partition is answered by
itself, and where it is refused nothing has changed; COORDINATOR_NOT_AVAILABLE means that nobody knows.
"""

from collections.abc import Iterable
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from penstock.broker.calls import Call
from penstock.broker.groups import Added, beginning_ledgers, ending_ledgers
from penstock.broker.together import together
from penstock.cluster.topic_names import is_internal
from penstock.errors import ErrorCode, Refusal
from penstock.groups.replies import LedgersChanged
from penstock.groups.share.records import Ledgers
from penstock.vocabulary import NO_TOPIC_ID, TopicId
from penstock.wire import schemas

if TYPE_CHECKING:
    from penstock.broker.node import Node


class _Wish(NamedTuple):
    topic: str
    topic_id: TopicId
    partition: int
    offset: int
    refusal: Refusal | None = None


async def alter_share_group_offsets(node: "Node", call: Call) -> dict[str, Any]:
    request = schemas.read_request(call.api_key, call.version, call.frame, call.body_at)
    wishes = [[_checked(node, topic.topic_name, row) for row in topic.partitions] for topic in request.topics]
    try:
        ended = await _alter(node, request.group_id, wishes)
    except Refusal as refusal:
        return {"error_code": refusal.code, "error_message": refusal.reason, "responses": []}
    rows = [
        {"topic_name": topic.topic_name, "topic_id": _id_of(node, topic.topic_name), "partitions": [_row(wish) for wish in row]}
        for topic, row in zip(request.topics, ended, strict=True)
    ]
    return {"error_code": ErrorCode.NONE, "error_message": None, "responses": rows}


def _checked(node: "Node", topic: str, row: Any) -> _Wish:
    """With the refusal that can be told beforehand."""
    wish = _Wish(topic, _id_of(node, topic), row.partition_index, row.start_offset)
    if node.image.partition(wish.topic_id, wish.partition) is None:
        return wish._replace(refusal=Refusal(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "there is no such partition"))
    if is_internal(topic):
        return wish._replace(refusal=Refusal(ErrorCode.TOPIC_AUTHORIZATION_FAILED, "topics of the cluster's own have no share groups"))
    if wish.offset < 0:
        return wish._replace(refusal=Refusal(ErrorCode.INVALID_REQUEST, "a start offset is not negative"))
    return wish


async def _alter(node: "Node", group: str, wishes: list[list[_Wish]]) -> list[list[_Wish]]:
    """First it is recorded where ledgers will be, then they begin. Raises Refusal."""
    coordinator = node.groups.find(group)
    if not node.groups.has_room(coordinator.state, group):
        raise Refusal(ErrorCode.COORDINATOR_NOT_AVAILABLE, "no room for another group (setting groups.max)")
    begun: LedgersChanged = await coordinator.ask(partial(beginning_ledgers, group, _added(wishes)))
    if begun.error is not ErrorCode.NONE:
        raise Refusal(begun.error, begun.message or "")
    ended = [await together(partial(_start, node, group, wish) for wish in row) for row in wishes]
    flat = [wish for row in ended for wish in row]
    is_certain = not any(wish.refusal is not None and wish.refusal.code is ErrorCode.COORDINATOR_NOT_AVAILABLE for wish in flat)
    over = partial(ending_ledgers, group, begun.hold, _not_begun(flat, begun.ledgers or {}), is_certain)
    with suppress(Refusal):  # If there is no coordinator for that any more, what is recorded is too much, and does no harm.
        await coordinator.ask(over)
    return ended


def _added(wishes: Iterable[Iterable[_Wish]]) -> Added:
    return tuple((wish.topic_id, wish.topic, (wish.partition,)) for row in wishes for wish in row if wish.refusal is None)


def _not_begun(wishes: Iterable[_Wish], before: Ledgers) -> list[tuple[TopicId, int]]:
    """Where there was no ledger, and is none for certain."""
    return [
        (wish.topic_id, wish.partition)
        for wish in wishes
        if wish.refusal is not None and wish.refusal.code is not ErrorCode.COORDINATOR_NOT_AVAILABLE
        if wish.topic_id not in before or wish.partition not in before[wish.topic_id].partitions
    ]


async def _start(node: "Node", group: str, wish: _Wish) -> _Wish:
    if wish.refusal is not None:
        return wish
    try:
        await node.shares.start(wish.topic_id, wish.partition, group, wish.offset)
    except Refusal as refusal:
        return wish._replace(refusal=refusal)
    return wish


def _row(wish: _Wish) -> dict[str, Any]:
    code, message = (ErrorCode.NONE, None) if wish.refusal is None else (wish.refusal.code, wish.refusal.reason)
    return {"partition_index": wish.partition, "error_code": code, "error_message": message}


def _id_of(node: "Node", topic: str) -> TopicId:
    known = node.image.topics.get(topic)
    return NO_TOPIC_ID if known is None else known.topic_id
