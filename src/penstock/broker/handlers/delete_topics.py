"""DeleteTopics, versions 1 to 6 (KIP-516: by id from version 6).

A deleted topic is gone for clients when the reply leaves; its files go afterwards, and a crash in between is made good at the next start.
Whether a topic with this id is there, the controller knows: this node may not have heard of it yet. What a name means is looked up here,
as of a moment after the request came: where this node knows no such topic, or one that the controller knows no more, it catches up first.
"""

from typing import TYPE_CHECKING, Any

from penstock.broker.calls import Call
from penstock.broker.patience import Patience
from penstock.broker.quorum_calls import catch_up
from penstock.cluster.commands import DeleteTopic
from penstock.errors import ErrorCode, Refusal
from penstock.vocabulary import NO_TOPIC_ID, TopicId
from penstock.wire import schemas

if TYPE_CHECKING:
    from penstock.broker.node import Node

_IDS_FROM = 6


async def delete_topics(node: "Node", call: Call) -> dict[str, Any]:
    request = schemas.read_request(call.api_key, call.version, call.frame, call.body_at)
    if call.version >= _IDS_FROM:
        wishes = [(topic.name, schemas.topic_id_bytes(topic.topic_id)) for topic in request.topics]
    else:
        wishes = [(name, NO_TOPIC_ID) for name in request.topic_names]
    patience, rows = Patience(node.env), []
    for name, topic_id in wishes:
        await patience.pause_if_over()
        rows.append(await _delete(node, name, topic_id))
    return {"responses": rows}


async def _delete(node: "Node", name: str | None, topic_id: TopicId) -> dict[str, Any]:
    if name is not None and topic_id != NO_TOPIC_ID:
        return _result(name, topic_id, Refusal(ErrorCode.INVALID_REQUEST, "name a topic by its name or by its id, not by both"))
    if name is None and topic_id == NO_TOPIC_ID:
        return _result(name, topic_id, Refusal(ErrorCode.INVALID_REQUEST, "name a topic by its name or by its id"))
    try:
        if name is not None:
            return await _delete_named(node, name)
        topic = node.image.topics_by_id.get(topic_id)
        return _result(None if topic is None else topic.name, topic_id, await _refused(node, topic_id))
    except Refusal as refusal:
        return _result(name, topic_id, refusal)


async def _delete_named(node: "Node", name: str) -> dict[str, Any]:
    """Raises Refusal."""
    topic = node.image.topics.get(name)
    if topic is not None:
        refusal = await _refused(node, topic.topic_id)
        if refusal is None or refusal.code is not ErrorCode.UNKNOWN_TOPIC_ID:
            return _result(name, topic.topic_id, refusal)
    await catch_up(node)
    topic = node.image.topics.get(name)
    if topic is None:
        raise Refusal(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "there is no such topic")
    return _result(name, topic.topic_id, await _refused(node, topic.topic_id))


async def _refused(node: "Node", topic_id: TopicId) -> Refusal | None:
    (reply,) = await node.submit(DeleteTopic(topic_id))
    return reply if isinstance(reply, Refusal) else None


def _result(name: str | None, topic_id: TopicId, refusal: Refusal | None) -> dict[str, Any]:
    code, reason = (refusal.code, refusal.reason) if refusal is not None else (ErrorCode.NONE, None)
    return {"name": name, "topic_id": topic_id, "error_code": code, "error_message": reason}
