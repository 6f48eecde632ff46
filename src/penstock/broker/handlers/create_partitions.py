"""CreatePartitions, versions 0 to 3 (KIP-195): a topic grows to a number of partitions; it never shrinks.

All topics of a request are decided on together; each that cannot grow is refused by itself. `validate_only` decides and stores nothing.
The new partitions can be produced to when the reply leaves. Keys go to other partitions than before: that is the askers' affair.
The cluster's own topics don't grow (INVALID_TOPIC_EXCEPTION): who looks after which group is reckoned from their number of partitions.
"""

from collections import Counter
from typing import TYPE_CHECKING, Any

from penstock.broker.calls import Call
from penstock.cluster.commands import AddPartitions, MorePartitions
from penstock.cluster.replies import Reply
from penstock.cluster.topic_names import is_internal
from penstock.errors import ErrorCode, Refusal
from penstock.wire import schemas

if TYPE_CHECKING:
    from penstock.broker.node import Node

_TWICE = Refusal(ErrorCode.INVALID_REQUEST, "the request names this topic more than once")
_INTERNAL = Refusal(ErrorCode.INVALID_TOPIC_EXCEPTION, "this topic is the cluster's own, and its partitions keep their number")


async def create_partitions(node: "Node", call: Call) -> dict[str, Any]:
    request = schemas.read_request(call.api_key, call.version, call.frame, call.body_at)
    named = Counter(topic.name for topic in request.topics)
    wishes = {topic.name: _wish(topic) for topic in request.topics if named[topic.name] == 1 and not is_internal(topic.name)}
    command = AddPartitions(tuple(wishes.values()))
    try:
        replies = node.controller.decide(command).replies if request.validate_only else await node.submit(command)
    except Refusal as refusal:
        replies = tuple(refusal for _ in wishes)
    by_name = dict(zip(wishes, replies, strict=True))
    return {"results": [_result(name, by_name.get(name, _INTERNAL if is_internal(name) else _TWICE)) for name in named]}


def _wish(topic: Any) -> MorePartitions:
    assigned = topic.assignments
    return MorePartitions(topic.name, topic.count, None if assigned is None else tuple(tuple(row.broker_ids) for row in assigned))


def _result(name: str, reply: Reply) -> dict[str, Any]:
    if isinstance(reply, Refusal):
        return {"name": name, "error_code": reply.code, "error_message": reply.reason}
    return {"name": name, "error_code": ErrorCode.NONE, "error_message": None}
