"""ElectLeaders, versions 0 to 2 (KIP-183 preferred, KIP-460 unclean).

Preferred: leadership goes back to the first replica of each partition, where that is in sync. Unclean: a partition that nobody may lead
gets a leader that may lack acknowledged records; the row of such a partition says, without an error, what may be lost.
No partitions means all: then only those come back that moved or could not move, as at Kafka.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from penstock.broker.calls import Call
from penstock.cluster.commands import ElectionKind, ElectLeaders
from penstock.cluster.replies import LeaderElected, NotElected, Reply
from penstock.errors import ErrorCode, Refusal
from penstock.wire import schemas

if TYPE_CHECKING:
    from penstock.broker.node import Node

Where = tuple[str, int]


async def elect_leaders(node: "Node", call: Call) -> dict[str, Any]:
    request = schemas.read_request(call.api_key, call.version, call.frame, call.body_at)
    wanted = None if request.topic_partitions is None else _wanted(request.topic_partitions)
    try:
        kind = ElectionKind(getattr(request, "election_type", ElectionKind.PREFERRED))
    except ValueError:
        return _answer(ErrorCode.INVALID_REQUEST, {})
    try:
        replies = await node.submit(ElectLeaders(kind, wanted)) if wanted is None or wanted else ()
    except Refusal as refusal:
        if wanted is None:
            return _answer(refusal.code, {})
        replies = (refusal,) * len(wanted)
    return _answer(ErrorCode.NONE, _outcomes(wanted, replies))


def _wanted(topics: Sequence[Any]) -> tuple[Where, ...]:
    """Each once."""
    return tuple(dict.fromkeys((topic.topic, index) for topic in topics for index in topic.partitions))


def _outcomes(wanted: tuple[Where, ...] | None, replies: Sequence[Reply]) -> dict[Where, tuple[ErrorCode, str | None]]:
    found: dict[Where, tuple[ErrorCode, str | None]] = {}
    for place, reply in enumerate(replies):
        match reply:
            case LeaderElected():
                found[reply.topic, reply.partition] = (ErrorCode.NONE, reply.may_have_lost or None)
            case NotElected():
                found[reply.topic, reply.partition] = (reply.code, reply.reason)
            case Refusal() if wanted is not None:
                found[wanted[place]] = (reply.code, reply.reason)
            case _:
                pass
    return found


def _answer(code: ErrorCode, outcomes: dict[Where, tuple[ErrorCode, str | None]]) -> dict[str, Any]:
    rows: dict[str, list[dict[str, Any]]] = {}
    for (topic, index), (row_code, message) in outcomes.items():
        rows.setdefault(topic, []).append({"partition_id": index, "error_code": row_code, "error_message": message})
    return {"error_code": code, "replica_election_results": [{"topic": topic, "partition_result": each} for topic, each in rows.items()]}
