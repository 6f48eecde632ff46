"""ListGroups, versions 0 to 5 (KIP-518 by state from 4, KIP-848 by type from 5).

Every group of this node. While one of the coordinators is loading the whole answer is COORDINATOR_LOAD_IN_PROGRESS, as at Kafka: a list
that leaves groups out without a word would be believed. One whose log has failed makes it COORDINATOR_NOT_AVAILABLE for the same reason;
Kafka leaves its groups out, for there another node may have taken them over, and here there is none.
States and types are compared without regard to case.
"""

from typing import TYPE_CHECKING, Any

from penstock.broker.calls import Call
from penstock.broker.long_answers import written
from penstock.errors import ErrorCode, Refusal
from penstock.groups.views import GroupListed
from penstock.vocabulary import Buffer
from penstock.wire import schemas

if TYPE_CHECKING:
    from penstock.broker.node import Node


async def list_groups(node: "Node", call: Call) -> list[Buffer] | dict[str, Any]:
    request = schemas.read_request(call.api_key, call.version, call.frame, call.body_at)
    states = {state.lower() for state in getattr(request, "states_filter", ())}
    types = {kind.lower() for kind in getattr(request, "types_filter", ())}
    try:
        found = await _all_groups(node)
    except Refusal as refusal:
        return {"error_code": refusal.code, "groups": []}
    wanted = [each for each in found if (not states or each.state.value.lower() in states) and (not types or each.kind in types)]
    return await written(node, call, {"error_code": ErrorCode.NONE, "groups": [_row(listed) for listed in wanted]}, len(wanted))


async def _all_groups(node: "Node") -> list[GroupListed]:
    found: list[GroupListed] = []
    for coordinator in list(node.groups):
        try:
            found += await coordinator.read(lambda state: list(state.groups()))
        except Refusal as refusal:
            if refusal.code is ErrorCode.NOT_COORDINATOR:
                raise Refusal(ErrorCode.COORDINATOR_NOT_AVAILABLE, refusal.reason) from None
            raise
    return found


def _row(listed: GroupListed) -> dict[str, Any]:
    return {
        "group_id": listed.group,
        "protocol_type": listed.protocol_type,
        "group_state": listed.state.value,
        "group_type": listed.kind,
    }
