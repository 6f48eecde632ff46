"""CreateTopics, versions 2 to 7 (KIP-464 defaults, KIP-525 configs in the reply, KIP-516 topic ids).

All topics of a request are decided on together; each that cannot be made is refused by itself. `validate_only` decides and stores nothing.
A topic can be produced to when the reply leaves: its logs are open.
"""

from collections import Counter
from typing import TYPE_CHECKING, Any

from penstock.broker.calls import Call
from penstock.broker.config_entries import topic_entries
from penstock.cluster import records
from penstock.cluster.commands import CreateTopics, NewTopic
from penstock.cluster.replies import Reply
from penstock.errors import ErrorCode, Refusal
from penstock.wire import schemas

if TYPE_CHECKING:
    from penstock.broker.node import Node


async def create_topics(node: "Node", call: Call) -> dict[str, Any]:
    request = schemas.read_request(call.api_key, call.version, call.frame, call.body_at)
    named = Counter(topic.name for topic in request.topics)
    wishes = {topic.name: _wish(node, topic) for topic in request.topics if named[topic.name] == 1}
    command = CreateTopics(tuple(wishes.values()))
    try:
        replies = node.controller.decide(command).replies if request.validate_only else await node.submit(command)
    except Refusal as refusal:
        replies = tuple(refusal for _ in wishes)
    by_name = dict(zip(wishes, replies, strict=True))
    twice = Refusal(ErrorCode.INVALID_REQUEST, "the request names this topic more than once")
    return {"topics": [_result(node, name, by_name.get(name, twice), is_trial=request.validate_only) for name in named]}


def _wish(node: "Node", topic: Any) -> NewTopic:
    return NewTopic(
        topic.name,
        node.new_topic_id(),
        topic.num_partitions,
        topic.replication_factor,
        {config.name: config.value for config in topic.configs if config.value is not None},
        tuple((row.partition_index, tuple(row.broker_ids)) for row in topic.assignments),
    )


def _result(node: "Node", name: str, reply: Reply, *, is_trial: bool) -> dict[str, Any]:
    if isinstance(reply, Refusal):
        return {"name": name, "error_code": reply.code, "error_message": reply.reason, "configs": None}
    assert isinstance(reply, records.TopicCreated)
    return {
        "name": name,
        "topic_id": bytes(16) if is_trial else reply.topic_id,
        "error_code": ErrorCode.NONE,
        "error_message": None,
        "num_partitions": len(reply.partitions),
        "replication_factor": len(reply.partitions[0].replicas),
        "configs": [
            {
                "name": entry.name,
                "value": entry.value,
                "read_only": entry.is_read_only,
                "is_sensitive": False,
                "config_source": entry.source,
            }
            for entry in topic_entries(node, reply.overrides)
        ],
    }
