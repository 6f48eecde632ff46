"""GET /quorum: who votes on the cluster's metadata, and how far each replica of it has come. The quorum's leader is asked for it."""

from typing import Any

from penstock.broker.node import Node
from penstock.broker.quorum_calls import describe_quorum
from penstock.broker.quorum_views import ReplicaView
from penstock.http.answers import OK, Answer
from penstock.http.api.requests import ApiRequest
from penstock.http.api.schemas import integer, listing, named, or_null, shape, text

QUORUM_REPLICA = shape(
    {
        "node": integer("The node."),
        "directory_id": text("Of its disk: a node with a new disk is another replica."),
        "end_offset": or_null(integer("Up to where it has the metadata; null where nobody knows.")),
        "silent_ms": or_null(integer("How long ago the leader heard of it; null where nobody knows.")),
    }
)
QUORUM = shape(
    {
        "leader": or_null(integer("The controller; null while there is none.")),
        "term": integer("Grows with each election."),
        "committed_end": integer("Up to where a majority has the metadata."),
        "majority": integer("How many voters must agree."),
        "voters": listing(named("QuorumReplica")),
        "observers": listing(named("QuorumReplica"), "Those that follow and do not vote."),
    }
)


async def get_quorum(node: Node, request: ApiRequest) -> Answer:
    view = await describe_quorum(node)
    return Answer(
        OK,
        {
            "leader": view.leader,
            "term": view.term,
            "committed_end": view.committed_end,
            "majority": len(view.voters) // 2 + 1,
            "voters": list(map(_row, view.voters)),
            "observers": list(map(_row, view.observers)),
        },
    )


def _row(view: ReplicaView) -> dict[str, Any]:
    return {
        "node": view.replica.node,
        "directory_id": view.replica.directory.hex(),
        "end_offset": view.end if view.end >= 0 else None,
        "silent_ms": None if view.silent_seconds is None else int(view.silent_seconds * 1000),
    }
