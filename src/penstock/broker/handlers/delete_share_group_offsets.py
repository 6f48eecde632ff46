"""DeleteShareGroupOffsets, version 0 (KIP-932).

A share group without members forgets how far it was with a topic; should it read that topic again, it begins where
`share.auto.offset.reset` says. With members: NON_EMPTY_GROUP. A topic of which it has no ledgers: UNKNOWN_TOPIC_OR_PARTITION; so is one
that was deleted, for they went with it, and one that was made since under its name.
"""

from functools import partial
from typing import TYPE_CHECKING, Any

from penstock.broker.calls import Call
from penstock.broker.groups import ending_ledgers, forgetting_ledgers
from penstock.broker.queues.asking import Place
from penstock.errors import ErrorCode, Refusal
from penstock.groups.replies import LedgersChanged
from penstock.groups.share.records import Ledgers
from penstock.vocabulary import NO_TOPIC_ID, TopicId
from penstock.wire import schemas

if TYPE_CHECKING:
    from penstock.broker.node import Node

_NOTHING = Refusal(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "there is no offset information to delete")


async def delete_share_group_offsets(node: "Node", call: Call) -> dict[str, Any]:
    request = schemas.read_request(call.api_key, call.version, call.frame, call.body_at)
    try:
        rows = await _delete_all(node, request.group_id, [topic.topic_name for topic in request.topics])
    except Refusal as refusal:
        return {"error_code": refusal.code, "error_message": refusal.reason, "responses": []}
    return {"error_code": ErrorCode.NONE, "error_message": None, "responses": rows}


async def _delete_all(node: "Node", group: str, topics: list[str]) -> list[dict[str, Any]]:
    """The ledgers go first, and then what is recorded of them. Raises Refusal."""
    coordinator = node.groups.find(group)
    before: LedgersChanged = await coordinator.ask(partial(forgetting_ledgers, group))
    if before.error is not ErrorCode.NONE:
        raise Refusal(before.error, before.message or "")
    ledgers = before.ledgers or {}
    outcomes = [(topic, topic_id, await _forget(node, group, topic_id, ledgers)) for topic, topic_id in _named(node, topics)]
    dropped = [
        (topic_id, index) for _, topic_id, refusal in outcomes if refusal is None for index in ledgers[topic_id].partitions
    ]  # fmt: skip
    is_certain = all(refusal is None or refusal is _NOTHING for _, _, refusal in outcomes)
    after: LedgersChanged = await coordinator.ask(partial(ending_ledgers, group, before.hold, dropped, is_certain))
    late = None if after.error is ErrorCode.NONE else Refusal(after.error, after.message or "")
    return [_row(topic, topic_id, refusal or late) for topic, topic_id, refusal in outcomes]


def _named(node: "Node", topics: list[str]) -> list[tuple[str, TopicId]]:
    """By the id that the name has now: the group may know of others that had it before."""
    known = [(topic, node.image.topics.get(topic)) for topic in topics]
    return [(name, NO_TOPIC_ID if topic is None else topic.topic_id) for name, topic in known]


async def _forget(node: "Node", group: str, topic_id: TopicId, ledgers: Ledgers) -> Refusal | None:
    if topic_id not in ledgers:
        return _NOTHING
    try:
        await node.shares.forget(group, [Place(topic_id, index) for index in ledgers[topic_id].partitions])
    except Refusal as refusal:
        return refusal
    return None


def _row(topic: str, topic_id: TopicId, refusal: Refusal | None) -> dict[str, Any]:
    code, message = (ErrorCode.NONE, None) if refusal is None else (refusal.code, refusal.reason)
    return {"topic_name": topic, "topic_id": topic_id, "error_code": code, "error_message": message}
