"""AlterPartitionReassignments, versions 0 and 1 (KIP-455, KIP-860): other replicas for a partition, or an end to such a change.

The reply leaves when the change has begun; it is finished when the new replicas are all in sync (ListPartitionReassignments). Replicas of
null take a change back that is under way. From version 1 on an asker may insist that the number of replicas stays as it is.
"""

from collections import Counter
from typing import TYPE_CHECKING, Any

from penstock.broker.calls import Call
from penstock.cluster.commands import Reassignment, ReassignPartitions
from penstock.errors import ErrorCode, Refusal
from penstock.vocabulary import NodeId
from penstock.wire import schemas

if TYPE_CHECKING:
    from penstock.broker.node import Node

Where = tuple[str, int]

_TWICE = Refusal(ErrorCode.INVALID_REQUEST, "the request names this partition more than once")


async def alter_partition_reassignments(node: "Node", call: Call) -> dict[str, Any]:
    request = schemas.read_request(call.api_key, call.version, call.frame, call.body_at)
    may_change_factor = getattr(request, "allow_replication_factor_change", True)
    wishes = [_wish(topic.name, row) for topic in request.topics for row in topic.partitions]
    refused = _refused_at_once(node, wishes, may_change_factor=may_change_factor)
    asked = [wish for wish in wishes if (wish.topic, wish.partition) not in refused]
    outcomes: dict[Where, Refusal | None] = {where: refusal for where, refusal in refused.items()}
    try:
        replies = await node.submit(ReassignPartitions(tuple(asked))) if asked else ()
    except Refusal as refusal:
        replies = (refusal,) * len(asked)
    for wish, reply in zip(asked, replies, strict=True):
        outcomes[wish.topic, wish.partition] = reply if isinstance(reply, Refusal) else None
    rows: dict[str, list[dict[str, Any]]] = {}
    for (topic, index), outcome in outcomes.items():
        rows.setdefault(topic, []).append(_row(index, outcome))
    return {
        "error_code": ErrorCode.NONE,
        "error_message": None,
        "allow_replication_factor_change": may_change_factor,
        "responses": [{"name": topic, "partitions": partitions} for topic, partitions in rows.items()],
    }


def _wish(topic: str, row: Any) -> Reassignment:
    return Reassignment(topic, row.partition_index, None if row.replicas is None else tuple(map(NodeId, row.replicas)))


def _refused_at_once(node: "Node", wishes: list[Reassignment], *, may_change_factor: bool) -> dict[Where, Refusal]:
    named = Counter((wish.topic, wish.partition) for wish in wishes)
    refused = {where: _TWICE for where, times in named.items() if times > 1}
    for wish in wishes if not may_change_factor else ():
        topic = node.image.topics.get(wish.topic)
        if wish.replicas is None or topic is None or not 0 <= wish.partition < len(topic.partitions):
            continue
        held = len(topic.partitions[wish.partition].target)
        if held != len(wish.replicas):
            reason = f"the partition has {held} replicas, {len(wish.replicas)} are asked for, and their number must stay, says the request"
            refused[wish.topic, wish.partition] = Refusal(ErrorCode.INVALID_REPLICATION_FACTOR, reason)
    return refused


def _row(index: int, refusal: Refusal | None) -> dict[str, Any]:
    code, reason = (ErrorCode.NONE, None) if refusal is None else (refusal.code, refusal.reason)
    return {"partition_index": index, "error_code": code, "error_message": reason}
