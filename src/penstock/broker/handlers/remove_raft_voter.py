"""RemoveRaftVoter, version 0 (KIP-853): a voter, running or not, votes no more. The last one stays."""

from typing import TYPE_CHECKING, Any

from penstock.broker.calls import Call
from penstock.broker.handlers.voters import changed
from penstock.wire import schemas

if TYPE_CHECKING:
    from penstock.broker.node import Node


async def remove_raft_voter(node: "Node", call: Call) -> dict[str, Any]:
    return await changed(node, schemas.read_request(call.api_key, call.version, call.frame, call.body_at), is_added=False)
