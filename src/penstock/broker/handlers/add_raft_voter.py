"""AddRaftVoter, versions 0 and 1 (KIP-853): a node that follows the metadata votes from then on.

It is named by its number and the id of its directory, and must have caught up: until it has, REQUEST_TIMED_OUT. The listeners of the
request are not needed: a node tells where it listens when it registers. Whether the reply waits for the commit (version 1) is not asked: it
does.
"""

from typing import TYPE_CHECKING, Any

from penstock.broker.calls import Call
from penstock.broker.handlers.voters import changed
from penstock.wire import schemas

if TYPE_CHECKING:
    from penstock.broker.node import Node


async def add_raft_voter(node: "Node", call: Call) -> dict[str, Any]:
    return await changed(node, schemas.read_request(call.api_key, call.version, call.frame, call.body_at), is_added=True)
