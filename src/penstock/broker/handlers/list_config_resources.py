"""ListConfigResources, versions 0 and 1 (KIP-714, KIP-1142): what DescribeConfigs can be asked about.

Version 0 asks for client metrics, of which there are none. Version 1 names the types, none meaning all that are known; a type that isn't
known: UNSUPPORTED_VERSION. Of groups those are listed that were told something; of loggers and client metrics there are none.
"""

from typing import TYPE_CHECKING, Any

from penstock.broker.calls import Call
from penstock.errors import ErrorCode
from penstock.wire import schemas
from penstock.wire.configs import ResourceType

if TYPE_CHECKING:
    from penstock.broker.node import Node


async def list_config_resources(node: "Node", call: Call) -> dict[str, Any]:
    request = schemas.read_request(call.api_key, call.version, call.frame, call.body_at)
    known = [kind.value for kind in ResourceType]
    wanted = list(dict.fromkeys(getattr(request, "resource_types", (ResourceType.CLIENT_METRICS,)))) or known
    if any(kind not in known for kind in wanted):
        return {"error_code": ErrorCode.UNSUPPORTED_VERSION}
    listed = [{"resource_name": name, "resource_type": kind} for kind in wanted for name in _names(node, kind)]
    return {"error_code": ErrorCode.NONE, "config_resources": listed}


def _names(node: "Node", kind: int) -> list[str]:
    match kind:
        case ResourceType.TOPIC:
            return list(node.image.topics)
        case ResourceType.BROKER:
            return [str(node_id) for node_id, *_ in node.endpoints()]
        case ResourceType.GROUP:
            return list(node.image.group_configs)
        case _:
            return []
