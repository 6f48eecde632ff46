"""DeleteGroups, versions 0 to 2 (KIP-229).

A group without members goes with all that it has committed. With members: NON_EMPTY_GROUP; not there: GROUP_ID_NOT_FOUND.
Each name is answered once, however often it was asked for.
"""

from functools import partial
from typing import TYPE_CHECKING, Any

from penstock.broker.calls import Call
from penstock.broker.together import together
from penstock.errors import ErrorCode, Refusal
from penstock.wire import schemas

if TYPE_CHECKING:
    from penstock.broker.node import Node

_AT_A_TIME = 4  # Each may hold the loop for some milliseconds, for all that it has committed goes with it.


async def delete_groups(node: "Node", call: Call) -> dict[str, Any]:
    request = schemas.read_request(call.api_key, call.version, call.frame, call.body_at)
    names = list(dict.fromkeys(request.groups_names))
    codes = await together((partial(_delete, node, name) for name in names), _AT_A_TIME)
    return {"results": [{"group_id": name, "error_code": code} for name, code in zip(names, codes, strict=True)]}


async def _delete(node: "Node", group: str) -> ErrorCode:
    try:
        return await node.groups.delete(group)
    except Refusal as refusal:
        return refusal.code
