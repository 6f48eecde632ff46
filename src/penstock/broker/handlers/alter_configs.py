"""AlterConfigs, versions 0 to 2 (KIP-133): all overrides of a resource at once; what isn't named goes back to its default.

Two clients that use it at the same time undo each other's work; IncrementalAlterConfigs is there for that. Codes and gaps are those of
incremental_alter_configs.py.
"""

from typing import TYPE_CHECKING, Any

from penstock.broker.calls import Call
from penstock.broker.handlers.incremental_alter_configs import alter
from penstock.wire import schemas

if TYPE_CHECKING:
    from penstock.broker.node import Node


async def alter_configs(node: "Node", call: Call) -> dict[str, Any]:
    request = schemas.read_request(call.api_key, call.version, call.frame, call.body_at)
    return await alter(node, request, replaces_all=True)
