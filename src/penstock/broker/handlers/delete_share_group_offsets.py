"""DeleteShareGroupOffsets, version 0 (KIP-932).

A share group without members forgets how far it was with a topic; should it read that topic again, it begins where
`share.auto.offset.reset` says. With members: NON_EMPTY_GROUP. A topic of which it has no ledgers: UNKNOWN_TOPIC_OR_PARTITION.
"""

from functools import partial
from typing import TYPE_CHECKING, Any

from penstock.broker.calls import Call
from penstock.broker.groups import changing_ledgers
from penstock.broker.queues.asking import Place
from penstock.errors import ErrorCode, Refusal
from penstock.groups.replies import LedgersChanged
from penstock.groups.share.records import Ledgers
from penstock.vocabulary import NO_TOPIC_ID
from penstock.wire import schemas

if TYPE_CHECKING:
    from penstock.broker.node import Node


async def delete_share_group_offsets(node: "Node", call: Call) -> dict[str, Any]:
    request = schemas.read_request(call.api_key, call.version, call.frame, call.body_at)
    group = request.group_id
    try:
        before: LedgersChanged = await node.groups.find(group).ask(partial(changing_ledgers, group))
        if before.error is not ErrorCode.NONE:
            raise Refusal(before.error, before.message or "")
        rows = [await _delete(node, group, topic.topic_name, before.ledgers or {}) for topic in request.topics]
    except Refusal as refusal:
        return {"error_code": refusal.code, "error_message": refusal.reason, "responses": []}
    return {"error_code": ErrorCode.NONE, "error_message": None, "responses": rows}


async def _delete(node: "Node", group: str, topic: str, ledgers: Ledgers) -> dict[str, Any]:
    topic_id = next((each_id for each_id, each in ledgers.items() if each.topic == topic), None)
    try:
        if topic_id is None:
            raise Refusal(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "there is no offset information to delete")
        await node.shares.forget(group, [Place(topic_id, index) for index in ledgers[topic_id].partitions])
        after: LedgersChanged = await node.groups.find(group).ask(partial(changing_ledgers, group, dropped=(topic_id,)))
        code, message = after.error, after.message
    except Refusal as refusal:
        code, message = refusal.code, refusal.reason
    return {"topic_name": topic, "topic_id": topic_id or NO_TOPIC_ID, "error_code": code, "error_message": message}
