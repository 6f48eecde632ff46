"""What adding and removing a voter have in common: the same fields, the same refusals."""

from typing import TYPE_CHECKING, Any

from penstock.broker.quorum_calls import change_voters
from penstock.consensus.nouns import ANY_DIRECTORY, DirectoryId, Replica
from penstock.errors import ErrorCode, Refusal
from penstock.vocabulary import NodeId
from penstock.wire import schemas

if TYPE_CHECKING:
    from penstock.broker.node import Node


async def changed(node: "Node", request: Any, *, is_added: bool) -> dict[str, Any]:
    directory = DirectoryId(schemas.topic_id_bytes(request.voter_directory_id))
    try:
        if request.cluster_id not in (None, "", node.image.cluster_id):
            raise Refusal(ErrorCode.INCONSISTENT_CLUSTER_ID, f"this is cluster {node.image.cluster_id}")
        if directory == ANY_DIRECTORY:
            raise Refusal(ErrorCode.INVALID_REQUEST, "a voter is named by its node and the id of its directory")
        await change_voters(node, Replica(NodeId(request.voter_id), directory), is_added=is_added)
    except Refusal as refusal:
        return {"error_code": refusal.code, "error_message": refusal.reason}
    return {"error_code": ErrorCode.NONE, "error_message": None}
